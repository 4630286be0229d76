import { readFileSync } from "node:fs";
import { describe, expect, it, vi } from "vitest";
import type { Subscription } from "../../src/moqt/index.ts";
import { Meter } from "../../src/ui/hud/meter.ts";
import { parseLink } from "../../src/ui/link.ts";
import { Assembler } from "../../src/media/points/assembler.ts";
import { GroupAssembler } from "../../src/media/points/chain.ts";
import type { CameraTrack } from "../../src/media/points/track.ts";
import { ClockEstimator, localTime, parseStamp } from "../../src/media/session/clock.ts";
import { Feed } from "../../src/media/points/feed.ts";
import { Pace } from "../../src/media/points/pace.ts";
import { encodeReceipt } from "../../src/media/session/receipt.ts";
import { Sequence } from "../../src/media/points/sequence.ts";
import { messageFor } from "../../src/ui/messages.ts";
import type { Phase } from "../../src/media/session/messages.ts";

describe("assembler", () => {
  const run = (descriptions: number, events: ([bigint, number] | ["lost", bigint, number])[]): string[] => {
    const out: string[] = [];
    const a = new Assembler(descriptions, (f) => out.push(`${f.group}:${f.objects.map((o) => o[0]).join("")}`));
    for (const e of events) {
      if (e[0] === "lost") a.lost(e[1], e[2]);
      else a.add(e[0], e[1], Uint8Array.of(e[1] as number));
    }
    return out;
  };
  it("delivers a frame of one description at once", () =>
    expect(
      run(1, [
        [1n, 0],
        [2n, 0],
      ]),
    ).toEqual(["1:0", "2:0"]));
  it("waits for all four descriptions", () =>
    expect(
      run(4, [
        [1n, 0],
        [1n, 2],
        [1n, 1],
        [1n, 3],
      ]),
    ).toEqual(["1:0213"]));
  it("does not wait for a lost description", () =>
    expect(
      run(4, [
        [1n, 0],
        [1n, 1],
        ["lost", 1n, 3],
        [1n, 2],
      ]),
    ).toEqual(["1:012"]));
  it("delivers an incomplete frame when a later one completes", () => {
    expect(run(4, [[1n, 0], [2n, 0], [2n, 1], [2n, 2], [2n, 3], [1n, 1]])).toEqual(["1:0", "2:0123"]);
  });
  it("ignores duplicates", () =>
    expect(
      run(1, [
        [1n, 0],
        [1n, 0],
      ]),
    ).toEqual(["1:0"]));
  it("drops late frames", () =>
    expect(
      run(1, [
        [2n, 0],
        [1n, 0],
      ]),
    ).toEqual(["2:0"]));
  it("follows a restarted publisher", () =>
    expect(
      run(1, [
        [90000n, 0],
        [5n, 0],
        [6n, 0],
      ]),
    ).toEqual(["90000:0", "5:0", "6:0"]));
  it("ignores unknown descriptions", () =>
    expect(
      run(1, [
        [1n, 9],
        [1n, 0],
      ]),
    ).toEqual(["1:0"]));
  it("holds at most four incomplete frames", () => {
    expect(run(4, [[1n, 0], [2n, 0], [3n, 0], [4n, 0], [5n, 0]])).toEqual(["1:0"]);
  });
  it("delivers nothing for a frame without objects", () => expect(run(1, [["lost", 1n, 0], [2n, 0]])).toEqual(["2:0"]));
});

describe("sequence numbers", () => {
  it.each<[string, number[], number, number]>([
    ["none lost", [0, 1, 2, 3], 0, 0],
    ["joined late", [5000, 5001], 0, 0],
    ["a gap", [1, 2, 5], 2, 0],
    ["a late frame", [1, 3, 2, 4], 0, 1],
    ["wrapping numbers", [0xfffffffe, 0xffffffff, 0, 1], 0, 0],
    ["a restarted publisher", [90000, 0, 1], 0, 0],
    ["a jump far ahead", [1, 90000, 90001], 0, 0],
  ])("%s", (_, numbers, lost, late) => {
    const s = new Sequence();
    numbers.forEach((n) => s.add(n));
    expect([s.received, s.lost, s.late]).toEqual([numbers.length, lost, late]);
  });
});

describe("clock", () => {
  const stamp = (us: bigint): Uint8Array => {
    const b = new Uint8Array(16);
    b[0] = 1;
    new DataView(b.buffer).setBigUint64(8, us, true);
    return b;
  };
  it("reads stamps", () => {
    expect(parseStamp(stamp(1763665200123456n))).toBe(1763665200123.456);
    expect(parseStamp(stamp(1n << 63n))).toBeUndefined();
    expect(parseStamp(new Uint8Array(15))).toBeUndefined();
    expect(parseStamp(new Uint8Array(16))).toBeUndefined();
  });
  /** Feeds stamps of a clock that is `offset` ms ahead, with a path delay of `way` ms plus `queue`. */
  const feed = (
    c: ClockEstimator,
    from: number,
    count: number,
    offset: number,
    way: number,
    queue: (i: number) => number,
  ): number => {
    for (let i = 0; i < count; i++) c.observe(from + i * 100 + offset, from + i * 100 + way + queue(i));
    return from + count * 100;
  };
  it("finds the offset despite queueing", () => {
    const c = new ClockEstimator();
    c.minRtt = 10;
    feed(c, 1e12, 50, 250, 5, (i) => (i % 7 === 3 ? 0 : 15));
    expect(c.offset).toBeCloseTo(250, 0);
    expect(c.error(1e12 + 5000)).toBeLessThan(6);
  });
  it("follows a clock set forward within half a second", () => {
    const c = new ClockEstimator();
    const at = feed(c, 1e12, 30, 0, 0, () => 0);
    feed(c, at, 5, 4000, 0, () => 0);
    expect(c.offset).toBeCloseTo(4000, 0);
  });
  it("does not mistake a busy machine for a clock set back", () => {
    const c = new ClockEstimator();
    const at = feed(c, 1e12, 30, 0, 0, () => 0);
    feed(c, at, 40, 0, 0, () => 60);
    expect(c.offset).toBeCloseTo(0, 0);
  });
  it("follows a clock set back", () => {
    const c = new ClockEstimator();
    const at = feed(c, 1e12, 30, 0, 0, () => 0);
    feed(c, at, 60, -4000, 0, () => 0);
    expect(c.offset).toBeCloseTo(-4000, 0);
  });
});

describe("receipt", () => {
  it("has the publisher's layout", () => {
    const b = encodeReceipt(513, 4000000000, 12.3456);
    expect(b.length).toBe(200);
    expect([...b.subarray(0, 12)]).toEqual([1, 0, 1, 2, 0, 0x28, 0x6b, 0xee, 0x3a, 0x30, 0, 0]);
    expect(encodeReceipt(0, 0, -1e9)[11]).toBe(0x80);
  });
});

describe("meter", () => {
  it("counts frames per camera and computes percentiles of the last five seconds", () => {
    const m = new Meter();
    for (let i = 0; i < 200; i++) {
      const now = 1e6 + i * 50;
      m.decoded(i % 2, 4, now);
      m.shown(i % 2, i >> 1, 1000, i === 199 ? 500 : i % 10, now);
      m.drawn(now);
      m.traffic((i + 1) * 10000, now);
      const received = 2 * (1 + (i >> 1));
      m.arrived([[i % 2, received, 5000 * received]], now); // every second frame is not drawn
    }
    const s = m.snapshot(1e6 + 199 * 50 + 1);
    expect(s).toMatchObject({
      fps: 10,
      received_fps: 20,
      rendered_fps: 20,
      frames: 200,
      pictures: 200,
      points: 2000,
      mbit_per_s: 1.6,
      per_camera: [{ mbit_per_s: 0.8 }, { mbit_per_s: 0.8 }],
    });
    expect(s.frame_delay_ms).toEqual({ p50: 4, p95: 9, p99: 9 });
    expect(m.snapshot(1e6 + 60000).fps).toBe(0);
  });
});

describe("link", () => {
  const link = (query: string) => parseLink({ href: `http://host.example:8000/${query}`, hostname: "host.example" });
  it.each([
    ["", "https://host.example:4443/", undefined],
    ["?session=demo", "https://host.example:4443/", "demo"],
    ["?relay=https://r.example:5000&session=a%20b", "https://r.example:5000/", "a b"],
    ["?relay=r.example:5000", "https://r.example:5000/", undefined],
    ["?relay=javascript:alert(1)", "https://host.example:4443/", undefined],
    ["?relay=http://[", "https://host.example:4443/", undefined],
  ])("%s", (query, relay, session) => expect(link(query)).toMatchObject({ relay, session }));
  it("takes the token from the fragment only", () => {
    expect(link("?session=x#token=a.b.c").token).toBe("a.b.c");
    expect(link("?session=x&token=a.b.c").token).toBeUndefined();
    expect(link("#other=1").token).toBeUndefined();
  });
  it("takes the quality from the link", () => {
    expect(link("").quality).toBe("auto");
    expect(link("?quality=low").quality).toBe("low");
  });
  it("has a message for every phase", () => {
    const phases: Phase[] = [
      "connecting",
      "no-webtransport",
      "unreachable",
      "certificate",
      "refused",
      "lost",
      "waiting",
      "unplayable",
      "foreign",
      "graphics",
      "silent",
      "ended",
      "live",
    ];
    const titles = phases.map((p) => messageFor(p, "", link("?session=x"), false)?.title);
    expect(titles.every((t) => t !== undefined && t.length > 5)).toBe(true);
    expect(messageFor("live", "", link(""), true)).toBeUndefined();
  });
});

describe("contrast", () => {
  const css = readFileSync(new URL("../../src/ui/style.css", import.meta.url), "utf8");
  type Color = [number, number, number, number];
  const color = (text: string): Color => {
    const hex = /^#(..)(..)(..)$/.exec(text);
    if (hex) return [parseInt(hex[1]!, 16), parseInt(hex[2]!, 16), parseInt(hex[3]!, 16), 1];
    const rgb = /^rgb\((\d+) (\d+) (\d+) \/ (\d+)%\)$/.exec(text)!;
    return [Number(rgb[1]), Number(rgb[2]), Number(rgb[3]), Number(rgb[4]) / 100];
  };
  const luminance = (c: readonly number[]): number => {
    const [r, g, b] = c.map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4)) as [
      number,
      number,
      number,
    ];
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const themes = { dark: /:root \{([^}]*)\}/, light: /:root\[data-theme="light"\] \{([^}]*)\}/ };
  const scenes = { dark: [0x14, 0x16, 0x1c], light: [0xee, 0xf0, 0xf4] };
  it.each(["dark", "light"] as const)("of text on panels, %s: at least 4.5 (WCAG 2.2 AA)", (theme) => {
    const block = themes[theme].exec(css)![1]!;
    const get = (name: string) => color(new RegExp(`--${name}: ([^;]+);`).exec(block)![1]!);
    const panel = get("panel");
    const back = scenes[theme].map((v, i) => panel[i]! * panel[3] + v * (1 - panel[3]));
    for (const name of ["ink", "soft", "link", "fps", "delay"]) {
      const [a, b] = [luminance(get(name).slice(0, 3)), luminance(back)].sort((x, y) => y - x) as [number, number];
      expect((a + 0.05) / (b + 0.05), name).toBeGreaterThan(4.5);
    }
  });
});

/** A simulated relay that sends 30 frames per second to a page that draws more slowly. */
class Relay {
  now = 0;
  start = 0n;
  sent: bigint[] = [];
  moves = 0;
  readonly #asked: { at: number; start: bigint }[] = [];

  constructor(
    readonly pace: Pace,
    readonly rtt: number,
    private readonly arrived: (group: bigint, declined: number) => void,
  ) {}

  move(start: bigint | undefined): void {
    if (start === undefined) return;
    this.moves++;
    this.#asked.push({ at: this.now + this.rtt / 2, start });
  }

  /** Publishes a group at time `at` on the relay's clock. It arrives half a round trip later. */
  publish(group: bigint, at: number): boolean {
    while (this.#asked.length > 0 && this.#asked[0]!.at <= at) this.start = this.#asked.shift()!.start;
    if (group < this.start) return false;
    this.sent.push(group);
    this.now = at + this.rtt / 2;
    this.arrived(group, this.pace.arrived(group, this.now));
    return true;
  }
}

describe("pace", () => {
  const INTERVAL = 1000 / 30;
  /** Refresh interval of the display. */
  const DISPLAY = 1000 / 60;
  /** Time before drawing at which a page needs a frame. */
  const AHEAD = 40;
  const DECODE = 5;
  /**
   * Simulates a page that draws every `cycle` ms, varied by the fraction `jitter`. Returns the frames
   * that the page received, with times.
   */
  const watch = (cycle: number, rtt: number, jitter = 0, seconds = 20, sequence = new Sequence()) => {
    const pace = new Pace();
    const given: { at: number; group: bigint }[] = [];
    let waiting: bigint | undefined;
    const relay = new Relay(pace, rtt, (group, declined) => {
      sequence.add(Number(group), false, declined);
      waiting = group;
    });
    let seed = 7;
    const random = () => (seed = (seed * 48271) % 0x7fffffff) / 0x7fffffff;
    let want = 0;
    let ready: number | undefined; // end of decoding of the current frame
    let chance = 0;
    let mean = cycle;
    let group = 5000n;
    let next = rtt / 2;
    for (let t = 0; t < seconds * 1000; t++) {
      relay.now = t;
      if (t >= next) {
        const came = relay.publish(group++, next - rtt / 2);
        relay.now = t;
        next += INTERVAL;
        if (came && ready !== undefined) relay.move(pace.idle(t, rtt));
        else if (came && t < want) relay.move(pace.waits(t, rtt));
      }
      if (t >= chance) {
        if (ready !== undefined && t >= ready) {
          ready = undefined;
          const gap = cycle * (1 + jitter * (2 * random() - 1));
          mean += 0.2 * (gap - mean);
          chance = t + gap;
          want = t + Math.max(0, mean - AHEAD - 2 * DECODE);
          relay.move(pace.wanted(want, t, rtt));
        } else {
          chance += DISPLAY;
        }
      }
      if (ready === undefined && waiting !== undefined && t >= Math.max(want, pace.hold())) {
        given.push({ at: t, group: waiting });
        waiting = undefined;
        ready = t + DECODE;
        relay.move(pace.given(t, rtt));
      }
    }
    return { relay, given, sequence, published: Number(group - 5000n) };
  };

  it("declines nothing if the page draws every frame", () => {
    const { relay, published } = watch(16, 20);
    expect(relay.moves).toBe(0);
    expect(relay.sent.length).toBe(published);
  });
  it.each([
    [100, 2, 0, 1.2],
    [220, 2, 0, 1.2],
    [220, 60, 0, 2.2],
    [500, 20, 0, 1.5],
    [70, 2, 0.4, 1.3],
    [110, 2, 0.4, 1.2],
    [220, 2, 0.4, 1.2],
    [220, 60, 0.4, 2.5],
  ])(
    "declines most frames that are not drawn: a picture every %d ms, round trip %d ms, jitter %d",
    (cycle, rtt, jitter, most) => {
      const { relay, given, sequence, published } = watch(cycle, rtt, jitter);
      expect(given.length).toBeGreaterThan((0.85 * 20_000) / (cycle + DISPLAY));
      expect(relay.sent.length / given.length).toBeLessThan(most);
      expect(relay.sent.length).toBeLessThan(published);
      expect(relay.moves).toBeLessThan(2 * given.length);
      // No frame is lost; frames that were not sent count as declined.
      expect(sequence.lost).toBe(0);
      expect(sequence.received + sequence.declined).toBeGreaterThan(published - 20);
      // The frames that the page received are hardly older than if all had been sent.
      const late = given.slice(5).map((g) => g.at - (Number(g.group - 5000n) * INTERVAL + rtt / 2));
      expect(late.reduce((a, b) => a + b) / late.length).toBeLessThan(INTERVAL);
    },
  );
  it("counts missing frames as lost unless declined", () => {
    const s = new Sequence();
    s.add(1);
    s.add(6, false, 3);
    expect([s.received, s.declined, s.lost]).toEqual([2, 3, 1]);
  });
  /** A pace that has measured the frame interval up to group 29. */
  const steady = () => {
    const pace = new Pace();
    for (let i = 0; i < 30; i++) pace.arrived(BigInt(i), i * INTERVAL);
    return pace;
  };
  it("counts a drained queue as declined, however long the drain", () => {
    const pace = steady();
    const start = pace.drain(6000)!;
    expect(start).toBeGreaterThan(150n);
    expect(pace.arrived(start, 30 * INTERVAL + 6000)).toBe(Number(start) - 30);
  });
  it("limits a drain after a burst", () => {
    const pace = new Pace();
    for (let i = 0; i < 40; i++) pace.arrived(BigInt(i), i * 10);
    expect(pace.drain(1000, 30)).toBe(69n);
  });
  it("counts groups declined in the previous subscription", () => {
    const before = steady();
    expect(before.drain(6 * INTERVAL)).toBe(35n);
    const pace = new Pace(before);
    expect(pace.arrived(37n, 37 * INTERVAL)).toBe(5); // two are lost
    expect(pace.arrived(38n, 38 * INTERVAL)).toBe(0);
  });
  it("receives one frame per second while nothing is drawn", () => {
    const pace = new Pace();
    const relay = new Relay(pace, 10, () => {});
    for (let i = 0; i < 10; i++) {
      relay.publish(BigInt(i), i * INTERVAL);
      relay.move(pace.wanted(relay.now, relay.now, 10));
      relay.move(pace.given(relay.now, 10));
    }
    const before = relay.sent.length;
    for (let i = 10; i < 310; i++) if (relay.publish(BigInt(i), i * INTERVAL)) relay.move(pace.idle(relay.now, 10));
    expect(relay.sent.length - before).toBeGreaterThanOrEqual(9);
    expect(relay.sent.length - before).toBeLessThan(40);
    // Once it draws again, it requests the next frame.
    expect(pace.wanted(relay.now + 5, relay.now + 5, 10)).toBe(relay.sent.at(-1)! + 1n);
  });
  it("requests all frames again if a requested one stays away", () => {
    const pace = new Pace();
    let start: bigint | undefined;
    for (let i = 0; i < 30; i++) {
      pace.arrived(BigInt(9000 + i), i * INTERVAL);
      if (i % 6 === 5) {
        pace.wanted(i * INTERVAL, i * INTERVAL, 5);
        start = pace.given(i * INTERVAL, 5) ?? start;
      }
    }
    expect(start).toBeGreaterThan(9030n);
    expect(pace.overdue(29 * INTERVAL + 300, 5)).toBeUndefined();
    expect(pace.overdue(29 * INTERVAL + 1000, 5)).toBe(0n);
    // A restarted publisher with lower group IDs is followed immediately.
    expect(pace.arrived(3n, 3000)).toBe(0);
    expect(pace.overdue(9000, 5)).toBeUndefined();
  });
});

/** An object of a chained track: its index in the group, and its frame number. */
const chained = (index: number, n: number): Uint8Array<ArrayBuffer> => {
  const b = new Uint8Array(60);
  new DataView(b.buffer).setUint32(8, n, true);
  new DataView(b.buffer).setUint16(50, index, true);
  return b;
};
const frameNumber = (b: Uint8Array): number => new DataView(b.buffer).getUint32(8, true);

describe("group assembler", () => {
  const open = () => {
    const out: string[] = [];
    let broken = 0;
    const a = new GroupAssembler((f) => out.push(`${f.group}:${frameNumber(f.objects[0]!)}`), () => void broken++);
    return { a, out, broken: () => broken, add: (g: bigint, id: number) => a.add(g, 0, chained(id, id), id) };
  };
  it("delivers the fetched start of a group before the objects after it", () => {
    const { out, add } = open();
    for (const id of [3, 4, 0, 1, 2, 2, 5]) add(7n, id);
    expect(out).toEqual(["7:0", "7:1", "7:2", "7:3", "7:4", "7:5"]);
  });
  it("continues a group until the next one begins, and drops the rest", () => {
    const { out, add, a } = open();
    add(7n, 0);
    add(8n, 1);
    add(7n, 1);
    add(8n, 0);
    add(7n, 2);
    expect(out).toEqual(["7:0", "7:1", "8:0", "8:1"]);
    expect(a.wants(7n)).toBe(false);
  });
  it("follows a restarted publisher", () => {
    const { out, add } = open();
    add(90000n, 0);
    add(5n, 0);
    add(5n, 1);
    expect(out).toEqual(["90000:0", "5:0", "5:1"]);
  });
  it("reports a reset stream, unless a later group has begun", () => {
    const { a, add, broken } = open();
    add(7n, 0);
    a.lost(7n);
    expect(broken()).toBe(1);
    add(8n, 0);
    a.lost(7n);
    expect(broken()).toBe(1);
  });
  it("reports a gap that persists", () => {
    const { a, add, broken } = open();
    add(7n, 0);
    add(7n, 2);
    a.check();
    expect(broken()).toBe(0);
    a.check();
    expect(broken()).toBe(1);
    add(7n, 1);
    a.check();
    a.check();
    expect(broken()).toBe(1);
  });
  it("holds a limited number of objects", () => {
    const { out, add } = open();
    for (let id = 1; id <= 513; id++) add(7n, id);
    add(7n, 0);
    expect(out).toEqual(["7:0"]);
  });
});

describe("feed of a chained track", () => {
  const track = { camera: 0, track: "points/0/high", layout: "W", descriptions: 1 } as unknown as CameraTrack;
  const open = () => {
    const frames: number[][] = [];
    const port = {
      postMessage: (m: { type: string; objects: Uint8Array[] }) =>
        void (m.type === "frame" && frames.push(m.objects.map(frameNumber))),
    } as unknown as MessagePort;
    const updates: (string | bigint)[] = [];
    const f = new Feed(track, port, { loops: false, rtt: 1 });
    f.follow({
      startAt: (group: bigint) => void updates.push("start", group),
      requestGroup: (group: bigint) => void updates.push("new", group),
      session: {},
      cancel: () => {},
    } as unknown as Subscription);
    let n = 0;
    const add = (group: bigint, ...ids: number[]) => {
      for (const id of ids) f.assembler.add(group, 0, chained(id, n++), id);
    };
    return { f, frames, updates, add };
  };
  it("passes on all frames since the last, or since the newest key frame", () => {
    const { f, frames, add } = open();
    add(7n, 0, 1, 2, 3);
    f.wanted(localTime());
    expect(frames).toEqual([[0], [1, 2, 3]]);
    expect(f.skipped).toBe(2);
    add(7n, 4, 5);
    add(8n, 0, 1);
    f.wanted(localTime());
    expect(frames.at(-1)).toEqual([6, 7]);
    expect(f.skipped).toBe(5);
    expect(f.sequence).toMatchObject({ received: 8, lost: 0, declined: 0 });
    expect(f.bytes).toBe(480);
    f.close();
  });
  it("never declines frames", () => {
    const { f, updates, add } = open();
    for (let i = 0; i < 100; i++) {
      add(7n, i);
      if (i % 20 === 0) f.wanted(localTime());
    }
    expect(updates).toEqual([]);
    f.close();
  });
  it("skips the rest of a damaged group and asks for a new one", () => {
    const { f, frames, updates, add } = open();
    add(7n, 0, 1);
    f.resync();
    f.wanted(localTime());
    add(7n, 2, 3);
    expect(frames).toEqual([[0]]);
    expect(updates).toEqual(["new", 8n]);
    add(8n, 0);
    expect(frames.at(-1)).toEqual([4]);
    f.close();
  });
  it("skips groups that queue on the path", () => {
    vi.useFakeTimers();
    const { f, frames, updates, add } = open();
    try {
      const late = (group: bigint, id: number, age: number) => {
        const b = chained(id, id);
        new DataView(b.buffer).setBigUint64(20, BigInt(Math.round(1000 * (localTime() - age))), true);
        f.show([b], group);
      };
      late(7n, 0, 20);
      late(7n, 1, 20); // waits for the page
      vi.advanceTimersByTime(900);
      late(7n, 2, 800);
      f.wanted(localTime());
      expect(frames).toEqual([[0]]);
      expect(f.skipped).toBe(2);
      expect(updates).toEqual(["start", 9n]);
      expect([7n, 8n, 9n].map((g) => f.wants(g))).toEqual([false, false, true]);
      f.assembler.lost(7n, 0); // the relay resets its stream
      expect(updates).toEqual(["start", 9n]);
      add(9n, 0);
      expect(frames.length).toBe(2);
    } finally {
      vi.useRealTimers();
      f.close();
    }
  });
});

describe("feed", () => {
  const track = { camera: 0, track: "points/0/full", layout: "A", descriptions: 1 } as unknown as CameraTrack;
  const frame = (n: number): Uint8Array<ArrayBuffer>[] => {
    const b = new Uint8Array(44);
    new DataView(b.buffer).setUint32(8, n, true);
    return [b];
  };
  const open = () => {
    const posted: { type: string; words?: ArrayBuffer; objects?: Uint8Array[] }[] = [];
    const port = { postMessage: (m: never) => void posted.push(m) } as unknown as MessagePort;
    const f = new Feed(track, port, { loops: false, rtt: 1 });
    const decoded = () =>
      posted.filter((m) => m.type === "frame").map((m) => new DataView(m.objects![0]!.buffer).getUint32(8, true));
    return { f, posted, decoded };
  };
  it("passes on the first frame at once, and the next when the page can use it", () => {
    const { f, decoded } = open();
    for (let i = 0; i < 4; i++) f.show(frame(i), BigInt(i));
    expect(decoded()).toEqual([0]);
    f.wanted(localTime());
    expect(decoded()).toEqual([0, 3]);
    expect(f.skipped).toBe(2);
    expect(f.sequence).toMatchObject({ received: 4, lost: 0, declined: 0 });
    f.close();
  });
  it("waits until the requested time and returns the buffer", async () => {
    const { f, posted, decoded } = open();
    f.show(frame(0), 0n);
    const words = new ArrayBuffer(8);
    f.wanted(localTime() + 40, words);
    f.show(frame(1), 1n);
    f.show(frame(2), 2n);
    expect(decoded()).toEqual([0]);
    await new Promise((resolve) => setTimeout(resolve, 80));
    expect(decoded()).toEqual([0, 2]);
    expect(posted.at(-1)!.words).toBe(words);
    f.close();
  });
  it.each<[string, (f: Feed) => void]>([
    ["begins anew", (f) => f.restart()],
    ["is closed", (f) => f.close()],
  ])("drops the frame in progress when it %s", (_, change) => {
    const { f, decoded } = open();
    const { assembler } = f;
    change(f);
    assembler.add(1n, 0, frame(1)[0]!);
    expect(decoded()).toEqual([]);
    expect(f.sequence.received).toBe(0);
    f.close();
  });
  it("skips late frames, and declines the ones queued behind them", () => {
    const { f, decoded } = open();
    const starts: bigint[] = [];
    f.follow({
      startAt: (group: bigint) => void starts.push(group),
      session: {},
      cancel: () => {},
    } as unknown as Subscription);
    const at = (n: number, age: number) => {
      const [object] = frame(n);
      new DataView(object!.buffer).setBigUint64(20, BigInt(Math.round(1000 * (localTime() - age))), true);
      f.show([object!], BigInt(n));
    };
    vi.useFakeTimers();
    try {
      for (let i = 0; i < 30; i++) {
        vi.advanceTimersByTime(33);
        at(i, 20);
        f.wanted(localTime());
      }
      const before = decoded().length;
      vi.advanceTimersByTime(33);
      at(30, 900);
      expect(decoded().length).toBe(before);
      expect(starts.at(-1)).toBeGreaterThan(50n);
      expect(f.wants(31n)).toBe(false);
      expect(f.wants(starts.at(-1)!)).toBe(true);
      expect(f.resumes - localTime()).toBeGreaterThan(1800);
      vi.advanceTimersByTime(200);
      at(31, 60_000);
      expect(starts.at(-1)).toBeLessThan(140n); // three seconds
      // Even if all frames are late, some are shown.
      for (let i = 32; i < 60; i++) {
        vi.advanceTimersByTime(200);
        at(i, 900);
      }
      expect(decoded().length).toBeGreaterThan(before);
    } finally {
      vi.useRealTimers();
      f.close();
    }
  });
  it("shows frames on a machine that processes most of them late", () => {
    const { f, decoded } = open();
    let start = 0n;
    f.follow({
      startAt: (group: bigint) => void (start = group),
      session: {},
      cancel: () => {},
    } as unknown as Subscription);
    const SECONDS = 60;
    let calm = 0;
    vi.useFakeTimers();
    try {
      const from = localTime();
      for (let i = 0; i < 5 * SECONDS; i++) {
        const captured = from + 200 * i;
        // After five seconds, the machine stalls for up to 1.5 s at a time.
        if (i === 25) calm = decoded().length;
        const processed = captured + (i < 25 ? 0 : (i * 7919) % 1500);
        vi.advanceTimersByTime(Math.max(0, processed - localTime()));
        if (BigInt(i) < start || !f.wants(BigInt(i))) continue;
        const [object] = frame(i);
        new DataView(object!.buffer).setBigUint64(20, BigInt(Math.round(1000 * captured)), true);
        f.show([object!], BigInt(i));
        f.wanted(localTime());
      }
      expect(decoded().length - calm).toBeGreaterThan(0.7 * (SECONDS - 5));
    } finally {
      vi.useRealTimers();
      f.close();
    }
  });
  it("passes on a frame at once if it arrives after the requested time", async () => {
    const { f, decoded } = open();
    f.show(frame(0), 0n);
    f.wanted(localTime() - 5);
    f.show(frame(1), 1n);
    expect(decoded()).toEqual([0, 1]);
    f.close();
  });
});
