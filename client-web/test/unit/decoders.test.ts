/** Decoders of tiles in a simulated browser that provides few of them. */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Decoders } from "../../src/media/tiles/decoders.ts";
import { BASE } from "../../src/media/tiles/messages.ts";
import type { Sphere } from "../../src/media/tiles/track.ts";

/** Number of decoders that the simulated browser provides, and the ones in use. */
let most = 4;
let inUse = new Set<object>();
/** Tiles whose data are damaged. */
let damaged = new Set<number>();

class FakeDecoder {
  state = "unconfigured";
  decodeQueueSize = 0;
  readonly #callbacks: { output(f: object): void; error(e: Error): void };
  constructor(callbacks: { output(f: object): void; error(e: Error): void }) {
    this.#callbacks = callbacks;
  }
  configure(): void {
    this.state = "configured";
    inUse.add(this);
  }
  decode(chunk: { timestamp: number; data: Uint8Array }): void {
    const fails = [...inUse].indexOf(this) >= most || damaged.has(chunk.data[0]!);
    queueMicrotask(() => {
      if (this.state === "closed") return;
      if (!fails) return this.#callbacks.output({ timestamp: chunk.timestamp });
      this.close();
      this.#callbacks.error(new Error("no decoder, or damage"));
    });
  }
  close(): void {
    this.state = "closed";
    inUse.delete(this);
  }
}

beforeEach(() => {
  most = 4;
  inUse = new Set();
  damaged = new Set();
  vi.stubGlobal("VideoDecoder", FakeDecoder);
  vi.stubGlobal("EncodedVideoChunk", class {
    constructor(init: object) {
      Object.assign(this, init);
    }
  });
});
afterEach(() => void vi.unstubAllGlobals());

const GOP = 1000;
const coding = { track: "", codec: "avc1", config: undefined, width: 16, height: 16 };
const sphere = {
  video: coding,
  framerate: 10,
  tiles: Array.from({ length: 8 }, (_, tile) => [{ ...coding, tile, quality: 0, bitrate: 1 }]),
} as unknown as Sphere;

class Lab {
  now = 0;
  limit: number | undefined;
  pictures = new Map<number, number>();
  readonly decoders = new Decoders({
    picture: (tile) => this.pictures.set(tile, (this.pictures.get(tile) ?? 0) + 1),
    bad: () => {},
    most: (tiles) => (this.limit = tiles),
    now: () => this.now,
  });

  constructor() {
    this.decoders.sphere = sphere;
  }

  /** Receives and decodes a GoP of ten frames; returns the tiles with all of their pictures. */
  async gop(group: number, tiles: readonly number[], moving = true): Promise<number[]> {
    this.pictures.clear();
    for (const tile of tiles) {
      for (let id = 0; id < 10; id++) {
        this.decoders.add({
          type: "chunk", run: 0, tile, quality: 0, group: BigInt(group), id, config: undefined,
          timestamp: 1000 * (group * GOP + id * 100), data: Uint8Array.of(tile),
        });
      }
    }
    for (const end = group * GOP + GOP; this.now < end; this.now += 50) {
      this.decoders.feed(this.now, moving);
      await Promise.resolve();
    }
    return [...this.pictures].flatMap(([tile, n]) => (n === 10 ? [tile] : []));
  }
}

describe("tile decoders", () => {
  it("finds out how many the browser has", async () => {
    const lab = new Lab();
    const all = [BASE, 0, 1, 2, 3, 4, 5, 6, 7];
    await lab.gop(0, all);
    expect(lab.limit).toBe(3);
    expect(await lab.gop(1, all.slice(0, 4))).toEqual([BASE, 0, 1, 2]);
    expect(inUse.size).toBe(4);
  });

  it("reuses decoders of tiles out of view", async () => {
    const lab = new Lab();
    await lab.gop(0, [BASE, 0, 1, 2, 3, 4]);
    await lab.gop(1, [BASE, 0, 1, 2]);
    expect(await lab.gop(2, [BASE, 3, 4, 5])).toEqual([BASE, 3, 4, 5]); // after the ends of 0, 1 and 2
    lab.decoders.release(5); // in mid-GoP
    expect(await lab.gop(3, [BASE, 3, 4, 6])).toEqual([BASE, 3, 4, 6]);
  });

  it("releases unused ones after a moment, but not while paused", async () => {
    const lab = new Lab();
    most = Infinity;
    await lab.gop(0, [BASE, 0, 1, 2, 3, 4, 5]);
    await lab.gop(1, [BASE, 0], false);
    expect(inUse.size).toBe(7);
    await lab.gop(2, [BASE, 0]);
    expect(inUse.size).toBe(2);
    expect(lab.limit).toBeUndefined();
  });

  it("tolerates a damaged tile", async () => {
    const lab = new Lab();
    most = Infinity;
    damaged.add(0);
    expect(await lab.gop(0, [BASE, 0, 1, 2])).toEqual([BASE, 1, 2]);
    expect(lab.limit).toBeUndefined();
  });

  it("ignores failures of the base sphere", async () => {
    const lab = new Lab();
    damaged.add(BASE);
    await lab.gop(0, [BASE]);
    await lab.gop(1, [BASE]);
    await lab.gop(2, [BASE]);
    expect(lab.limit).toBeUndefined();
  });

  it("tries another one from time to time", async () => {
    const lab = new Lab();
    await lab.gop(0, [BASE, 0, 1, 2, 3, 4, 5]);
    expect(lab.limit).toBe(3);
    most = 6; // another tab was closed
    for (let g = 1; g <= 61; g++) await lab.gop(g, [BASE]);
    expect(lab.limit).toBe(5);
    expect(await lab.gop(62, [BASE, 0, 1, 2, 3, 4])).toEqual([BASE, 0, 1, 2, 3, 4]);
  });
});
