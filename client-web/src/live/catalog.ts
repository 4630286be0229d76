/**
 * A session's catalog: the MSF document (draft-ietf-moq-msf) that lists its tracks, with our
 * packaging "hcpf" of point-cloud frames, as internal/catalog writes it. Fields that are not known
 * are passed over (MSF §5); those that are used are checked.
 */
import type { Intrinsics } from "../decode/rays.ts";
import type { Layout } from "../decode/header.ts";

/** A rigid motion p' = R·p + T: r row-major, t in millimetres. */
export interface Transform {
  readonly r: readonly number[];
  readonly t: readonly number[];
}

/** One camera's point-cloud track, the best of its qualities. */
export interface CameraTrack {
  readonly track: string;
  /** Number in the session, the frame header's camera. */
  readonly camera: number;
  readonly name: string;
  readonly quality: string;
  readonly layout: Layout;
  readonly descriptions: number;
  readonly maxPoints: number;
  /** Milliseconds; 0 = none. */
  readonly deliveryTimeout: number;
  readonly framerate: number;
  /** The lens of the frame's pixel grid. */
  readonly grid: Intrinsics;
  /** From the grid's camera coordinates to the studio's. */
  readonly pose: Transform;
  /** Bits a second at most, 0 = unknown. */
  readonly bitrate: number;
  /** Length of a track that is not live, ms; 0 = live, or unknown. */
  readonly duration: number;
  /** Media time of the track's groups, where that is a straight line. */
  readonly timeline: Timeline | undefined;
}

/** Media time of a track's groups (MSF §7.4.1), ms: group `group` is at `media`, each `groupStep` groups `mediaStep` later. */
export interface Timeline {
  readonly media: number;
  readonly mediaStep: number;
  readonly group: number;
  readonly groupStep: number;
  /** UNIX time of group `group`, ms. */
  readonly wallclock: number;
}

export interface Catalog {
  /** Each camera's best track, by number. */
  readonly cameras: readonly CameraTrack[];
  /** Each camera's tracks, the best first, in the order of `cameras`. */
  readonly qualities: readonly (readonly CameraTrack[])[];
  /** The broadcast has ended. */
  readonly complete: boolean;
  /** Whether the session has a track of poses. */
  readonly hasPoses: boolean;
}

export const MAX_CATALOG = 1 << 20;
const MAX_TRACKS = 4096;
const MAX_POINTS = 4096 * 3072;
const MAX_SIDE = 8192;
const MAX_GRID = 4096;
/** Most cameras a viewer shows. */
const MAX_CAMERAS = 64;
export const POSE_TRACK = "pose";
const POSE_EVENT = "dev.holocast.pose/v1";

export class CatalogError extends Error {
  constructor(path: string, detail: string) {
    super(`catalog: ${path}: ${detail}`);
    this.name = "CatalogError";
  }
}

type Json = Readonly<Record<string, unknown>>;

function object(v: unknown, path: string): Json {
  if (typeof v !== "object" || v === null || Array.isArray(v)) throw new CatalogError(path, "not an object");
  return v as Json;
}

function array(v: unknown, path: string, limit: number): readonly unknown[] {
  if (!Array.isArray(v)) throw new CatalogError(path, "not an array");
  if (v.length > limit) throw new CatalogError(path, `${v.length} entries, more than ${limit}`);
  return v;
}

function text(v: unknown, path: string): string {
  if (typeof v !== "string") throw new CatalogError(path, "not a string");
  return v;
}

function number(v: unknown, path: string, least: number, most: number): number {
  if (typeof v !== "number" || !(v >= least && v <= most)) throw new CatalogError(path, `not a number in ${least}…${most}`);
  return v;
}

function integer(v: unknown, path: string, least: number, most: number): number {
  const n = number(v, path, least, most);
  if (!Number.isInteger(n)) throw new CatalogError(path, "not a whole number");
  return n;
}

function numbers(v: unknown, path: string, count: number): number[] {
  const list = array(v, path, count);
  if (list.length !== count) throw new CatalogError(path, `${list.length} numbers, wants ${count}`);
  return list.map((x, i) => number(x, `${path}[${i}]`, -Number.MAX_VALUE, Number.MAX_VALUE));
}

function intrinsics(v: unknown, path: string): Intrinsics {
  const o = object(v, path);
  const positive = (field: string) => number(o[field], `${path}.${field}`, Number.MIN_VALUE, Number.MAX_VALUE);
  const finite = (field: string) => number(o[field], `${path}.${field}`, -Number.MAX_VALUE, Number.MAX_VALUE);
  return {
    width: integer(o["width"], `${path}.width`, 1, MAX_SIDE),
    height: integer(o["height"], `${path}.height`, 1, MAX_SIDE),
    fx: positive("fx"),
    fy: positive("fy"),
    cx: finite("cx"),
    cy: finite("cy"),
    k: numbers(o["k"], `${path}.k`, 6),
    p: numbers(o["p"], `${path}.p`, 2),
    maxRadius: o["maxRadius"] === undefined ? 0 : number(o["maxRadius"], `${path}.maxRadius`, 0, Number.MAX_VALUE),
  };
}

export function transform(v: unknown, path: string): Transform {
  const o = object(v, path);
  const r = numbers(o["r"], `${path}.r`, 9);
  const t = numbers(o["t"], `${path}.t`, 3);
  for (let i = 0; i < 3; i++) {
    for (let j = 0; j < 3; j++) {
      const dot = r[3 * i]! * r[3 * j]! + r[3 * i + 1]! * r[3 * j + 1]! + r[3 * i + 2]! * r[3 * j + 2]!;
      if (!(Math.abs(dot - (i === j ? 1 : 0)) <= 1e-3)) throw new CatalogError(`${path}.r`, "not a rotation");
    }
  }
  return { r, t };
}

function decodeBase64(s: string, path: string): unknown {
  try {
    const bytes = Uint8Array.from(atob(s), (c) => c.charCodeAt(0));
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch (e) {
    throw new CatalogError(path, `not JSON in base64: ${e instanceof Error ? e.message : ""}`);
  }
}

/** Undoes the compression that an MSF_COMPRESSION property announces (MSF §12.1): 0 none, 1 gzip. */
export async function decompress(payload: Uint8Array<ArrayBuffer>, compression: number): Promise<Uint8Array> {
  if (compression === 0) return payload;
  if (compression !== 1) throw new CatalogError("$", `MSF_COMPRESSION ${compression} is not supported`);
  const reader = new Blob([payload]).stream().pipeThrough(new DecompressionStream("gzip")).getReader();
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let total = 0;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    total += value.length;
    if (total > MAX_CATALOG) {
      void reader.cancel();
      throw new CatalogError("$", `more than ${MAX_CATALOG} bytes`);
    }
    parts.push(value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

function parseObject(payload: Uint8Array): Json {
  if (payload.length > MAX_CATALOG) throw new CatalogError("$", `${payload.length} bytes, more than ${MAX_CATALOG}`);
  try {
    return object(JSON.parse(new TextDecoder().decode(payload)), "$");
  } catch (e) {
    if (e instanceof CatalogError) throw e;
    throw new CatalogError("$", e instanceof Error ? e.message : "not JSON");
  }
}

/** Reads an independent catalog (MSF §5.1). */
export function parseCatalog(payload: Uint8Array): Catalog {
  return readCatalog(parseObject(payload));
}

/** The document that a delta update (MSF §5.1.6, §5.3) makes of another, which stays as it was. */
function applyDelta(doc: Json, delta: Json): Json {
  let tracks = [...array(doc["tracks"], "$.tracks", MAX_TRACKS)];
  for (const [i, v] of array(delta["deltaUpdate"], "$.deltaUpdate", MAX_TRACKS).entries()) {
    const path = `$.deltaUpdate[${i}]`;
    const { op, tracks: list } = object(v, path);
    for (const [j, w] of array(list, `${path}.tracks`, MAX_TRACKS).entries()) {
      tracks = applyTo(tracks, op, object(w, `${path}.tracks[${j}]`), `${path}.tracks[${j}]`);
    }
  }
  return { ...doc, ...(delta["isComplete"] !== undefined && { isComplete: delta["isComplete"] }), tracks };
}

/** MSF's text wants an update's target in parentName, its example puts it in name: either is taken. */
function applyTo(tracks: unknown[], op: unknown, track: Json, path: string): unknown[] {
  const { parentName, parentNamespace, ...rest } = track;
  const byName = op === "remove" || (op === "update" && parentName === undefined);
  const name = byName ? track["name"] : parentName;
  const namespace = (byName ? track["namespace"] : parentNamespace) ?? "";
  const at = tracks.findIndex((t) => {
    const o = object(t, path);
    return o["name"] === name && (o["namespace"] ?? "") === namespace;
  });
  if (op === "add") return [...tracks, track];
  if (at < 0) throw new CatalogError(path, `no track “${String(name)}” to ${String(op)}`);
  const changed = { ...object(tracks[at], path), ...rest };
  switch (op) {
    case "remove":
      return tracks.toSpliced(at, 1);
    case "update":
      return tracks.with(at, changed);
    case "clone":
      return [...tracks, changed];
    default:
      throw new CatalogError(path, `operation “${String(op)}” is none of add, remove, clone, update`);
  }
}

/** How far below the newest a group is that begins anew, and not merely late. */
const ANEW = 1000n;
/** Delta updates kept that wait for those before them. */
const MAX_WAITING = 64;

/** Puts a catalog track's objects together: object 0 of a group is a catalog, those after it change it. */
export class CatalogReader {
  #group = -1n;
  #next = 0n;
  #doc: Json | undefined;
  readonly #waiting = new Map<bigint, Uint8Array>();

  /** Takes an object, in whatever order they come; what the catalog is now, undefined where that did not change. */
  add(group: bigint, id: bigint, payload: Uint8Array): Catalog | undefined {
    if (group < this.#group && group + ANEW > this.#group) return undefined;
    if (group !== this.#group) {
      this.#group = group;
      this.#next = 0n;
      this.#waiting.clear();
    }
    if (id < this.#next || this.#waiting.size >= MAX_WAITING) return undefined;
    this.#waiting.set(id, payload);
    let changed = false;
    for (let p = this.#waiting.get(this.#next); p; p = this.#waiting.get(this.#next)) {
      this.#waiting.delete(this.#next);
      const o = parseObject(p);
      if (this.#next > 0n) this.#doc = applyDelta(this.#doc!, o);
      else this.#doc = o;
      this.#next++;
      changed = true;
    }
    return changed ? readCatalog(this.#doc!) : undefined;
  }
}

function readCatalog(doc: Json): Catalog {
  if (doc["version"] !== "draft-01" && doc["version"] !== "1") throw new CatalogError("$.version", "not supported");
  const inits = new Map<string, string>();
  for (const [i, v] of array(doc["initDataList"] ?? [], "$.initDataList", MAX_TRACKS).entries()) {
    const o = object(v, `$.initDataList[${i}]`);
    if (o["type"] === "inline") inits.set(text(o["id"], `$.initDataList[${i}].id`), text(o["data"], `$.initDataList[${i}].data`));
  }
  const byCamera = new Map<number, CameraTrack[]>();
  let hasPoses = false;
  for (const [i, v] of array(doc["tracks"], "$.tracks", MAX_TRACKS).entries()) {
    const path = `$.tracks[${i}]`;
    const o = object(v, path);
    if (o["packaging"] === "eventtimeline" && o["eventType"] === POSE_EVENT && o["name"] === POSE_TRACK) hasPoses = true;
    // Only the session's own tracks: a catalog that points elsewhere is not followed.
    if (o["packaging"] !== "hcpf" || (o["namespace"] !== undefined && o["namespace"] !== "")) continue;
    const track = pointsTrack(o, path, inits);
    const list = byCamera.get(track.camera);
    if (list) list.push(track);
    else byCamera.set(track.camera, [track]);
  }
  if (byCamera.size > MAX_CAMERAS) throw new CatalogError("$.tracks", `${byCamera.size} cameras, more than ${MAX_CAMERAS}`);
  const qualities = [...byCamera.values()].sort((a, b) => a[0]!.camera - b[0]!.camera);
  for (const list of qualities) list.sort((a, b) => b.bitrate - a.bitrate);
  return { cameras: qualities.map((list) => list[0]!), qualities, complete: doc["isComplete"] === true, hasPoses };
}

function timeline(v: unknown, path: string): Timeline | undefined {
  if (v === undefined) return undefined;
  const list = array(v, path, 6);
  if (list.length !== 6) throw new CatalogError(path, `${list.length} values, wants 6`);
  const [group] = numbers(list[2], `${path}[2]`, 2);
  const [groupStep] = numbers(list[3], `${path}[3]`, 2);
  const t = {
    media: number(list[0], `${path}[0]`, 0, Number.MAX_SAFE_INTEGER),
    mediaStep: number(list[1], `${path}[1]`, 0, Number.MAX_SAFE_INTEGER),
    group: integer(group, `${path}[2][0]`, 0, Number.MAX_SAFE_INTEGER),
    groupStep: integer(groupStep, `${path}[3][0]`, 0, Number.MAX_SAFE_INTEGER),
    wallclock: number(list[4], `${path}[4]`, 0, Number.MAX_SAFE_INTEGER),
  };
  return t.mediaStep > 0 && t.groupStep > 0 ? t : undefined;
}

function pointsTrack(o: Json, path: string, inits: ReadonlyMap<string, string>): CameraTrack {
  const p = object(o["hcpf"], `${path}.hcpf`);
  const layout = p["layout"];
  if (layout !== "A" && layout !== "B" && layout !== "C") throw new CatalogError(`${path}.hcpf.layout`, "none of A, B, C");
  const ref = text(o["initRef"], `${path}.initRef`);
  const data = inits.get(ref);
  if (data === undefined) throw new CatalogError(`${path}.initRef`, "no inline initialization data of that id");
  const init = object(decodeBase64(data, `${path}.initRef`), `${path}.initRef`);
  const grid = intrinsics(init["grid"], `${path}.initRef.grid`);
  if (layout === "A") {
    if (grid.width > MAX_GRID || grid.height > MAX_GRID) throw new CatalogError(`${path}.initRef.grid`, `more than ${MAX_GRID} pixels a side`);
    if (o["width"] !== grid.width || o["height"] !== grid.height) throw new CatalogError(`${path}.width`, "not that of the grid's lens");
  }
  const descriptions = integer(p["descriptions"], `${path}.hcpf.descriptions`, 1, 4);
  if (descriptions !== 1 && descriptions !== 4) throw new CatalogError(`${path}.hcpf.descriptions`, "neither 1 nor 4");
  return {
    track: text(o["name"], `${path}.name`),
    camera: integer(p["camera"], `${path}.hcpf.camera`, 0, 65535),
    name: typeof p["cameraName"] === "string" ? p["cameraName"] : "",
    quality: typeof p["quality"] === "string" ? p["quality"] : "",
    layout,
    descriptions,
    maxPoints: integer(p["maxPoints"], `${path}.hcpf.maxPoints`, 1, MAX_POINTS),
    deliveryTimeout: integer(p["deliveryTimeout"] ?? 0, `${path}.hcpf.deliveryTimeout`, 0, 0x7fffffff),
    framerate: o["framerate"] === undefined ? 0 : number(o["framerate"], `${path}.framerate`, 0, 1000),
    grid,
    pose: transform(init["pose"], `${path}.initRef.pose`),
    bitrate: o["bitrate"] === undefined ? 0 : number(o["bitrate"], `${path}.bitrate`, 0, Number.MAX_SAFE_INTEGER),
    duration: o["isLive"] === false && o["trackDuration"] !== undefined ? number(o["trackDuration"], `${path}.trackDuration`, 0, Number.MAX_SAFE_INTEGER) : 0,
    timeline: timeline(o["template"], `${path}.template`),
  };
}

/** A record of the pose track: a camera has moved. */
export interface PoseEvent {
  readonly camera: number;
  readonly pose: Transform;
}

export function parsePoses(payload: Uint8Array): PoseEvent[] {
  const doc: unknown = JSON.parse(new TextDecoder().decode(payload));
  return array(doc, "poses", 1 << 16).map((v, i) => {
    const data = object(object(v, `poses[${i}]`)["data"], `poses[${i}].data`);
    return { camera: integer(data["camera"], `poses[${i}].data.camera`, 0, 65535), pose: transform(data["pose"], `poses[${i}].data.pose`) };
  });
}
