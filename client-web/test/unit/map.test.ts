/** Layout W's map, against an encoder written from docs/spec/video-frame.md#map. */
import { readFileSync } from "node:fs";
import { beforeAll, describe, expect, it } from "vitest";
import { FrameError } from "../../src/media/points/header.ts";
import { VideoFrames } from "../../src/media/points/video.ts";
import { Zstd } from "../../src/media/points/zstd.ts";

const wasm = (name: string) => readFileSync(new URL(`../../src/media/points/${name}`, import.meta.url));
let zstd: Zstd;
beforeAll(async () => {
  zstd = await Zstd.create(wasm("zstd.wasm"));
});

/** A pseudorandom integer below n. */
class Random {
  constructor(private state: number) {}
  below(n: number): number {
    this.state = (Math.imul(this.state, 1664525) + 1013904223) >>> 0;
    return Math.floor((this.state / 2 ** 32) * n);
  }
}

function encodeMap(map: Uint8Array, before: Uint8Array | undefined, w: number, h: number): number[] {
  const runs: number[] = [];
  const symbols: number[] = [];
  let run = 0;
  const endRun = () => {
    for (; run >= 255; run -= 255) runs.push(255);
    runs.push(run);
    run = 0;
  };
  for (let y = 0; y < h; y++) {
    for (let x = 0; x < w; x++) {
      const at = (dx: number, dy: number, of: Uint8Array) => (x < dx || y < dy ? 0 : of[(y - dy) * w + x - dx]!);
      const [W, N, NW] = [at(1, 0, map), at(0, 1, map), at(1, 1, map)];
      const P = before ? at(0, 0, before) : 0;
      const changed = (dx: number, dy: number) => at(dx, dy, map) !== at(dx, dy, before!);
      const spatial = N !== NW ? N : W;
      const prediction = !before || (changed(1, 0) && changed(0, 1)) ? spatial : P;
      const value = map[y * w + x]!;
      if (value === prediction) {
        run++;
        continue;
      }
      endRun();
      const candidates = [...new Set([0, W, N, P])].filter((v) => v !== prediction);
      const symbol = candidates.indexOf(value);
      symbols.push(symbol >= 0 ? symbol : value + 8);
    }
  }
  endRun();
  return [...runs, ...symbols];
}

/** A zstd frame with one uncompressed block. */
function stored(planes: readonly number[]): number[] {
  const n = planes.length;
  return [0x28, 0xb5, 0x2f, 0xfd, 0xa0, n, n >> 8, n >> 16, 0, (n << 3) | 1, n >> 5, n >> 13, ...planes];
}

function object(planes: readonly number[], points: number, index: number, w: number, h: number) {
  const map = stored(planes);
  const b = new Uint8Array(60 + map.length);
  const v = new DataView(b.buffer);
  b.set([0x48, 0x43, 0x50, 0x46, 1, 4, 2]);
  b[31] = 1;
  v.setUint16(32, w, true);
  v.setUint16(34, h, true);
  v.setUint32(36, points, true);
  v.setUint32(40, planes.length, true);
  v.setUint16(44, 1800, true);
  b[48] = 8;
  v.setUint16(50, index, true);
  v.setUint32(52, map.length, true);
  b.set(map, 60);
  return b;
}

/** The decoded map: the depth of a level in the middle of a segment identifies it. */
function mapOf(d: VideoFrames, w: number, h: number): Uint8Array {
  d.depth.fill(18 + 110);
  const map = new Uint8Array(w * h);
  const { words } = d.frame("I420");
  const depths = [...new Set(Array.from(words).filter((_, k) => k % 2 === 1).map((b) => b & 0xffff))];
  const segments = new Map(depths.map((z) => [z, Math.round((16 * 1000 * z) / (8 * 1800) - 110) / 220]));
  for (let k = 0; k < words.length; k += 2) {
    const [a, b] = [words[k]!, words[k + 1]!];
    map[((a >>> 12) & 0xfff) * w + (a & 0xfff)] = 1 + Math.round(segments.get(b & 0xffff)!);
  }
  return map;
}

const sizes: [number, number][] = [[1, 1], [1, 40], [40, 1], [7, 5], [33, 18], [300, 4]];

describe("map", () => {
  it.each(sizes)("of any content decodes: %i×%i", async (w, h) => {
    const random = new Random(w * 1000 + h);
    const d = await VideoFrames.create(wasm("planes.wasm"), zstd, { width: w, height: h, maxPoints: w * h });
    for (let group = 0; group < 8; group++) {
      const most = [2, 3, 40, 248][group % 4]!;
      let before: Uint8Array | undefined;
      for (let index = 0; index < 6; index++) {
        // A few pixels change, in patches.
        const map: Uint8Array = before?.slice() ?? new Uint8Array(w * h);
        for (let n = random.below(1 + (w * h) / 2); n > 0; n--) {
          const from = random.below(w * h);
          map.fill(random.below(most), from, from + 1 + random.below(w));
        }
        const points = map.filter((m) => m > 0).length;
        d.add(object(encodeMap(map, before, w, h), points, index, w, h));
        expect(mapOf(d, w, h)).toEqual(map);
        before = map;
      }
    }
  });

  it("of random bytes is refused or decodes, and the next key frame decodes", async () => {
    const random = new Random(1);
    const [w, h] = [9, 7];
    const d = await VideoFrames.create(wasm("planes.wasm"), zstd, { width: w, height: h, maxPoints: w * h });
    const blank = object([w * h], 0, 0, w, h);
    let refused = 0;
    for (let n = 0; n < 5000; n++) {
      d.add(blank);
      const planes = Array.from({ length: 1 + random.below(40) }, () => random.below(random.below(4) ? 12 : 256));
      try {
        d.add(object(planes, random.below(w * h + 1), random.below(2), w, h));
      } catch (e) {
        if (!(e instanceof FrameError) || e.part !== "planes") throw e;
        refused++;
      }
    }
    expect(refused).toBeGreaterThan(4000);
    d.add(blank);
    expect(mapOf(d, w, h)).toEqual(new Uint8Array(w * h));
  });
});
