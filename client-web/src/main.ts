/** Starts the workers first, to connect while the page and its renderer load. */
import "./ui/style.css";
import { Workers } from "./media/workers.ts";
import { parseLink } from "./ui/link.ts";
import { showFailure } from "./ui/messages.ts";
import { keepAwake } from "./ui/wake.ts";

const link = parseLink(location);
const workers = new Workers(link);
try {
  const { Page } = await import("./ui/page.ts");
  const page = new Page(link, workers);
  window.holocast = { stats: () => page.stats(), studio: page.studio };
  keepAwake(() => {
    const { phase, playback } = page.stats();
    return phase === "live" && playback?.playing !== false;
  });
} catch (e) {
  workers.send({ type: "stop" });
  showFailure(e);
  throw e;
}
