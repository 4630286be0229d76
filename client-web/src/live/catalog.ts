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
}

export interface Catalog {
  readonly cameras: readonly CameraTrack[];
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

/** Reads an independent catalog (MSF §5.1). */
export function parseCatalog(payload: Uint8Array): Catalog {
  if (payload.length > MAX_CATALOG) throw new CatalogError("$", `${payload.length} bytes, more than ${MAX_CATALOG}`);
  let doc: Json;
  try {
    doc = object(JSON.parse(new TextDecoder().decode(payload)), "$");
  } catch (e) {
    if (e instanceof CatalogError) throw e;
    throw new CatalogError("$", e instanceof Error ? e.message : "not JSON");
  }
  if (doc["version"] !== "draft-01" && doc["version"] !== "1") throw new CatalogError("$.version", "not supported");
  const inits = new Map<string, string>();
  for (const [i, v] of array(doc["initDataList"] ?? [], "$.initDataList", MAX_TRACKS).entries()) {
    const o = object(v, `$.initDataList[${i}]`);
    if (o["type"] === "inline") inits.set(text(o["id"], `$.initDataList[${i}].id`), text(o["data"], `$.initDataList[${i}].data`));
  }
  const best = new Map<number, { track: CameraTrack; bitrate: number }>();
  let hasPoses = false;
  for (const [i, v] of array(doc["tracks"], "$.tracks", MAX_TRACKS).entries()) {
    const path = `$.tracks[${i}]`;
    const o = object(v, path);
    if (o["packaging"] === "eventtimeline" && o["eventType"] === POSE_EVENT && o["name"] === POSE_TRACK) hasPoses = true;
    // Only the session's own tracks: a catalog that points elsewhere is not followed.
    if (o["packaging"] !== "hcpf" || (o["namespace"] !== undefined && o["namespace"] !== "")) continue;
    const track = pointsTrack(o, path, inits);
    const bitrate = o["bitrate"] === undefined ? 0 : number(o["bitrate"], `${path}.bitrate`, 0, Number.MAX_SAFE_INTEGER);
    const known = best.get(track.camera);
    if (!known || bitrate > known.bitrate) best.set(track.camera, { track, bitrate });
  }
  if (best.size > MAX_CAMERAS) throw new CatalogError("$.tracks", `${best.size} cameras, more than ${MAX_CAMERAS}`);
  const cameras = [...best.values()].map((b) => b.track).sort((a, b) => a.camera - b.camera);
  return { cameras, complete: doc["isComplete"] === true, hasPoses };
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
