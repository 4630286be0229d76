/** Starts the workers, which then connect while the page with its renderer loads. */
import "./style.css";
import { parseLink } from "./link.ts";
import { Workers } from "./workers.ts";

const link = parseLink(location);
const workers = typeof WebTransport === "undefined" ? undefined : new Workers(link);
const { Page } = await import("./page.ts");
const page = new Page(link, workers);
window.holocast = { stats: () => page.stats(), studio: page.studio };
