import { describe, expect, it } from "vitest";
import { VideoPlayback, type Choice, type VideoPlaybackPorts } from "../../src/media/tiles/playback.ts";
import type { Sphere } from "../../src/media/tiles/track.ts";
import type { ReceivedObject, TrackSink } from "../../src/moqt/index.ts";

const tile = (t: number) =>
  [0, 1].map((quality) => ({
    track: `tiles/${t}/${quality}`,
    codec: "",
    config: undefined,
    width: 16,
    height: 16,
    tile: t,
    quality,
    bitrate: 1,
  }));
const line = { media: 0, mediaStep: 1, group: 0, groupStep: 1, wallclock: 1e12 };
const sphere: Sphere = {
  video: { track: "video", codec: "", config: undefined, width: 16, height: 16 },
  timeline: line,
  stereo: false,
  width: 64,
  height: 32,
  columns: 2,
  rows: 1,
  qualities: 2,
  yaw: 0,
  pitch: 0,
  roll: 0,
  color: undefined,
  framerate: 30,
  gop: 1000,
  latency: 1000,
  rates: undefined,
  tiles: [tile(0), tile(1)],
};

const settle = () => new Promise((resolve) => setTimeout(resolve));
const object = (group: number): ReceivedObject =>
  ({
    group: BigInt(group),
    subgroup: 0n,
    id: 0n,
    status: "normal",
    properties: {},
    payload: Uint8Array.of(1),
  }) as unknown as ReceivedObject;

/** A simulated film of 3.5 seconds, whose fetches the test answers. */
class Lab {
  now = 5000;
  drops = 0;
  choice: readonly Choice[] = [{ tile: 1, quality: 1 }, { tile: 0, quality: 0 }];
  readonly taken: string[] = [];
  readonly asked: {
    what: string;
    priority: number;
    sink: TrackSink;
    done(): void;
    fail(e: object): void;
    signal: AbortSignal;
  }[] = [];
  readonly film: VideoPlayback;

  constructor() {
    const ports: VideoPlaybackPorts = {
      choose: () => this.choice,
      turn: (_start, _rates, there, paused) =>
        [0, 1]
          .map((tile) => ({ tile, quality: Number(paused) }))
          .filter((c) => (there.get(c.tile) ?? -1) < c.quality),
      take: (t, quality, o) => void this.taken.push(`${t}/${quality}@${o.group}`),
      drop: () => void this.drops++,
      due: () => {},
      carried: () => {},
      received: () => {},
      now: () => this.now,
    };
    this.film = new VideoPlayback(sphere, line, {
      duration: 3500,
      fetch: (track, first, last, sink, priority, signal) =>
        new Promise((done, fail) => {
          this.asked.push({ what: `${track} ${first}-${last}`, priority, sink, done, fail, signal });
          signal.addEventListener("abort", () => fail(new Error("aborted")));
        }),
    }, ports);
  }

  get open(): string[] {
    return this.asked.map((a) => a.what);
  }

  /** Answers a track's fetch with groups. */
  async answer(track: string, ...groups: number[]): Promise<void> {
    const at = this.asked.findIndex((a) => a.what.startsWith(`${track} `));
    const [a] = this.asked.splice(at, 1);
    for (const g of groups) a!.sink.object(object(g));
    a!.done();
    await settle();
  }
}

describe("a recorded sphere", () => {
  it("fetches GoP by GoP: the one at the position first, base sphere before tiles", async () => {
    const lab = new Lab();
    lab.film.seek(1700);
    lab.film.refill(1700);
    await settle();
    expect(lab.open).toEqual(["video 701-1700"]);
    expect(lab.film.primed).toBe(false);
    await lab.answer("video", 1001);
    expect(lab.film.primed).toBe(true);
    expect(lab.open).toEqual(["tiles/1/1 1001-1001", "tiles/0/0 1001-1001"]);
    expect(lab.asked[0]!.priority).toBeLessThan(lab.asked[1]!.priority);
    await lab.answer("tiles/0/0", 1001);
    lab.film.refill(1700);
    expect(lab.open).toEqual(["tiles/1/1 1001-1001"]); // one GoP after another
    await lab.answer("tiles/1/1", 1001);
    lab.film.refill(1700);
    await settle();
    expect(lab.open).toEqual(["video 1701-2700"]);
    expect(lab.taken).toEqual(["-1/0@1001", "0/0@1001", "1/1@1001"]);
  });

  it("continues without missing tiles, and requests the ones in view again", async () => {
    const lab = new Lab();
    lab.film.seek(0);
    lab.film.refill(0);
    await lab.answer("video", 0);
    lab.film.show(0, true);
    lab.film.refill(700); // close to running dry
    await settle();
    expect(lab.asked.every((a) => a.signal.aborted)).toBe(true);
    lab.asked.length = 0;
    lab.film.turn();
    expect(lab.open).toEqual(["tiles/0/0 0-0", "tiles/1/0 0-0"]);
    lab.film.refill(700);
    await settle();
    expect(lab.open).toContain("video 1000-1999");
  });

  it("fetches the best tiles in view while paused", async () => {
    const lab = new Lab();
    lab.choice = []; // no tile fits an early, low estimate of the capacity
    lab.film.seek(1700);
    lab.film.refill(1700, false);
    await settle();
    await lab.answer("video", 1001);
    expect(lab.open).toEqual(["tiles/0/1 1001-1001", "tiles/1/1 1001-1001"]);
    lab.film.turn();
    expect(lab.open).toHaveLength(2); // not twice
    lab.asked[0]!.fail(new Error("lost"));
    await settle();
    lab.film.turn();
    expect(lab.open.filter((t) => t === "tiles/0/1 1001-1001")).toHaveLength(2); // again
    lab.film.refill(1700, false);
    await settle();
    await lab.answer("video", 2001);
    expect(lab.open.some((t) => t.endsWith("2001-2001"))).toBe(false);
  });

  it("improves tiles when paused in mid-GoP", async () => {
    const lab = new Lab();
    lab.choice = [{ tile: 0, quality: 0 }];
    lab.film.seek(0);
    lab.film.refill(0, true);
    await lab.answer("video", 0);
    await lab.answer("tiles/0/0", 0);
    lab.film.refill(400, false);
    lab.film.turn();
    expect(lab.open.filter((t) => t.startsWith("tiles"))).toEqual(["tiles/0/1 0-0", "tiles/1/1 0-0"]);
  });

  it("waits for tiles while paused", async () => {
    const lab = new Lab();
    lab.film.seek(0);
    lab.film.refill(0);
    await lab.answer("video", 0);
    lab.film.show(0, false);
    lab.film.refill(700);
    await settle();
    expect(lab.asked.some((a) => a.signal.aborted)).toBe(false);
  });

  it("aborts requests from before a seek", async () => {
    const lab = new Lab();
    lab.film.seek(0);
    lab.film.refill(0);
    await settle();
    const [before] = lab.asked;
    lab.film.seek(2500);
    before!.sink.object(object(0));
    expect([lab.taken, lab.drops, before!.signal.aborted]).toEqual([[], 2, true]);
    await settle();
    lab.asked.length = 0;
    lab.film.refill(2500);
    await settle();
    expect(lab.open).toEqual(["video 1501-2500"]);
  });

  it("stops at the end of the recording", async () => {
    const lab = new Lab();
    lab.film.seek(3400);
    lab.film.refill(3400);
    await settle();
    expect(lab.open).toEqual(["video 2401-3400"]);
    lab.choice = [];
    await lab.answer("video", 3000);
    lab.film.refill(3400);
    await settle();
    const end = lab.asked.find((a) => a.what === "video 3401-4400")!;
    end.fail(Object.assign(new Error("beyond"), { invalidRange: true }));
    await settle();
    expect(lab.film.ended).toBe(true);
    expect(lab.taken).toEqual(["-1/0@3000"]);
  });
});
