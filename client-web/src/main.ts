/** Starts the workers, which then connect while the page with its renderer loads. */
import "./style.css";
import { parseLink } from "./link.ts";
import { showFailure } from "./messages.ts";
import { keepAwake } from "./wake.ts";
import { Workers } from "./workers.ts";

const link = parseLink(location);
const workers = typeof WebTransport === "undefined" ? undefined : new Workers(link);
try {
  const { Page } = await import("./page.ts");
  const page = new Page(link, workers);
  window.holocast = { stats: () => page.stats(), studio: page.studio };
  keepAwake(() => {
    const { phase, playback } = page.stats();
    return phase === "live" && playback?.playing !== false;
  });
} catch (e) {
  workers?.send({ type: "stop" });
  showFailure(e);
  throw e;
}
