/** The catalog's 360° video and tile tracks (docs/spec/tiles.md). */
import { configuration, type Catalog, type Timeline, type Track } from "../session/catalog.ts";
import { array, CatalogError, flag, integer, number, object, parse, text } from "../session/json.ts";
import { Grid, type Rect } from "./sphere.ts";

/** Decoder configuration of a track. */
export interface Coding {
  readonly track: string;
  readonly codec: string;
  /** avcC; undefined if every group carries it. */
  readonly config: Uint8Array<ArrayBuffer> | undefined;
  /** Picture size, pixels. */
  readonly width: number;
  readonly height: number;
}

/** Colour space of the decoded samples, as in WebCodecs. */
export type Color = Partial<Pick<VideoColorSpaceInit, "primaries" | "transfer" | "matrix" | "fullRange">>;

export interface TileTrack extends Coding {
  readonly tile: number;
  /** 0 is the worst. */
  readonly quality: number;
  readonly bitrate: number;
}

export interface Sphere {
  readonly video: Coding;
  /** Media time of groups, for a recording. */
  readonly timeline: Timeline | undefined;
  readonly stereo: boolean;
  /** Size, in pixels, of one eye's picture, which is assembled from all tiles. */
  readonly width: number;
  readonly height: number;
  /** 0 without tiles. */
  readonly columns: number;
  readonly rows: number;
  readonly qualities: number;
  /** Rotation of the sphere, degrees. */
  readonly yaw: number;
  readonly pitch: number;
  readonly roll: number;
  /** undefined if it is signalled in the streams. */
  readonly color: Color | undefined;
  readonly framerate: number;
  /** Group interval, and latency from capture to display, ms. */
  readonly gop: number;
  readonly latency: number;
  /** Name of the track that carries rates and distortions. */
  readonly rates: string | undefined;
  /** Tracks of each tile, worst quality first. */
  readonly tiles: readonly (readonly TileTrack[])[];
}

const MAX_TILES = 256;
const MAX_QUALITIES = 8;
const MAX_SIZE = 16384;
const MIN_TILE = 16;
const MAX_PICTURE = 65535;
const RATES_EVENT = "dev.holocast.tiles.rd/v1";
/** Default group interval, ms. */
const GOP = 1000;
const LATENCY = 1000;

/** Reads a catalog's 360° video; undefined if it has none. Throws a CatalogError. */
export function readSphere(catalog: Catalog): Sphere | undefined {
  let video: Track | undefined;
  for (const t of catalog.tracks) {
    if (t.fields["hcsphere"] == null) continue;
    if (video) throw new CatalogError(`${t.path}.hcsphere`, "an earlier track has one, too");
    video = t;
  }
  for (const t of catalog.tracks) {
    if ((t.role === "tile") !== (t.fields["hctile"] != null))
      throw new CatalogError(`${t.path}.hctile`, `missing or not allowed, role is “${t.role}”`);
    if (t.role === "tile" && !video) throw new CatalogError(`${t.path}.hctile`, "no track has hcsphere");
  }
  if (!video) return undefined;
  const path = `${video.path}.hcsphere`;
  const s = object(video.fields["hcsphere"], path);
  const int = (field: string, min: number, max: number) => integer(s[field] ?? 0, `${path}.${field}`, min, max);
  const degrees = (field: string) => number(s[field] ?? 0, `${path}.${field}`, -360, 360);
  if (text(s["projection"] ?? "", `${path}.projection`) !== "equirectangular")
    throw new CatalogError(`${path}.projection`, "not equirectangular");
  if (s["stereo"] !== "mono" && s["stereo"] !== "top-bottom")
    throw new CatalogError(`${path}.stereo`, "none of mono, top-bottom");
  const [width, height] = [int("width", 2, MAX_SIZE), int("height", 2, MAX_SIZE)];
  if (width % 2 !== 0) throw new CatalogError(`${path}.width`, "not even");
  if (height % 2 !== 0) throw new CatalogError(`${path}.height`, "not even");
  const [columns, rows, qualities] = [
    int("columns", 0, MAX_TILES),
    int("rows", 0, MAX_TILES),
    int("qualities", 0, MAX_QUALITIES),
  ];
  if (columns !== 0 || rows !== 0 || qualities !== 0) {
    if (columns < 1 || rows < 1 || columns * rows > MAX_TILES)
      throw new CatalogError(`${path}.columns`, `a grid of ${columns}×${rows} tiles`);
    if (Math.floor(width / columns) < MIN_TILE || Math.floor(height / rows) < MIN_TILE)
      throw new CatalogError(`${path}.columns`, "tiles are too small");
    if (qualities < 1) throw new CatalogError(`${path}.qualities`, "none");
  }
  const stereo = s["stereo"] === "top-bottom";
  const grid = new Grid(Math.max(1, columns), Math.max(1, rows), width, height);
  const tiles: TileTrack[][] = Array.from({ length: columns * rows }, () => []);
  for (const t of catalog.tracks)
    if (t.role === "tile" && t.namespace === "") readTile(catalog, t, grid, qualities, stereo, tiles);
  for (const list of tiles) list.sort((a, b) => a.quality - b.quality);
  const figure = (field: string, otherwise: number) => {
    const v = video.fields[field];
    return typeof v === "number" && v > 0 ? Math.min(v, 60_000) : otherwise;
  };
  return {
    video: coding(catalog, video),
    timeline: video.timeline,
    stereo,
    width,
    height,
    columns,
    rows,
    qualities,
    yaw: degrees("yaw"),
    pitch: degrees("pitch"),
    roll: degrees("roll"),
    color: readColor(s["color"], `${path}.color`),
    framerate: video.framerate || 30,
    gop: figure("maxGopDuration", GOP),
    latency: figure("targetLatency", LATENCY),
    rates: catalog.tracks.find((t) => t.eventType === RATES_EVENT && t.namespace === "")?.name,
    tiles,
  };
}

function readTile(
  catalog: Catalog,
  t: Track,
  grid: Grid,
  qualities: number,
  stereo: boolean,
  tiles: TileTrack[][],
): void {
  const path = `${t.path}.hctile`;
  const o = object(t.fields["hctile"], path);
  const int = (field: string, min: number, max: number) => integer(o[field] ?? 0, `${path}.${field}`, min, max);
  const tile = int("tile", 0, MAX_TILES - 1);
  const quality = int("quality", 0, MAX_QUALITIES - 1);
  if (tile >= tiles.length) throw new CatalogError(`${path}.tile`, `${tile} of ${tiles.length}`);
  if (quality >= qualities) throw new CatalogError(`${path}.quality`, `${quality} of ${qualities}`);
  const want = grid.rect(tile);
  const got: Rect = {
    x: int("x", 0, MAX_SIZE),
    y: int("y", 0, MAX_SIZE),
    width: int("width", 1, MAX_SIZE),
    height: int("height", 1, MAX_SIZE),
  };
  if (got.x !== want.x || got.y !== want.y || got.width !== want.width || got.height !== want.height) {
    throw new CatalogError(`${path}.x`, `not the rectangle of tile ${tile}`);
  }
  if (t.width !== got.width || t.height !== got.height * (stereo ? 2 : 1))
    throw new CatalogError(`${path}.width`, `pictures of ${t.width}×${t.height}`);
  tiles[tile]!.push({ ...coding(catalog, t), tile, quality, bitrate: t.bitrate });
}

const colors = {
  primaries: ["bt709", "bt470bg", "smpte170m"],
  transfer: ["bt709", "smpte170m", "iec61966-2-1"],
  matrix: ["bt709", "bt470bg", "smpte170m"],
} as const;

function readColor(v: unknown, path: string): Color | undefined {
  if (v == null) return undefined;
  const o = object(v, path);
  const known = <K extends keyof typeof colors>(field: K) => {
    if (o[field] == null) return {};
    const name = text(o[field], `${path}.${field}`);
    if (!(colors[field] as readonly string[]).includes(name)) throw new CatalogError(`${path}.${field}`, "not known");
    return { [field]: name };
  };
  return {
    ...known("primaries"),
    ...known("transfer"),
    ...known("matrix"),
    fullRange: o["fullRange"] != null && flag(o["fullRange"], `${path}.fullRange`),
  };
}

function coding(catalog: Catalog, t: Track): Coding {
  if (t.width > MAX_PICTURE || t.height > MAX_PICTURE)
    throw new CatalogError(`${t.path}.width`, `pictures of ${t.width}×${t.height}`);
  return { track: t.name, codec: t.codec, config: configuration(catalog, t), width: t.width, height: t.height };
}

/**
 * Size and distortion of a GoP's tiles, indexed by tile·qualities + quality; 0 bytes = not encoded.
 */
export interface Rates {
  readonly bytes: number[];
  readonly distortion: number[];
  readonly missing: number[];
}

/** Parses a record of rates and distortions. Throws a CatalogError. */
export function parseRates(payload: Uint8Array, s: Sphere): Rates {
  const list = array(parse(payload, "rates"), "rates", 1);
  const data = object(object(list[0], "rates[0]")["data"], "rates[0].data");
  const n = s.columns * s.rows;
  const lists = (field: string) => {
    const all = array(data[field], `rates[0].data.${field}`, n);
    if (all.length !== n) throw new CatalogError(`rates[0].data.${field}`, `${all.length} tiles, want ${n}`);
    return all;
  };
  const figures = (field: string, missing: number) =>
    lists(field).flatMap((v, t) => {
      const path = `rates[0].data.${field}[${t}]`;
      const of = array(v, path, s.qualities);
      if (of.length !== s.qualities) throw new CatalogError(path, `${of.length} qualities, want ${s.qualities}`);
      return of.map((x, q) => (x === null ? missing : number(x, `${path}[${q}]`, 0, Number.MAX_VALUE)));
    });
  return {
    bytes: figures("bytes", 0), distortion: figures("mse", Infinity),
    missing: lists("missing").map((v, t) => number(v, `rates[0].data.missing[${t}]`, 0, Number.MAX_VALUE)),
  };
}
