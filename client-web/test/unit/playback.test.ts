import { describe, expect, it } from "vitest";
import { readCameras } from "../../src/media/points/track.ts";
import { CatalogReader, type Catalog, type Timeline } from "../../src/media/session/catalog.ts";
import { groupAt, mediaAt, Playback, type PlaybackPorts } from "../../src/media/session/playback.ts";
import { QualityChooser } from "../../src/media/points/quality.ts";
import { clockTime, progress } from "../../src/ui/playbar.ts";

const line: Timeline = { media: 0, mediaStep: 1, group: 0, groupStep: 1, wallclock: 1e12 };

/** A simulated recording with a frame every 40 ms, whose fetches the test answers. */
class Lab {
  time = 5000;
  skipped = 0;
  readonly shown: string[] = [];
  readonly asked: {
    track: string;
    first: number;
    last: number;
    answer(): void;
    fail(e: object): void;
    aborted(): boolean;
  }[] = [];
  readonly playback: Playback;

  constructor(readonly duration = 10_000, cameras = 1) {
    const ports: PlaybackPorts = {
      now: () => this.time,
      skip: () => void this.skipped++,
      show: (track, frame) =>
        void this.shown.push(`${track}:${frame[0]![0]! * 40}${frame.length > 1 ? `x${frame.length}` : ""}`),
      fetch: (track, first, last, object, signal) =>
        new Promise((resolve, reject) => {
          this.asked.push({
            track, first: Number(first), last: Number(last),
            answer: () => {
              for (let g = Math.ceil(Number(first) / 40) * 40; g <= Math.min(Number(last), duration); g += 40)
                object(BigInt(g), Uint8Array.of(g / 40));
              resolve();
            },
            fail: reject, aborted: () => signal.aborted,
          });
        }),
    };
    this.playback = new Playback(duration, ports);
    this.playback.setTracks(new Map(Array.from({ length: cameras }, (_, i) => [`${i}`, { timeline: line }])));
  }

  async answer(): Promise<void> {
    this.asked.shift()!.answer();
    await new Promise((resolve) => setTimeout(resolve));
  }

  /** Advances time in 10 ms steps, optionally answering fetches. */
  async run(ms: number, answered = true): Promise<void> {
    for (const end = this.time + ms; this.time < end; this.time += 10) {
      this.playback.tick();
      if (answered) while (this.asked.length > 0) await this.answer();
    }
  }
}

describe("playback", () => {
  it("shows the frame before the position, and only that while paused", async () => {
    const lab = new Lab();
    lab.playback.seek(1010);
    await lab.run(500);
    expect(lab.shown).toEqual(["0:1000"]);
    expect(lab.playback.position).toBe(1010);
  });
  it("plays all frames in time", async () => {
    const lab = new Lab();
    lab.playback.play();
    await lab.run(2000);
    expect(lab.playback.position).toBeGreaterThan(1950);
    expect(lab.shown.length).toBeGreaterThan(45);
    expect(lab.skipped).toBe(0);
    expect(lab.shown.slice(0, 3)).toEqual(["0:0", "0:40", "0:80"]);
  });
  it("fetches ahead: little at first, and never more than needed", async () => {
    const lab = new Lab();
    lab.playback.seek(5000);
    lab.playback.tick();
    expect(lab.asked[0]).toMatchObject({ first: 4900, last: 5149 });
    await lab.answer();
    lab.playback.tick();
    expect(lab.asked[0]).toMatchObject({ first: 5150, last: 6149 });
    await lab.run(1000);
    expect(lab.asked.length).toBe(0);
  });
  it("waits for missing data and continues", async () => {
    const lab = new Lab();
    lab.playback.play();
    await lab.run(100); // up to 1250
    await lab.run(3000, false);
    expect(lab.playback.waiting).toBe(true);
    const held = lab.playback.position;
    expect(held).toBeLessThan(2300);
    await lab.run(200);
    expect(lab.playback.position).toBeLessThan(held + 220);
    expect(lab.skipped).toBe(0);
  });
  it("keeps cameras in sync", async () => {
    const lab = new Lab(10_000, 2);
    lab.playback.play();
    lab.playback.tick();
    expect(lab.asked.length).toBe(2);
    await lab.answer(); // the first camera's
    for (let i = 0; i < 50; i++, lab.time += 10) lab.playback.tick();
    expect(lab.playback.position).toBe(0);
    expect(lab.playback.waiting).toBe(true);
  });
  it("passes on a chained track's group up to the position, and then every frame", async () => {
    const shown: string[] = [];
    let time = 0;
    const asked: number[][] = [];
    const playback = new Playback(5000, {
      now: () => time,
      skip: () => expect.unreachable(),
      show: (_, objects) => void shown.push(objects.map((o) => `${o[0]! * 100 + o[1]! * 40}`).join()),
      // Groups of 800 ms, whose IDs are their media times, with an object every 40 ms.
      fetch: (_, first, last, object) => {
        asked.push([Number(first), Number(last)]);
        for (let g = Math.ceil(Number(first) / 800) * 800; g <= Math.min(Number(last), 5000); g += 800)
          for (let i = 0; i < 20; i++) object(BigInt(g), Uint8Array.of(g / 100, i));
        return Promise.resolve();
      },
    });
    const captured = (o: Uint8Array) => 9e5 + o[0]! * 100 + o[1]! * 40;
    playback.setTracks(new Map([["0", { timeline: line, captured }]]));
    playback.seek(1010);
    const run = async (ms: number) => {
      for (const end = time + ms; time < end; time += 10) {
        playback.tick();
        await new Promise((resolve) => setImmediate(resolve));
      }
    };
    await run(200);
    expect(asked[0]).toEqual([0, 1349]);
    expect(shown).toEqual(["0,40,80,120,160,200,240,280,320,360,400,440,480,520,560,600,640,680,720,760,800,840,880,920,960,1000"]);
    playback.play();
    await run(150);
    expect(shown.slice(1)).toEqual(["1040", "1080", "1120"]);
  });
  it("aborts fetches after a seek", async () => {
    const lab = new Lab();
    lab.playback.seek(2000);
    lab.playback.tick();
    lab.playback.seek(7000);
    expect(lab.asked[0]!.aborted()).toBe(true);
    await lab.answer(); // it arrives nevertheless
    await lab.run(100);
    expect(lab.shown).toEqual(["0:7000"]);
  });
  it("stops at the end, and plays from the beginning after that", async () => {
    const lab = new Lab(1000);
    lab.playback.seek(800);
    lab.playback.play();
    await lab.run(1000);
    expect(lab.playback.playing).toBe(false);
    expect(lab.playback.position).toBe(1000);
    expect(lab.shown.at(-1)).toBe("0:1000");
    lab.playback.play();
    await lab.run(100);
    expect(lab.playback.position).toBeLessThan(120);
  });
  it("retries failed fetches, but not past the end", async () => {
    const lab = new Lab();
    lab.playback.play();
    lab.playback.tick();
    lab.asked.shift()!.fail(new Error("cut"));
    await new Promise((resolve) => setTimeout(resolve));
    await lab.run(400, false);
    expect(lab.asked.length).toBe(0);
    await lab.run(600);
    expect(lab.shown.length).toBeGreaterThan(5);
    lab.playback.seek(10_000);
    lab.playback.tick();
    lab.asked.shift()!.fail({ invalidRange: true });
    await new Promise((resolve) => setTimeout(resolve));
    await lab.run(1000, false);
    expect(lab.asked.length).toBe(0);
  });
  it("converts between groups and media time", () => {
    const t: Timeline = { media: 500, mediaStep: 100, group: 7, groupStep: 3, wallclock: 0 };
    expect(groupAt(t, 700)).toBe(13n);
    expect(groupAt(t, 0)).toBe(0n);
    expect(mediaAt(t, 13n)).toBe(700);
  });
  it.each([
    [0, "0:00"],
    [75_900, "1:15"],
    [3_725_000, "1:02:05"],
  ])("formats %i ms as %s", (ms, text) => expect(clockTime(ms)).toBe(text));
  it.each([
    [0, 9967, "0:00 / 0:10"], // 30 frames per second
    [9899, 9900, "0:09 / 0:10"], // 10 frames per second
    [9900, 9900, "0:10 / 0:10"],
    [59_967, 59_967, "1:00 / 1:00"],
    [10_400, 10_400, "0:10 / 0:10"],
    [0, 0, "0:00 / 0:00"],
  ])("formats %i of %i ms as %s", (position, duration, text) =>
    expect(progress(position, duration).join(" / ")).toBe(text));
});

describe("a catalog's objects", () => {
  const encode = (o: object) => new TextEncoder().encode(JSON.stringify(o));
  const track = (name: string) => ({
    name,
    packaging: "eventtimeline",
    eventType: "dev.holocast.pose/v1",
    isLive: true,
  });
  const whole = encode({ version: "draft-01", tracks: [] });
  const delta = (op: string, ...tracks: object[]) => encode({ generatedAt: 1, deltaUpdate: [{ op, tracks }] });

  const hasPoses = (c: Catalog | undefined) => c && readCameras(c).hasPoses;

  it("are applied in order", () => {
    const r = new CatalogReader();
    expect(hasPoses(r.add(5n, 0n, whole))).toBe(false);
    expect(hasPoses(r.add(5n, 1n, delta("add", track("pose"))))).toBe(true);
    expect(hasPoses(r.add(5n, 2n, delta("remove", { name: "pose" })))).toBe(false);
    expect(hasPoses(r.add(5n, 3n, delta("add", track("other"))))).toBe(false);
    expect(hasPoses(r.add(5n, 4n, delta("clone", { parentName: "other", name: "pose" })))).toBe(true);
    expect(hasPoses(r.add(5n, 5n, delta("update", { name: "pose", packaging: "loc", eventType: "" })))).toBe(false);
  });
  it("wait for earlier ones", () => {
    const r = new CatalogReader();
    expect(r.add(5n, 1n, delta("add", track("pose")))).toBeUndefined();
    expect(hasPoses(r.add(5n, 0n, whole))).toBe(true);
    expect(r.add(5n, 0n, whole)).toBeUndefined();
  });
  it("of older groups are ignored unless the publisher restarted", () => {
    const r = new CatalogReader();
    r.add(5000n, 0n, whole);
    expect(r.add(4999n, 0n, whole)).toBeUndefined();
    expect(r.add(3n, 0n, whole)).toBeDefined();
  });
  it.each([
    ["an unknown track", delta("remove", { name: "none" })],
    ["an unknown operation", delta("turn", track("pose"))],
    ["no list", encode({ generatedAt: 1, deltaUpdate: 3 })],
  ])("are refused: %s", (_, bad) => {
    const r = new CatalogReader();
    r.add(1n, 0n, whole);
    r.add(1n, 1n, delta("add", track("pose")));
    expect(() => r.add(1n, 2n, bad)).toThrow(/catalog/);
  });
});

describe("automatic quality", () => {
  /** Simulates some seconds with the given shares of skipped and lost frames. Returns the levels. */
  const run = (
    c: QualityChooser,
    from: { at: number; frames: number; undrawn: number; lost: number },
    seconds: number,
    skipped: number,
    lost = 0,
    costs = [{ points: 400, bitrate: 80 }, { points: 100, bitrate: 20 }],
  ) => {
    const levels: number[] = [];
    for (let i = 0; i < seconds; i++) {
      from.at += 1000;
      from.frames += 30 * (1 - lost);
      from.undrawn += 30 * (1 - lost) * skipped;
      from.lost += 30 * lost;
      levels.push(c.update(from.at, from, costs));
    }
    return levels;
  };
  const start = () => ({ at: 0, frames: 0, undrawn: 0, lost: 0 });
  it("keeps the level if all goes well", () => expect(run(new QualityChooser(), start(), 60, 0.02).at(-1)).toBe(0));
  it("keeps the level if some frames are skipped", () =>
    expect(run(new QualityChooser(), start(), 60, 0.5).at(-1)).toBe(0));
  it("lowers it if most frames are skipped", () => expect(run(new QualityChooser(), start(), 12, 0.8).at(-1)).toBe(1));
  it("lowers it if many frames are lost", () => expect(run(new QualityChooser(), start(), 12, 0, 0.3).at(-1)).toBe(1));
  it("saves points if frames are skipped, and bits if they are lost", () => {
    const full = { points: 400, bitrate: 80 };
    const high = { points: 400, bitrate: 4 };
    const low = { points: 100, bitrate: 20 };
    const all = [full, high, low];
    expect(run(new QualityChooser(), start(), 6, 0.8, 0, all).at(-1)).toBe(all.indexOf(low));
    expect(run(new QualityChooser(), start(), 30, 0, 0.3, all).at(-1)).toBe(all.indexOf(high));
    expect(run(new QualityChooser(), start(), 6, 0.8, 0.5, [full, high]).at(-1)).toBe(1);
  });
  it("retries the better level later, and less often after a failure", () => {
    const c = new QualityChooser();
    const at = start();
    run(c, at, 12, 0.8);
    const raised = run(c, at, 60, 0).indexOf(0);
    expect(raised).toBeGreaterThan(10);
    expect(raised).toBeLessThan(30);
    const d = new QualityChooser();
    const at2 = start();
    run(d, at2, 12, 0.8);
    while (d.level > 0) run(d, at2, 1, 0);
    run(d, at2, 10, 0.8);
    expect(d.level).toBe(1);
    expect(run(d, at2, 25, 0).at(-1)).toBe(1);
    expect(run(d, at2, 30, 0).at(-1)).toBe(0);
  });
});
