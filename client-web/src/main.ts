/** Starts the workers first, to connect while the page and its renderer load. */
import "./ui/style.css";
import { Workers } from "./media/workers.ts";
import { parseLink, withoutKeys } from "./ui/link.ts";
import { showFailure } from "./ui/messages.ts";
import { keepAwake } from "./ui/wake.ts";

const link = parseLink(location);
const workers = new Workers(link);
if (link.keys !== undefined) history.replaceState(history.state, "", withoutKeys(location.href));
// A link with other keys for the page that is open changes only the fragment.
addEventListener("hashchange", () => parseLink(location).keys !== undefined && location.reload());
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
