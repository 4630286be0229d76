/** Subscriptions of a session's 360° video. */
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { parseCatalog } from "../../src/media/session/catalog.ts";
import type { Host } from "../../src/media/session/medium.ts";
import { Tiles } from "../../src/media/tiles/medium.ts";
import type { ReceivedObject, Session, Subscription, TrackName, TrackSink } from "../../src/moqt/index.ts";

const loc = { packaging: "loc", isLive: true, renderGroup: 2, targetLatency: 1000, codec: "avc1.42c01e" };
const tile = (t: number) => ({
  ...loc, name: `tiles/${t}/0`, role: "tile", width: 256, height: 256, framerate: 10,
  hctile: { tile: t, quality: 0, x: 256 * t, y: 0, width: 256, height: 256 },
});
const catalog = parseCatalog(new TextEncoder().encode(JSON.stringify({
  version: "draft-01",
  generatedAt: 1,
  tracks: [
    {
      ...loc, name: "video", role: "video", width: 128, height: 64, framerate: 10, maxGopDuration: 1000,
      hcsphere: {
        projection: "equirectangular", stereo: "mono", width: 512, height: 256, columns: 2, rows: 1, qualities: 1,
      },
    },
    {
      name: "rates", packaging: "eventtimeline", isLive: true, eventType: "dev.holocast.tiles.rd/v1",
      depends: ["video"],
    },
    tile(0),
    tile(1),
  ],
})));

/** A SUBSCRIBE that the test answers. */
interface Asked {
  readonly name: string;
  readonly sink: TrackSink;
  cancelled: boolean;
  answer(): Promise<void>;
}

class FakeSession {
  readonly over = false;
  readonly asked: Asked[] = [];

  subscribe(track: TrackName, sink: TrackSink): Promise<Subscription> {
    return new Promise((resolve) => {
      const answer = async () => {
        resolve({ cancel: () => (asked.cancelled = true), done: new Promise(() => {}) } as unknown as Subscription);
        await vi.advanceTimersByTimeAsync(0);
      };
      const asked: Asked = { name: track.name, sink, cancelled: false, answer };
      this.asked.push(asked);
    });
  }

  of(name: RegExp): Asked[] {
    return this.asked.filter((a) => name.test(a.name));
  }
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("VideoDecoder", { isConfigSupported: async () => ({ supported: true }) });
});
afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

it.each(["answered", "unanswered"])("cancels all subscriptions when the page is hidden: %s", async (when) => {
  const session = new FakeSession();
  const host: Host = {
    session: session as unknown as Session, live: true, loops: false, rtt: 0, offset: 0,
    track: (name) => ({ namespace: ["holocast", "x"], name }), received() {}, shown() {}, changed() {}, settle() {},
  };
  const port = { postMessage() {} } as unknown as MessagePort;
  const tiles = new Tiles(host, () => port, Infinity, () => {});
  tiles.prepare(catalog)();
  tiles.take({ type: "fit", tiles: 99 });
  await vi.advanceTimersByTimeAsync(0); // completes the check that the browser can decode the video
  tiles.follow();
  const [video] = session.of(/^video$/);
  await video!.answer();
  const frame = {
    group: 7n, subgroup: 0n, id: 0n, status: "normal", payload: Uint8Array.of(1),
    properties: { other: new Map([[0x10, BigInt(1000 * Date.now())]]) },
  } as unknown as ReceivedObject;
  video!.sink.object(frame);
  await vi.advanceTimersByTimeAsync(2000); // past the choice of tiles for the next group
  expect(session.of(/^tiles/).length).toBeGreaterThan(0);
  expect(session.of(/^rates/)).toHaveLength(1);
  if (when === "answered") for (const a of session.asked) await a.answer();
  tiles.leave();
  for (const a of session.asked) await a.answer();
  expect(session.asked.filter((a) => !a.cancelled).map((a) => a.name)).toEqual([]);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(session.of(/^video$/)).toHaveLength(1);
});
