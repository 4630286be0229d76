/** Layout W without its pictures, which FFmpeg decodes here. The browser tests decode them with WebCodecs. */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { beforeAll, describe, expect, it } from "vitest";
import { FrameError } from "../../src/media/points/header.ts";
import { levelDepths } from "../../src/media/points/levels.ts";
import { codecOf } from "../../src/media/points/pictures.ts";
import { parseVideoObject, VideoFrames, type PlanesFormat } from "../../src/media/points/video.ts";
import { Zstd } from "../../src/media/points/zstd.ts";
import { digestsOf, read, vectors } from "./pointvideo.ts";

const wasm = (name: string) => readFileSync(new URL(`../../src/media/points/${name}`, import.meta.url));
let zstd: Zstd;
beforeAll(async () => {
  zstd = await Zstd.create(wasm("zstd.wasm"));
});

const open = (width: number, height: number, maxPoints = width * height) =>
  VideoFrames.create(wasm("planes.wasm"), zstd, { width, height, maxPoints });

/** The name of the fault that an action reports. */
function fault(action: () => unknown): string {
  try {
    action();
  } catch (e) {
    if (e instanceof FrameError) return e.part;
    throw e;
  }
  return "";
}

/** Decodes access units to I420 pictures. */
function pictures(units: readonly Uint8Array[], size: number): Uint8Array[] {
  const args = ["-v", "error", "-f", "h264", "-i", "pipe:0", "-fps_mode", "passthrough", "-f", "rawvideo", "pipe:1"];
  const { stdout, error } = spawnSync("ffmpeg", args, { input: Buffer.concat(units), maxBuffer: 1 << 28 });
  if (error) throw error;
  expect(stdout.length).toBe(units.length * size);
  return units.map((_, i) => new Uint8Array(stdout.subarray(i * size, (i + 1) * size)));
}

/** Interleaves the chroma planes. */
function nv12(i420: Uint8Array): Uint8Array {
  const quarter = i420.length / 6;
  const out = i420.slice();
  for (let i = 0; i < quarter; i++) {
    out[4 * quarter + 2 * i] = i420[4 * quarter + i]!;
    out[4 * quarter + 2 * i + 1] = i420[5 * quarter + i]!;
  }
  return out;
}

describe("vectors of layout W", () => {
  const formats: [PlanesFormat, (picture: Uint8Array) => Uint8Array][] = [["I420", (p) => p], ["NV12", nv12]];
  describe.each(formats)("%s", (format, convert) => {
    it.each(vectors.valid)("$name decodes to its frames", async ({ width, height, frames }) => {
      const decoder = await open(width, height);
      const objects = frames.map((f) => parseVideoObject(read(f.object)));
      const size = decoder.depth.length;
      const depths = pictures(objects.map((o) => o.depth), size);
      const colors = pictures(objects.map((o) => o.color), size);
      for (const [i, f] of frames.entries()) {
        const { header, index } = decoder.add(read(f.object));
        decoder.depth.set(convert(depths[i]!));
        decoder.color.set(convert(colors[i]!));
        const frame = decoder.frame(format);
        expect({ object: f.object, index, ...digestsOf(frame), sequence: header.sequence, points: frame.points })
          .toEqual(f);
      }
    });
  });

  it.each(vectors.invalid.filter((v) => v.error !== "picture"))("refuses $name: $error", async (v) => {
    const decoder = await open(64, 48);
    const last = v.objects.length - 1;
    for (const name of v.objects.slice(0, last)) decoder.add(read(name));
    expect(fault(() => decoder.add(read(v.objects[last]!)))).toBe(v.error);
    expect(fault(() => decoder.add(read("room-1.hcpf")))).toBe("index");
    expect(fault(() => decoder.add(read("room-0.hcpf")))).toBe("");
    expect(fault(() => decoder.add(read("room-1.hcpf")))).toBe("");
  });

  it("enforces the track's limits", async () => {
    expect(fault(await open(64, 47).then((d) => () => d.add(read("room-0.hcpf"))))).toBe("width");
    expect(fault(await open(64, 48, 100).then((d) => () => d.add(read("room-0.hcpf"))))).toBe("points");
  });

  it("survives every flipped bit of an object", async () => {
    const decoder = await open(33, 17);
    const object = read("odd-0.hcpf");
    const { map } = parseVideoObject(object);
    let decoded = 0;
    for (let bit = 0; bit < 8 * (60 + map.length); bit++) {
      const damaged = object.slice();
      damaged[bit >> 3]! ^= 1 << (bit & 7);
      if (fault(() => (decoder.add(damaged), decoder.frame("I420"))) === "") decoded++;
    }
    expect(decoded).toBeGreaterThan(0); // times and sequence number may have any value
  });

  it("reads the codec of a key frame only", () => {
    const object = (name: string) => parseVideoObject(read(name));
    expect(codecOf(object("room-0.hcpf").depth)).toMatch(/^avc1\.42[0-9a-f]{4}$/);
    for (const name of ["room-1.hcpf", "bad-depth-none.hcpf", "bad-depth-not-idr.hcpf", "bad-depth-no-slice.hcpf"])
      expect(fault(() => codecOf(object(name).depth))).toBe("picture");
  });
});

describe("levels", () => {
  it.each([[1800, 150, 8], [1, 0, 1], [65535, 65535, 128], [1, 65535, 1]])(
    "are the nearest depths: sigma0 %i, sigma2 %i, step %i",
    (sigma0, sigma2, step) => {
      const depths = levelDepths({ sigma0, sigma2, step });
      let v = 0n; // level × 2¹⁶ of each depth, by the specification
      const values = Array.from({ length: 65536 }, (_, z) => {
        const before = v;
        const deviation = BigInt(sigma0) + (BigInt(sigma2) * BigInt(z) * BigInt(z)) / 1000000n;
        v += 1048576000n / (BigInt(step) * deviation);
        return Number(before);
      });
      const away = (z: number, level: number) => Math.abs(values[z]! - 65536 * level);
      for (const level of [0, 1, 2, 219, 220, 221, 1000, 5000, 20000, depths.length - 1]) {
        let best = 1;
        for (let z = 2; z < 65536; z++) if (away(z, level) < away(best, level)) best = z;
        expect(depths[level]).toBe(best);
      }
    },
  );
});
