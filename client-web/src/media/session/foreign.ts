/** Recognizes catalogs that other programs publish, to inform the user. */
import type { Session, TrackName } from "../../moqt/index.ts";
import { MAX_CATALOG } from "./catalog.ts";
import { DOCUMENT_PRIORITY } from "./subscribe.ts";

/** Catalog tracks of other programs (moq-pub and hang). */
const TRACKS = [".catalog", "catalog.json"] as const;
/** Timeout for a catalog, ms. */
const WAIT = 2000;
/** Maximum number of tracks to list, and of characters per value. */
const MAX_LISTED = 4;
const MAX_VALUE = 40;

/** Looks for another program's catalog and returns its description; undefined if there is none. */
export async function findForeign(s: Session, track: (name: string) => TrackName): Promise<string | undefined> {
  for (const name of TRACKS) {
    let received: (payload: Uint8Array | undefined) => void = () => {};
    const payload = new Promise<Uint8Array | undefined>((resolve) => (received = resolve));
    try {
      const sub = await s.subscribe(
        track(name),
        { maxObject: MAX_CATALOG, object: (o) => o.status === "normal" && received(o.payload) },
        { join: true, priority: DOCUMENT_PRIORITY, filter: "largestObject" },
      );
      void sub.done.then(() => received(undefined));
      setTimeout(() => received(undefined), WAIT);
      const tracks = listTracks(parsed(await payload));
      sub.cancel();
      return describe(name, tracks);
    } catch {
      // Not published.
    }
  }
  return undefined;
}

/** Returns a sentence about a catalog that lists its tracks. */
export const describe = (catalog: string, tracks: string): string =>
  `It has the catalog “${catalog}” of another program${tracks && `, with ${tracks}`}. ` +
  "This viewer shows the point clouds and 360° video of Holocast.";

function parsed(payload: Uint8Array | undefined): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(payload));
  } catch {
    return undefined;
  }
}

/** Lists the tracks of a catalog; "" if it has none or its format is unknown. */
export function listTracks(catalog: unknown): string {
  const { tracks, commonTrackFields } = fields(catalog);
  if (!Array.isArray(tracks)) return "";
  const listed = tracks.slice(0, MAX_LISTED).flatMap((t) => {
    const o = { ...fields(commonTrackFields), ...fields(t) };
    const { codec, mimeType } = { ...o, ...fields(o["selectionParams"]) };
    const of = [o["packaging"], codec ?? mimeType].filter((v) => typeof v === "string").map(short);
    return typeof o["name"] === "string" ? [`${short(o["name"])}${of.length > 0 ? ` (${of.join(", ")})` : ""}`] : [];
  });
  if (tracks.length > MAX_LISTED) listed.push("…");
  return listed.join(", ");
}

const fields = (v: unknown): Readonly<Record<string, unknown>> =>
  typeof v === "object" && v !== null ? (v as Readonly<Record<string, unknown>>) : {};
const short = (v: unknown): string => String(v).slice(0, MAX_VALUE);
