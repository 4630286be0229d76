/** Tests catalogs with the vectors of internal/catalog. */
import { readFileSync } from "node:fs";
import { beforeAll, describe, expect, it, vi } from "vitest";
import { parsePoses, readCameras } from "../../src/media/points/track.ts";
import { readSounds } from "../../src/media/sound/track.ts";
import { readSphere } from "../../src/media/tiles/track.ts";
import {
  CatalogError,
  CatalogReader,
  decompress,
  parseCatalog,
  type Catalog,
} from "../../src/media/session/catalog.ts";

/** A document, text that is not JSON, or a gzip stream in base64. */
type Payload = { readonly text: string } | { readonly gzip: string } | { readonly deltaUpdate?: unknown };
interface Vectors {
  readonly valid: readonly { readonly name: string; readonly objects: readonly Payload[]; readonly want: object }[];
  readonly invalid: readonly { readonly name: string; readonly objects: readonly Payload[]; readonly error: string }[];
  readonly poses: readonly {
    readonly name: string;
    readonly text: string;
    readonly want?: object[];
    readonly error?: string;
  }[];
}
const vectors = JSON.parse(
  readFileSync(new URL("../../../internal/catalog/testdata/vectors.json", import.meta.url), "utf8"),
) as Vectors;
const encoder = new TextEncoder();

/** Reads the objects of a catalog track; independent catalogs start groups. */
async function read(objects: readonly Payload[]): Promise<Catalog> {
  const reader = new CatalogReader();
  let group = 0n;
  let id = 0n;
  let catalog: Catalog | undefined;
  for (const o of objects) {
    const payload =
      "gzip" in o
        ? Uint8Array.from(atob(o.gzip), (c) => c.charCodeAt(0))
        : encoder.encode("text" in o ? o.text : JSON.stringify(o));
    const plain = await decompress(payload, "gzip" in o ? 1 : 0);
    const delta = new TextDecoder().decode(plain).includes('"deltaUpdate"');
    if (!delta || group === 0n) [group, id] = [group + 1n, 0n];
    catalog = reader.add(group, id++, plain)!;
    readCameras(catalog);
    readSphere(catalog);
    readSounds(catalog);
  }
  return catalog!;
}

const inside = (path: string, outer: string): boolean =>
  path === outer || path.startsWith(`${outer}.`) || path.startsWith(`${outer}[`);

describe("catalog vectors", () => {
  // Without it, the viewer reads no sound.
  beforeAll(() => {
    vi.stubGlobal("AudioDecoder", class {});
    return () => vi.unstubAllGlobals();
  });
  it.each(vectors.valid)("takes: $name", async ({ objects, want }) => {
    const catalog = await read(objects);
    const { qualities, hasPoses } = readCameras(catalog);
    const cameras = qualities.map((list) =>
      list.map(({ grid, pose, timeline, datagrams, ...rest }) => ({
        ...rest,
        ...(datagrams && { datagrams }),
        timeline: timeline ?? null,
        grid: grid.width === 1 ? null : [grid.width, grid.height],
        pose: pose.t,
      })),
    );
    const s = readSphere(catalog);
    const sphere = s && {
      video: s.video.track,
      stereo: s.stereo,
      width: s.width,
      height: s.height,
      columns: s.columns,
      rows: s.rows,
      qualities: s.qualities,
      yaw: s.yaw,
      tiles: s.tiles.flat().map((t) => t.track),
      rates: s.rates !== undefined,
    };
    const sounds = readSounds(catalog).flatMap(({ track, codec, channels, microphone }) =>
      microphone ? [{ track, codec, channels, name: microphone.name, position: microphone.position ?? null }] : [],
    );
    expect({
      complete: catalog.complete,
      tracks: catalog.tracks.map((t) => t.name),
      cameras,
      poses: hasPoses,
      ...(sphere && { sphere }),
      ...(sounds.length > 0 && { sounds }),
    }).toEqual(want);
  });
  it.each(vectors.invalid)("refuses: $name", async ({ objects, error }) => {
    if (objects.length > 1) await read(objects.slice(0, -1));
    const e = await read(objects).then(() => undefined, (e: unknown) => e);
    expect(e).toBeInstanceOf(CatalogError);
    expect((e as CatalogError).path).toSatisfy((path: string) => inside(path, error), error);
  });
  it.each(vectors.poses)("reads poses: $name", ({ text, want, error }) => {
    let e: unknown;
    try {
      expect(parsePoses(encoder.encode(text)).map(({ camera, pose }) => ({ camera, t: pose.t }))).toEqual(want);
    } catch (thrown) {
      if (!(thrown instanceof CatalogError)) throw thrown;
      e = thrown.path;
    }
    if (error === undefined) expect(e).toBeUndefined();
    else expect(e).toSatisfy((path: string) => inside(path, error), error);
  });
});

describe("catalog", () => {
  it.each(["[".repeat(100000), " ".repeat((1 << 20) + 1)])("refuses what is no catalog: %.10s", (text) => {
    expect(() => parseCatalog(encoder.encode(text))).toThrow(CatalogError);
  });
  it("refuses an unknown compression", async () => {
    await expect(decompress(encoder.encode("{}"), 2)).rejects.toThrow(/MSF_COMPRESSION 2/);
  });
});
