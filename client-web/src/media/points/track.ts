/** The catalog's point-cloud tracks (packaging "hcpf") and the pose track. */
import { initData, type Catalog, type Timeline, type Track } from "../session/catalog.ts";
import { array, CatalogError, integer, number, numbers, object, parse } from "../session/json.ts";
import { formOf, isChained, isLayout, layouts, type Layout } from "./layout.ts";
import type { Intrinsics } from "./rays.ts";

/** A rigid transform p' = R·p + T. r is row-major; t is in millimetres. */
export interface Transform {
  readonly r: readonly number[];
  readonly t: readonly number[];
}

/** One camera's point-cloud track. */
export interface CameraTrack {
  readonly track: string;
  /** Camera number in the session, as in the frame header. */
  readonly camera: number;
  readonly name: string;
  readonly quality: string;
  readonly layout: Layout;
  readonly descriptions: number;
  readonly maxPoints: number;
  /** Milliseconds; 0 = none. */
  readonly deliveryTimeout: number;
  /** True if frames are sent in datagrams, false if on streams. */
  readonly datagrams: boolean;
  readonly framerate: number;
  /** Intrinsics of the frame's pixel grid. */
  readonly grid: Intrinsics;
  /** From the grid's camera coordinates to the studio's. */
  readonly pose: Transform;
  /** Maximum, bits per second; 0 = unknown. */
  readonly bitrate: number;
  /** Mean squared error of the rendered picture against the best quality, in 8-bit levels; undefined if unknown. */
  readonly error: number | undefined;
  /** Root mean square error that coding with loss adds to depth, mm; undefined if unknown. Changes over time. */
  readonly depthError: number | undefined;
  /** Duration of a recorded track, ms; 0 = live or unknown. */
  readonly duration: number;
  /** Media time of the track's groups, if linear. */
  readonly timeline: Timeline | undefined;
}

/** The point clouds in a catalog. */
export interface Cameras {
  /** Each camera's tracks, best first, ordered by camera number. */
  readonly qualities: readonly (readonly CameraTrack[])[];
  readonly hasPoses: boolean;
}

const PACKAGING = "hcpf";
const MAX_POINTS = 4096 * 3072;
const MAX_SIDE = 65535;
const MAX_GRID = 4096;
const MAX_ERROR = 65025; // 255²
const MAX_DEPTH = 65535; // mm
/** Stands for the missing lens of a merged cloud. */
const NOMINAL: Intrinsics = { width: 1, height: 1, fx: 500, fy: 500, cx: 0, cy: 0, k: [0, 0, 0, 0, 0, 0], p: [0, 0] };
/** True if the track is a cloud without a camera, such as LiveScan3D's merged points. */
export const isMerged = (t: CameraTrack): boolean => t.grid.width === NOMINAL.width;
const IDENTITY: Transform = { r: [1, 0, 0, 0, 1, 0, 0, 0, 1], t: [0, 0, 0] };
/** Maximum number of cameras. */
const MAX_CAMERAS = 64;
export const POSE_TRACK = "pose";
const POSE_EVENT = "dev.holocast.pose/v1";

/** Reads a catalog's point-cloud tracks. Throws a CatalogError. */
export function readCameras(catalog: Catalog): Cameras {
  const byCamera = new Map<number, CameraTrack[]>();
  let hasPoses = false;
  for (const t of catalog.tracks) {
    if ((t.packaging === PACKAGING) !== (t.fields["hcpf"] != null))
      throw new CatalogError(`${t.path}.hcpf`, `missing or not allowed, packaging is “${t.packaging}”`);
    // Ignore tracks of other namespaces.
    if (t.namespace !== "") continue;
    if (t.eventType === POSE_EVENT && t.name === POSE_TRACK) hasPoses = true;
    if (t.packaging !== PACKAGING) continue;
    const track = readCamera(catalog, t);
    const list = byCamera.get(track.camera);
    if (list) list.push(track);
    else byCamera.set(track.camera, [track]);
  }
  if (byCamera.size > MAX_CAMERAS)
    throw new CatalogError("$.tracks", `${byCamera.size} cameras, more than ${MAX_CAMERAS}`);
  const qualities = [...byCamera.values()].sort((a, b) => a[0]!.camera - b[0]!.camera);
  for (const list of qualities) list.sort((a, b) => b.maxPoints - a.maxPoints || b.bitrate - a.bitrate);
  return { qualities, hasPoses };
}

function readCamera(catalog: Catalog, t: Track): CameraTrack {
  const path = `${t.path}.hcpf`;
  const p = object(t.fields["hcpf"], path);
  const word = (field: string): string => (typeof p[field] === "string" ? p[field] : "");
  const camera = integer(p["camera"] ?? 0, `${path}.camera`, 0, 65535);
  const layout = p["layout"];
  if (!isLayout(layout)) throw new CatalogError(`${path}.layout`, `none of ${Object.keys(layouts).join(", ")}`);
  const descriptions = integer(p["descriptions"] ?? 0, `${path}.descriptions`, 0, 255);
  if (!layouts[layout].descriptions.includes(descriptions))
    throw new CatalogError(`${path}.descriptions`, `not ${layouts[layout].descriptions.join(" or ")}`);
  const maxPoints = integer(p["maxPoints"] ?? 0, `${path}.maxPoints`, 1, MAX_POINTS);
  const deliveryTimeout = integer(p["deliveryTimeout"] ?? 0, `${path}.deliveryTimeout`, 0, 0x7fffffff);
  const delivery = p["delivery"] ?? "";
  if (delivery !== "" && delivery !== "stream" && delivery !== "datagram")
    throw new CatalogError(`${path}.delivery`, "neither stream nor datagram");
  if (delivery === "datagram" && isChained(layout))
    throw new CatalogError(`${path}.delivery`, `layout ${layout} needs streams`);
  const onGrid = formOf(layout) === "pixels";
  if (onGrid && (t.width < 1 || t.height < 1 || t.width > MAX_GRID || t.height > MAX_GRID)) {
    throw new CatalogError(
      `${path}.layout`,
      `layout ${layout} needs width and height in 1…${MAX_GRID}, not ${t.width}×${t.height}`,
    );
  }
  const about = {
    track: t.name,
    camera,
    name: word("cameraName"),
    quality: word("quality"),
    layout,
    descriptions,
    maxPoints,
    deliveryTimeout,
    datagrams: delivery === "datagram",
    framerate: t.framerate,
    bitrate: t.bitrate,
    error: p["error"] === undefined ? undefined : number(p["error"], `${path}.error`, 0, MAX_ERROR),
    depthError: p["depthError"] === undefined ? undefined : number(p["depthError"], `${path}.depthError`, 0, MAX_DEPTH),
    duration: t.duration,
    timeline: t.timeline,
  };
  if (t.initRef === "") {
    if (onGrid) throw new CatalogError(`${path}.layout`, `layout ${layout} needs an initRef to the camera's geometry`);
    return { ...about, grid: NOMINAL, pose: IDENTITY };
  }
  const { path: at, value: init } = initData(catalog, t);
  const grid = intrinsics(init["grid"], `${at}.grid`);
  if (onGrid && (t.width !== grid.width || t.height !== grid.height))
    throw new CatalogError(`${at}.grid`, `${grid.width}×${grid.height} pixels, the track has ${t.width}×${t.height}`);
  const pose = transform(init["pose"], `${at}.pose`);
  const depth = (field: string) => integer(init[field] ?? 0, `${at}.${field}`, 0, 65535);
  if (depth("depthMin") > depth("depthMax")) throw new CatalogError(`${at}.depthMin`, "beyond depthMax");
  return { ...about, grid, pose };
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

function transform(v: unknown, path: string): Transform {
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

/** True if two tracks differ at most in their pose. */
export function sameTrack(a: CameraTrack, b: CameraTrack): boolean {
  const lasting = (t: CameraTrack): string => JSON.stringify({ ...t, pose: undefined, depthError: undefined });
  return lasting(a) === lasting(b);
}

export function samePose(a: Transform, b: Transform): boolean {
  return JSON.stringify([a.r, a.t]) === JSON.stringify([b.r, b.t]);
}

/** A record of the pose track, sent when a camera was moved. */
export interface PoseEvent {
  readonly camera: number;
  readonly pose: Transform;
}

export function parsePoses(payload: Uint8Array): PoseEvent[] {
  // Earlier versions of the publisher end the track with null.
  return array(parse(payload, "poses") ?? [], "poses", 1 << 16).map((v, i) => {
    const event = object(v, `poses[${i}]`);
    integer(event["T"] ?? 0, `poses[${i}].T`, -Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
    const data = object(event["data"], `poses[${i}].data`);
    return {
      camera: integer(data["camera"] ?? 0, `poses[${i}].data.camera`, 0, 65535),
      pose: transform(data["pose"], `poses[${i}].data.pose`),
    };
  });
}
