/** Tile selection within the limits of decoders and GPU. */
import { afterEach, describe, expect, it, vi } from "vitest";
import { parseCatalog } from "../../src/media/session/catalog.ts";
import type { Host } from "../../src/media/session/medium.ts";
import { Tiles } from "../../src/media/tiles/medium.ts";
import type { FromTiles } from "../../src/media/tiles/messages.ts";
import type { TrackSink } from "../../src/moqt/index.ts";

const [COLUMNS, ROWS] = [8, 4];
const catalog = (codec = "avc1.42c01e") => {
  const common = { packaging: "loc", isLive: true, renderGroup: 2, codec, framerate: 30, maxGopDuration: 1000 };
  const tile = (t: number) => ({
    ...common, name: `tiles/${t}/0`, role: "tile", width: 16, height: 16, bitrate: 1000,
    hctile: { tile: t, quality: 0, x: 16 * (t % COLUMNS), y: 16 * Math.floor(t / COLUMNS), width: 16, height: 16 },
  });
  const hcsphere = {
    projection: "equirectangular", stereo: "mono", width: 16 * COLUMNS, height: 16 * ROWS, columns: COLUMNS, rows: ROWS,
    qualities: 1,
  };
  const video = { ...common, name: "video", role: "video", targetLatency: 1000, width: 480, height: 240, hcsphere };
  const tracks = [video, ...Array.from({ length: COLUMNS * ROWS }, (_, t) => tile(t))];
  return parseCatalog(new TextEncoder().encode(JSON.stringify({ version: "draft-01", generatedAt: 1, tracks })));
};

/** A medium in a simulated session. */
class Lab {
  readonly subscribed = new Set<string>();
  settled = 0;
  base: TrackSink | undefined;
  readonly sent: FromTiles[] = [];
  readonly posted: { type: string; tile?: number }[] = [];
  readonly port = { postMessage: (m: { type: string }) => void this.posted.push(m), onmessage: (_: object) => {} };
  readonly tiles: Tiles;

  constructor() {
    const session = {
      over: false,
      subscribe: async ({ name }: { name: string }, sink: TrackSink) => {
        this.subscribed.add(name);
        if (name === "video") this.base = sink;
        const cancel = () => void this.subscribed.delete(name);
        const update = (o: { end?: bigint }) => o.end !== undefined && cancel();
        return { done: new Promise(() => {}), cancel, update };
      },
    };
    const host = {
      session, live: true, loops: false, rtt: 1, offset: 0, received: () => {}, settle: () => void this.settled++,
      track: (name: string) => ({ namespace: [], name }),
    };
    this.tiles = new Tiles(
      host as unknown as Host,
      () => this.port as unknown as MessagePort,
      1e9,
      (m) => void this.sent.push(m),
    );
  }

  async open(codec?: string): Promise<void> {
    this.tiles.prepare(catalog(codec))();
    this.tiles.follow();
    await vi.advanceTimersByTimeAsync(0);
  }

  /** Receives the start of a GoP, and waits for the choice of the next one's tiles. */
  async gop(group: number): Promise<number[]> {
    const timestamp = 1000n * BigInt(Math.round(performance.timeOrigin + performance.now()));
    const other = new Map([[0x10, timestamp]]);
    this.base!.object!({
      group: BigInt(group), subgroup: 0n, id: 0n, status: "normal", properties: { other }, payload: new Uint8Array(99),
    } as never);
    await vi.advanceTimersByTimeAsync(999);
    return this.requested;
  }

  /** Looks in a direction. */
  async look(x: number, z: number): Promise<number[]> {
    this.tiles.take({ type: "gaze", gaze: [x, 0, z], width: 1.6, height: 1 });
    await vi.advanceTimersByTimeAsync(0);
    return this.requested;
  }

  get requested(): number[] {
    return [...this.subscribed].flatMap((n) => (n.startsWith("tiles/") ? [Number(n.split("/")[1])] : []));
  }
}

const decodes = (isConfigSupported: (c: object) => Promise<object>) =>
  vi.stubGlobal("VideoDecoder", { isConfigSupported });

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

describe("360° video in a browser that cannot decode it", () => {
  it.each([
    ["without WebCodecs", () => {}, /no WebCodecs/],
    ["without the codec", () => decodes(async () => ({ supported: false })), /does not decode.*avc1\.42c01e, 480×240/],
    ["that refuses to say", () => decodes(() => Promise.reject(new TypeError("no"))), /does not decode/],
  ] as const)("%s fetches nothing", async (_, browser, why) => {
    vi.useFakeTimers();
    browser();
    const lab = new Lab();
    await lab.open();
    lab.tiles.follow();
    expect([...lab.subscribed]).toEqual([]);
    expect(lab.tiles.unplayable).toMatch(why);
    expect([lab.tiles.present, lab.settled]).toEqual([false, 1]);
    expect(lab.sent.filter((m) => m.type === "sphere").at(-1)).toEqual({ type: "sphere", sphere: undefined });
    await lab.open();
    expect(lab.subscribed.size).toBe(0); // another version of the catalog
  });

  it("plays it once the codec is another one", async () => {
    vi.useFakeTimers();
    decodes(async (c) => ({ supported: (c as { codec: string }).codec.startsWith("avc1") }));
    const lab = new Lab();
    await lab.open("hvc1.1.6.L93.B0");
    expect(lab.subscribed.size).toBe(0);
    await lab.open();
    expect([...lab.subscribed]).toEqual(["video"]);
    expect([lab.tiles.unplayable, lab.tiles.present]).toEqual([undefined, true]);
  });
});

describe("the number of tiles", () => {
  const start = async () => {
    vi.useFakeTimers();
    decodes(async () => ({ supported: true }));
    const lab = new Lab();
    await lab.open();
    expect(await lab.gop(1)).toEqual([]); // the page has not reported how many tiles the GPU can show
    lab.tiles.take({ type: "fit", tiles: 99 });
    await lab.look(0, 1);
    return lab;
  };
  const front = [11, 12, 19, 20]; // around the centre

  it("is only limited by the view", async () => {
    const lab = await start();
    expect((await lab.gop(2)).length).toBeGreaterThan(4);
  });

  it("is at most that of decoders, the best first", async () => {
    const lab = await start();
    lab.port.onmessage({ data: 4 });
    expect((await lab.gop(2)).sort((a, b) => a - b)).toEqual(front);
    await lab.look(0, -1);
    const behind = lab.requested;
    expect(behind).toHaveLength(4);
    expect(behind.some((t) => front.includes(t))).toBe(false);
    const released = lab.posted.filter((m) => m.type === "release").map((m) => m.tile);
    expect(front.every((t) => released.includes(t))).toBe(true);
  });

  it("is at most the GPU's", async () => {
    const lab = await start();
    lab.tiles.take({ type: "fit", tiles: 2 });
    expect(await lab.gop(2)).toHaveLength(2);
    lab.tiles.take({ type: "fit", tiles: 0 });
    expect(await lab.gop(3)).toEqual([]);
    expect(await lab.look(0, -1)).toEqual([]);
  });
});
