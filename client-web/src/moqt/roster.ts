/** The list of a cluster's relays that a relay sends its clients, like internal/roster. */

export const ROSTER_TRACK = { namespace: [".relay"], name: "relays" } as const;

/** Maximum size of a list in bytes, and of its relays in use. */
export const MAX_ROSTER = 8 << 10;
const MAX_RELAYS = 8;
const MAX_URL = 512;

/** Another relay that serves the same sessions. */
export interface KnownRelay {
  /** For WebTransport. */
  readonly url: string;
  /** Hash of its certificate in hex. */
  readonly sha256: string | undefined;
  /** Low costs come first. */
  readonly cost: number;
}

function parseRelay(r: unknown): KnownRelay | undefined {
  if (typeof r !== "object" || r === null || !("url" in r) || typeof r.url !== "string") return undefined;
  if (r.url.length > MAX_URL || !/^moqt:\/\/[^/?#@]+$/.test(r.url)) return undefined;
  const url = r.url.replace(/^moqt:/, "https:") + "/";
  if (!URL.canParse(url)) return undefined;
  const hash = "sha256" in r && typeof r.sha256 === "string" ? r.sha256 : "";
  const sha256 = /^[0-9a-f]{64}$/i.test(hash) ? hash : undefined;
  const cost = "cost" in r && typeof r.cost === "number" && Number.isFinite(r.cost) ? r.cost : 0;
  return { url, sha256, cost };
}

/** Parses a list; ignores malformed entries. */
export function parseRoster(b: Uint8Array): KnownRelay[] {
  let list: unknown;
  try {
    list = JSON.parse(new TextDecoder().decode(b));
  } catch {
    return [];
  }
  if (typeof list !== "object" || list === null || !("relays" in list) || !Array.isArray(list.relays)) return [];
  return list.relays.slice(0, MAX_RELAYS).flatMap((r: unknown) => parseRelay(r) ?? []);
}
