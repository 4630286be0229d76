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
  tiles: Array.from({ length: 8 }, (_, tile) => [0, 1].map((quality) => ({ ...coding, tile, quality, bitrate: 1 }))),
} as unknown as Sphere;

class Lab {
  now = 0;
  limit: number | undefined;
  pictures = new Map<number, number>();
  qualities: number[] = [];
  readonly decoders = new Decoders({
    picture: (tile, quality) => {
      this.pictures.set(tile, (this.pictures.get(tile) ?? 0) + 1);
      this.qualities.push(quality);
    },
    bad: () => {},
    most: (tiles) => (this.limit = tiles),
    now: () => this.now,
  });

  constructor() {
    this.decoders.sphere = sphere;
  }

  /** Receives the frames of a GoP from ID `from` to before `to`. */
  add(group: number, tile: number, quality: number, to = 10, from = 0): void {
    for (let id = from; id < to; id++) {
      this.decoders.add({
        type: "chunk", run: 0, tile, quality, group: BigInt(group), id, config: undefined,
        timestamp: 1000 * (group * GOP + id * 100), data: Uint8Array.of(tile),
      });
    }
  }

  /** Feeds all decoders until their queues are empty. Returns the pictures' qualities. */
  async feed(now: number, moving: boolean): Promise<number[]> {
    this.qualities = [];
    for (let i = 0; i < 10; i++) {
      this.decoders.feed(now, moving);
      await Promise.resolve();
    }
    return this.qualities;
  }

  /** Receives and decodes a GoP of ten frames; returns the tiles with all of their pictures. */
  async gop(group: number, tiles: readonly number[], moving = true): Promise<number[]> {
    this.pictures.clear();
    for (const tile of tiles) this.add(group, tile, 0);
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

  it("keeps a better quality, and the paused picture", async () => {
    const ten = (quality: number) => Array<number>(10).fill(quality);
    for (const order of [[0, 1], [1, 0]]) {
      const lab = new Lab();
      lab.add(1, 0, 0); // fetched ahead
      for (const quality of order) lab.add(0, 0, quality);
      expect(await lab.feed(900, false)).toEqual(ten(1));
      lab.add(0, 0, 0); // late
      expect(await lab.feed(900, false)).toEqual([]);
      expect(await lab.feed(2000, true)).toEqual(ten(0));
    }
  });

  it("keeps a better quality that arrives slowly while paused", async () => {
    const lab = new Lab();
    lab.add(0, 2, 1, 1);
    expect(await lab.feed(900, false)).toEqual([1]);
    lab.add(0, 2, 0);
    expect(await lab.feed(900, false)).toEqual([]);
    lab.add(0, 2, 1, 10, 1);
    expect(await lab.feed(900, false)).toEqual(Array(9).fill(1));
  });

  it("returns to a group for a better quality when paused at its end", async () => {
    const lab = new Lab();
    lab.add(0, 0, 0);
    lab.add(1, 0, 0);
    await lab.feed(700, true);
    expect(await lab.feed(950, true)).toEqual([0, 0]); // one of the next group
    expect(await lab.feed(950, false)).toEqual([]);
    lab.add(0, 0, 1);
    expect(await lab.feed(950, false)).toEqual(Array(10).fill(1));
    lab.add(0, 0, 0); // late
    expect(await lab.feed(950, false)).toEqual([]);
    await lab.feed(1500, true);
    expect(await lab.feed(1900, true)).toEqual(Array(2).fill(0));
    lab.add(0, 0, 1); // the pause is over
    expect(await lab.feed(1900, false)).toEqual([]);
  });

  it("falls back to a worse quality when the better one ends", async () => {
    const lab = new Lab();
    lab.add(0, 0, 1, 4);
    lab.add(0, 0, 0);
    expect(await lab.feed(200, true)).toEqual([1, 1, 1, 1]);
    expect(await lab.feed(400, true)).toEqual([]);
    expect((await lab.feed(500, true)).length).toBe(8);
    expect(await lab.feed(900, true)).toEqual([0, 0]);
  });

  it("begins the next group in time despite chunks of a worse quality", async () => {
    const lab = new Lab();
    lab.add(0, 0, 1);
    lab.add(0, 0, 0);
    lab.add(1, 0, 1);
    await lab.feed(200, true);
    await lab.feed(700, true);
    expect(await lab.feed(850, true)).toEqual([1]); // the first of the next group
  });

  it("labels each picture with its own quality", async () => {
    const lab = new Lab();
    lab.add(0, 0, 1);
    lab.add(1, 0, 0);
    await lab.feed(0, true);
    expect(await lab.feed(900, true)).toEqual([...Array<number>(7).fill(1), 0, 0]);
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
