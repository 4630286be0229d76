import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { beforeAll, describe, expect, it } from "vitest";
import { FrameDecoder, type Frame } from "../../src/media/points/frame.ts";
import { FrameError, type Header } from "../../src/media/points/header.ts";
import { rayTable, type Intrinsics } from "../../src/media/points/rays.ts";
import { Zstd } from "../../src/media/points/zstd.ts";

const testdata = new URL("../../../internal/pointcloud/testdata/", import.meta.url);
const read = (name: string): Uint8Array => new Uint8Array(readFileSync(new URL(name, testdata)));

interface Valid {
  name: string;
  objects: string[];
  expected: string;
  header: Omit<Header, "deviceTime" | "captureTime" | "rawLength"> & { deviceTime: string; captureTime: string };
}
interface Invalid {
  name: string;
  objects: string[];
  error: string;
}
const manifest = JSON.parse(new TextDecoder().decode(read("manifest.json"))) as { valid: Valid[]; invalid: Invalid[] };
const limits = { maxPoints: 4096 * 4096 };

let decoder: FrameDecoder;
beforeAll(async () => {
  const wasm = (name: string) => readFileSync(new URL(`../../src/media/points/${name}`, import.meta.url));
  decoder = await FrameDecoder.create(wasm("planes.wasm"), await Zstd.create(wasm("zstd.wasm")));
});

/** Converts a frame to the vectors' form, with a depth plane or coordinates, and colours. */
function expand(f: Frame): Uint8Array {
  const n = f.points;
  const w = f.words;
  if (f.form === "pixels") {
    const pixels = f.header.width * f.header.height;
    const out = new Uint8Array(5 * pixels);
    for (let k = 0; k < n; k++) {
      const i = ((w[2 * k]! >>> 12) & 0xfff) * f.header.width + (w[2 * k]! & 0xfff);
      out[2 * i] = w[2 * k + 1]!;
      out[2 * i + 1] = w[2 * k + 1]! >>> 8;
      out.set([w[2 * k]! >>> 24, w[2 * k + 1]! >>> 16, w[2 * k + 1]! >>> 24], 2 * pixels + 3 * i);
    }
    return out;
  }
  const out = new Uint8Array(9 * n);
  for (let k = 0; k < n; k++) {
    const [xy, zrg, b] = [w[3 * k]!, w[3 * k + 1]!, w[3 * k + 2]!];
    out.set([xy, xy >>> 8, xy >>> 16, xy >>> 24, zrg, zrg >>> 8], 6 * k);
    out.set([zrg >>> 16, zrg >>> 24, b], 6 * n + 3 * k);
  }
  return out;
}

describe("point-cloud frame vectors", () => {
  it.each(manifest.valid)("$name decodes to its frame", ({ objects, expected, header }) => {
    // In layouts B and C, a frame is the union of its objects' points.
    const f = decoder.decode(objects.map(read), limits);
    expect(Buffer.compare(expand(f), read(expected))).toBe(0);
    const { deviceTime, captureTime, points, ...rest } = header;
    expect(f.header).toMatchObject({ ...rest, deviceTime: BigInt(deviceTime), captureTime: BigInt(captureTime) });
    expect(f.points).toBe(points);
  });

  it.each(manifest.invalid)("refuses $objects: $error", ({ objects, error }) => {
    let part = "";
    try {
      decoder.decode(objects.map(read), limits);
    } catch (e) {
      if (!(e instanceof FrameError)) throw e;
      part = e.part;
    }
    expect(part).toBe(error);
  });

  it("enforces the track's limits", () => {
    const object = read("full-a1.hcpf");
    expect(() => decoder.decode([object], { maxPoints: 0 })).toThrow(/points: 1, the track has at most 0/);
    expect(() => decoder.decode([object], { maxPoints: 10, width: 640, height: 576 })).toThrow(
      /1×1, the track has 640×576/,
    );
  });

  it("survives every flipped bit of a small object", () => {
    const object = read("checkerboard-a1.hcpf");
    let decoded = 0;
    for (let bit = 0; bit < 8 * object.length; bit++) {
      const damaged = object.slice();
      damaged[bit >> 3]! ^= 1 << (bit & 7);
      try {
        decoder.decode([damaged], { maxPoints: 1000 });
        decoded++;
      } catch (e) {
        if (!(e instanceof FrameError)) throw e;
      }
    }
    expect(decoded).toBeGreaterThan(0); // times and sequence number may have any value
  });
});

describe("ray table", () => {
  it("equals the capture server's bit by bit", () => {
    const vector = JSON.parse(
      readFileSync(new URL("../../../internal/camera/testdata/raytable.json", import.meta.url), "utf8"),
    ) as {
      intrinsics: Intrinsics;
      withoutRays: number;
      sha256: string;
    };
    const table = rayTable(vector.intrinsics);
    const n = table.length / 2;
    const bytes = new DataView(new ArrayBuffer(8 * n));
    let without = 0;
    for (let i = 0; i < n; i++) {
      if (Number.isNaN(table[2 * i])) {
        without++;
        bytes.setUint32(4 * i, 0x7fc00000, true);
      } else {
        bytes.setFloat32(4 * i, table[2 * i]!, true);
      }
      bytes.setFloat32(4 * (n + i), table[2 * i + 1]!, true);
    }
    expect(without).toBe(vector.withoutRays);
    expect(createHash("sha256").update(new Uint8Array(bytes.buffer)).digest("hex")).toBe(vector.sha256);
  });
});
