/**
 * A session's catalog: the MSF document (draft-ietf-moq-msf) that lists its tracks, as written by
 * internal/catalog. Unknown fields are ignored (MSF §5); known ones are checked. Both implementations
 * share internal/catalog/testdata/vectors.json.
 */
import { array, CatalogError, flag, integer, number, object, parse, parseObject, text, type Json } from "./json.ts";

export { CatalogError } from "./json.ts";

/** One track (MSF §5.2). */
export interface Track {
  /** JSON path in the document, for errors. */
  readonly path: string;
  readonly name: string;
  /** "" = the catalog's namespace. */
  readonly namespace: string;
  readonly packaging: string;
  readonly eventType: string;
  readonly role: string;
  readonly isLive: boolean;
  readonly initRef: string;
  readonly codec: string;
  /** In pixels. Here and in the fields below, 0 means unknown. */
  readonly width: number;
  readonly height: number;
  readonly framerate: number;
  /** Maximum, bits per second. */
  readonly bitrate: number;
  readonly samplerate: number;
  readonly channelConfig: string;
  /** Duration of a recorded track, ms; 0 = live or unknown. */
  readonly duration: number;
  readonly timeline: Timeline | undefined;
  /** All fields, including fields specific to the packaging. */
  readonly fields: Json;
}

/**
 * Maps groups to media time in ms (MSF §7.4.1). Group `group` is at `media`; every `groupStep` groups
 * add `mediaStep`.
 */
export interface Timeline {
  readonly media: number;
  readonly mediaStep: number;
  readonly group: number;
  readonly groupStep: number;
  /** UNIX time of group `group`, ms. */
  readonly wallclock: number;
}

export interface InitData {
  /** JSON path in the document, for errors. */
  readonly path: string;
  /** Base64; undefined unless inline. */
  readonly data: string | undefined;
}

export interface Catalog {
  readonly tracks: readonly Track[];
  /** Initialization data (MSF §5.1.7), by ID. */
  readonly inits: ReadonlyMap<string, InitData>;
  /** True once the broadcast has ended. */
  readonly complete: boolean;
  /** True for the unencrypted part of an encrypted session's catalog. */
  readonly encrypted: boolean;
}

/** Property type for the compression of a catalog object (MSF §12.1). */
export const COMPRESSION_PROPERTY = 0x78;
/** Maximum size of a catalog object after decompression, bytes. */
export const MAX_CATALOG = 1 << 20;
const MAX_TRACKS = 4096;
const MAX_INITS = 1024;
const MAX_OPERATIONS = 4096;
/** Maximum length of a full track name, bytes (MOQT §2.4.1). */
const MAX_NAME = 4096;
const EVENTS = "eventtimeline";

/** Decompresses a payload according to its MSF_COMPRESSION property (0 = none, 1 = gzip). */
export async function decompress(payload: Uint8Array<ArrayBuffer>, compression: number): Promise<Uint8Array> {
  if (compression === 0) return payload;
  if (compression !== 1) throw new CatalogError("$", `MSF_COMPRESSION ${compression} is not supported`);
  const reader = new Blob([payload]).stream().pipeThrough(new DecompressionStream("gzip")).getReader();
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let total = 0;
  for (;;) {
    const { value, done } = await reader.read().catch((e: unknown) => {
      throw new CatalogError("$", `gzip: ${e instanceof Error ? e.message : "damaged"}`);
    });
    if (done) break;
    total += value.length;
    if (total > MAX_CATALOG) {
      void reader.cancel();
      throw new CatalogError("$", `gzip: more than ${MAX_CATALOG} bytes`);
    }
    parts.push(value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/** Parses an independent catalog (MSF §5.1). */
export function parseCatalog(payload: Uint8Array): Catalog {
  return readCatalog(parseObject(payload, MAX_CATALOG));
}

/**
 * Applies a delta update (MSF §5.1.6, §5.3) and returns the new document. Does not modify `doc`.
 */
function applyDelta(doc: Json, delta: Json): Json {
  const operations = array(delta["deltaUpdate"] ?? [], "$.deltaUpdate", MAX_OPERATIONS);
  if (operations.length === 0) throw new CatalogError("$.deltaUpdate", "missing or empty");
  if (typeof delta["generatedAt"] !== "number") throw new CatalogError("$.generatedAt", "missing or not a number");
  for (const field of ["version", "tracks"]) {
    if (delta[field] !== undefined) throw new CatalogError(`$.${field}`, "not allowed in a delta update");
  }
  const ended = delta["isComplete"] === undefined ? {} : { isComplete: flag(delta["isComplete"], "$.isComplete") };
  let tracks = [...array(doc["tracks"], "$.tracks", MAX_TRACKS)];
  for (const [i, v] of operations.entries()) {
    const path = `$.deltaUpdate[${i}]`;
    const { op, tracks: list } = object(v, path);
    for (const [j, w] of array(list, `${path}.tracks`, MAX_TRACKS).entries()) {
      tracks = applyTo(tracks, op, object(w, `${path}.tracks[${j}]`), `${path}.tracks[${j}]`);
      if (tracks.length > MAX_TRACKS) throw new CatalogError(path, `more than ${MAX_TRACKS} tracks`);
    }
  }
  return { ...doc, ...ended, generatedAt: delta["generatedAt"], tracks };
}

/**
 * "update" is of MSF's next version. Its text puts the target in parentName, but its example uses name. Accept
 * both.
 */
function applyTo(tracks: unknown[], op: unknown, track: Json, path: string): unknown[] {
  const { parentName, parentNamespace, ...rest } = track;
  const find = (name: unknown, namespace: unknown) =>
    tracks.findIndex((t) => {
      const o = object(t, path);
      return o["name"] === name && (o["namespace"] ?? "") === (namespace ?? "");
    });
  const append = (t: Json): unknown[] => {
    if (find(t["name"], t["namespace"]) >= 0) throw new CatalogError(`${path}.name`, "taken by another track");
    return [...tracks, t];
  };
  if (op === "add") return append(track);
  const byName = op === "remove" || (op === "update" && !parentName);
  const name = byName ? track["name"] : parentName;
  const at = find(name, byName ? track["namespace"] : parentNamespace);
  if (at < 0) throw new CatalogError(path, `no track “${String(name)}” to ${String(op)}`);
  const changed = { ...object(tracks[at], path), ...rest };
  switch (op) {
    case "remove":
      return tracks.toSpliced(at, 1);
    case "update":
      checkTrack(changed, path);
      return tracks.with(at, changed);
    case "clone":
      if (!track["name"]) throw new CatalogError(`${path}.name`, "missing, a clone needs a new name");
      checkTrack(changed, path);
      return append(changed);
    default:
      throw new CatalogError(path, `unknown operation “${String(op)}”; want add, remove, clone or update`);
  }
}

/** A group this far below the newest comes from a restarted publisher; with a smaller gap it is late. */
const RESTART_GAP = 1000n;
/** Maximum number of delta updates held back until earlier ones arrive. */
const MAX_WAITING = 64;

/**
 * Assembles a catalog from its track. Object 0 of a group is independent; the following objects are
 * delta updates.
 */
export class CatalogReader {
  #group = -1n;
  #next = 0n;
  #doc: Json | undefined;
  readonly #waiting = new Map<bigint, Uint8Array>();

  /** Adds an object, in any order. Returns the new catalog; undefined if unchanged. */
  add(group: bigint, id: bigint, payload: Uint8Array): Catalog | undefined {
    if (group < this.#group && group + RESTART_GAP > this.#group) return undefined;
    if (group !== this.#group) {
      this.#group = group;
      this.#next = 0n;
      this.#waiting.clear();
    }
    if (id < this.#next || this.#waiting.size >= MAX_WAITING) return undefined;
    this.#waiting.set(id, payload);
    let catalog: Catalog | undefined;
    for (let p = this.#waiting.get(this.#next); p; p = this.#waiting.get(this.#next)) {
      this.#waiting.delete(this.#next);
      const o = parseObject(p, MAX_CATALOG);
      const doc = this.#next > 0n && o["deltaUpdate"] !== undefined ? applyDelta(this.#doc!, o) : o;
      catalog = readCatalog(doc);
      this.#doc = doc;
      this.#next++;
    }
    return catalog;
  }
}

function readCatalog(doc: Json): Catalog {
  if (doc["deltaUpdate"] !== undefined) throw new CatalogError("$", "a delta update, not an independent catalog");
  if (doc["version"] !== "draft-01" && doc["version"] !== "1")
    throw new CatalogError("$.version", "missing or not supported");
  const inits = new Map<string, InitData>();
  for (const [i, v] of array(doc["initDataList"] ?? [], "$.initDataList", MAX_INITS).entries()) {
    const path = `$.initDataList[${i}]`;
    const o = object(v, path);
    const id = text(o["id"] ?? "", `${path}.id`);
    if (id === "") throw new CatalogError(`${path}.id`, "missing");
    if (inits.has(id)) throw new CatalogError(`${path}.id`, "taken by an earlier entry");
    const data = text(o["data"] ?? "", `${path}.data`);
    if (o["type"] !== "inline" && o["type"] !== "track-property" && o["type"] !== "object-property") {
      throw new CatalogError(`${path}.type`, "none of inline, track-property, object-property");
    }
    inits.set(id, { path: `${path}.data`, data: o["type"] === "inline" ? data : undefined });
  }
  const tracks = readTracks(doc["tracks"], "$.tracks", inits);
  if (doc["publishTracks"] != null) readTracks(doc["publishTracks"], "$.publishTracks", inits);
  const complete = doc["isComplete"] != null && flag(doc["isComplete"], "$.isComplete");
  return { tracks, inits, complete, encrypted: doc["hcsealed"] != null };
}

function readTracks(list: unknown, path: string, inits: ReadonlyMap<string, InitData>): Track[] {
  const seen = new Set<string>();
  return array(list, path, MAX_TRACKS).map((v, i) => {
    const t = readTrack(object(v, `${path}[${i}]`), `${path}[${i}]`);
    if (t.initRef !== "" && !inits.has(t.initRef))
      throw new CatalogError(`${t.path}.initRef`, "no entry of initDataList has this id");
    const key = JSON.stringify([t.namespace, t.name]);
    if (seen.has(key)) throw new CatalogError(`${t.path}.name`, "taken by an earlier track");
    seen.add(key);
    return t;
  });
}

type Check = (v: unknown, path: string) => unknown;
const size: Check = (v, path) => number(v, path, 0, Number.MAX_VALUE);
const count: Check = (v, path) => integer(v, path, 0, Number.MAX_SAFE_INTEGER);
const wholeNumber: Check = (v, path) => integer(v, path, -Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
const descriptors: Check = (v, path) => {
  for (const [i, d] of array(v, path, MAX_TRACKS).entries()) {
    const { scheme, value } = object(d, `${path}[${i}]`);
    if (scheme != null) text(scheme, `${path}[${i}].scheme`);
    if (value != null) text(value, `${path}[${i}].value`);
  }
};
const texts: Check = (v, path) => array(v, path, MAX_TRACKS).forEach((t, i) => text(t, `${path}[${i}]`));

/** Type checks for the MSF fields of a track that a player may use. */
const checks: Readonly<Record<string, Check>> = {
  namespace: text,
  name: text,
  packaging: text,
  eventType: text,
  isLive: flag,
  targetLatency: size,
  buffers: object,
  role: text,
  label: text,
  renderGroup: wholeNumber,
  altGroup: wholeNumber,
  initRef: text,
  depends: texts,
  temporalId: wholeNumber,
  spatialId: wholeNumber,
  codec: text,
  mimeType: text,
  framerate: size,
  timescale: size,
  bitrate: count,
  avgBitrate: count,
  maxGopDuration: size,
  maxGroupDuration: size,
  width: count,
  height: count,
  displayWidth: count,
  displayHeight: count,
  samplerate: count,
  channelConfig: text,
  lang: text,
  trackDuration: count,
  template: timeline,
  connectionUri: text,
  token: text,
  authInfo: object,
  accessibility: descriptors,
};

/** Checks the types of a track's fields. */
function checkTrack(o: Json, path: string): void {
  for (const [field, check] of Object.entries(checks)) if (o[field] != null) check(o[field], `${path}.${field}`);
}

function readTrack(o: Json, path: string): Track {
  checkTrack(o, path);
  const word = (field: string): string => (o[field] as string | undefined) ?? "";
  const figure = (field: string): number => (o[field] as number | undefined) ?? 0;
  const t: Track = {
    path,
    name: word("name"),
    namespace: word("namespace"),
    packaging: word("packaging"),
    eventType: word("eventType"),
    role: word("role"),
    isLive: o["isLive"] === true,
    initRef: word("initRef"),
    codec: word("codec"),
    width: figure("width"),
    height: figure("height"),
    framerate: figure("framerate"),
    bitrate: figure("bitrate"),
    samplerate: figure("samplerate"),
    channelConfig: word("channelConfig"),
    duration: o["isLive"] === true ? 0 : figure("trackDuration"),
    timeline: o["template"] == null ? undefined : timeline(o["template"], `${path}.template`),
    fields: o,
  };
  const bad = (field: string, detail: string): never => {
    throw new CatalogError(`${path}.${field}`, detail);
  };
  const encoder = new TextEncoder();
  if (t.name === "") bad("name", "missing");
  if (encoder.encode(t.namespace).length + encoder.encode(t.name).length > MAX_NAME)
    bad("name", `with its namespace more than ${MAX_NAME} bytes`);
  if (t.packaging === "") bad("packaging", "missing");
  if ((t.packaging === EVENTS) !== (t.eventType !== ""))
    bad("eventType", `missing or not allowed, packaging is “${t.packaging}”`);
  if (figure("targetLatency") !== 0 && o["buffers"] != null) bad("buffers", "not allowed together with targetLatency");
  if (t.isLive && figure("trackDuration") !== 0) bad("trackDuration", "not allowed on a live track");
  if (t.name.startsWith("tiles/") && t.role === "video") bad("role", "players would take a tile for a rendition");
  return t;
}

/** Parses a template of six values; undefined unless it maps groups to media time. */
function timeline(v: unknown, path: string): Timeline | undefined {
  const list = array(v, path, 6);
  if (list.length !== 6) throw new CatalogError(path, `${list.length} values, want 6`);
  const pair = (i: number): [number, number] => {
    const p = array(list[i], `${path}[${i}]`, 2);
    const at = (k: number) => integer(p[k] ?? 0, `${path}[${i}][${k}]`, 0, Number.MAX_SAFE_INTEGER);
    return [at(0), at(1)];
  };
  const real = (i: number) => number(list[i], `${path}[${i}]`, -Number.MAX_VALUE, Number.MAX_VALUE);
  const t = { media: real(0), mediaStep: real(1), group: pair(2)[0], groupStep: pair(3)[0], wallclock: real(4) };
  real(5);
  return t.mediaStep > 0 && t.groupStep > 0 ? t : undefined;
}

/** Inline initialization data of a track; undefined if it has none. */
export function configuration(catalog: Catalog, t: Track): Uint8Array<ArrayBuffer> | undefined {
  const init = t.initRef === "" ? undefined : catalog.inits.get(t.initRef);
  return init?.data === undefined ? undefined : base64(init.data, init.path);
}

function base64(data: string, path: string): Uint8Array<ArrayBuffer> {
  try {
    return Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  } catch {
    throw new CatalogError(path, "not base64");
  }
}

/** Decodes a track's initialization data as JSON; `path` is its place in the document. */
export function initData(catalog: Catalog, t: Track): { readonly path: string; readonly value: Json } {
  const { path, data } = catalog.inits.get(t.initRef)!;
  if (data === undefined) throw new CatalogError(path, "not inline");
  return { path, value: object(parse(base64(data, path), path), path) };
}
