import { describe, expect, it } from "vitest";
import type { Target } from "../../src/media/sound/messages.ts";
import { Playout } from "../../src/media/sound/playout.ts";

const RATE = 48_000;
const QUANTUM = 128;
const UNIT = 480;
const START = 1e12;
/** Largest step between samples of the tone below: its amplitude times its phase increment per sample. */
const STEP = (0.5 * 2 * Math.PI * 220) / RATE;

const tone = (sample: number): number => 0.5 * Math.sin((2 * Math.PI * 220 * sample) / RATE);

/** Plays a tone of 220 Hz. Packet i is captured at START + 10 i ms and arrives after delay(i) ms; undefined = lost. */
function play(
  ms: number,
  delay: (i: number) => number | undefined,
  target: (now: number) => Partial<Target>,
  speed = 1,
) {
  const playout = new Playout(RATE, 1);
  const arrivals = Array.from({ length: ms / 10 }, (_, i) => ({ i, at: START + 10 * i + (delay(i) ?? Infinity) }))
    .filter((a) => Number.isFinite(a.at))
    .sort((a, b) => a.at - b.at);
  const out: number[] = [];
  const shifts: number[] = [];
  for (let k = 0; ; k++) {
    const now = START + (1000 * k * QUANTUM) / RATE / speed;
    if (now > START + ms) break;
    playout.target = { offset: 0, shift: undefined, latest: undefined, still: false, ...target(now) };
    const samples = [new Float32Array(QUANTUM)];
    playout.render(samples, now);
    out.push(...samples[0]!);
    shifts.push(playout.state.shift ?? NaN);
    while (arrivals.length > 0 && arrivals[0]!.at <= now) {
      const { i } = arrivals.shift()!;
      const channels = [Float32Array.from({ length: UNIT }, (_, s) => tone(UNIT * i + s))];
      playout.push({ timestamp: START + 10 * i, channels });
    }
  }
  const steps = out.slice(1).map((v, i) => Math.abs(v - out[i]!));
  return { out, steps, shifts, state: playout.state };
}

/** Largest of a long list. */
const most = (list: readonly number[]): number => list.reduce((a, b) => Math.max(a, b), 0);

describe("sound", () => {
  it("plays unchanged at the pictures' delay", () => {
    const { out, state, shifts } = play(1000, () => 10, () => ({ shift: 100 }));
    expect(shifts.at(-1)).toBeCloseTo(100, 1);
    expect(state).toMatchObject({ concealed: 0, stretched: 0, late: 0 });
    const at = 40 * UNIT; // heard 100 ms after capture
    for (let i = 0; i < 1000; i++) expect(out[at + i]).toBeCloseTo(tone(at + i - 0.1 * RATE), 5);
  });

  it("plays at the least delay without pictures", () => {
    const { state, shifts } = play(6000, (i) => 10 + 20 * ((i * 7919) % 100) / 100, () => ({}));
    expect(shifts.at(-1)).toBeGreaterThan(30);
    expect(shifts.at(-1)).toBeLessThan(60);
    expect(state.concealed).toBeLessThanOrEqual(60); // 1 %
  });

  it("conceals lost packets without clicks", () => {
    const lost = (i: number) => i % 20 === 10 || (i > 150 && i < 170);
    const { steps, state } = play(3000, (i) => (lost(i) ? undefined : 10), () => ({ shift: 80 }));
    expect(state.concealed).toBeGreaterThan(250);
    expect(most(steps)).toBeLessThan(2 * STEP);
  });

  it.each([
    ["longer", 60, 140],
    ["shorter", 120, 75],
  ])("stretches time to a %s delay by at most 5 %, without clicks", (_, before, after) => {
    const { steps, shifts, state } = play(4000, () => 10, (now) => ({ shift: now < START + 1000 ? before : after }));
    expect(Math.abs(shifts.at(-1)! - after)).toBeLessThan(6);
    expect(state.concealed).toBe(0);
    expect(most(steps)).toBeLessThan(1.5 * STEP);
    const perSecond = (RATE / QUANTUM) | 0;
    for (let i = perSecond; i + perSecond < shifts.length; i++)
      expect(Math.abs(shifts[i + perSecond]! - shifts[i]!)).toBeLessThan(50 + 6);
  });

  it("hurries to a much shorter delay, without clicks", () => {
    const { steps, shifts, state } = play(3000, () => 10, (now) => ({ shift: now < START + 1500 ? 240 : 60 }));
    expect(shifts[((2500 / 1000) * RATE) / QUANTUM | 0]).toBeLessThan(70);
    expect(state.concealed).toBe(0);
    expect(most(steps)).toBeLessThan(1.5 * STEP);
  });

  it.each([1.0005, 0.9995])("follows a sound card that runs at %d times the clock's speed", (speed) => {
    const { state, shifts, steps } = play(20_000, () => 10, () => ({ shift: 100 }), speed);
    expect(state.concealed).toBe(0);
    expect(most(shifts.slice(100).map((s) => Math.abs(s - 100)))).toBeLessThan(8);
    expect(most(steps)).toBeLessThan(1.5 * STEP);
  });

  it("is silent while paused, and jumps to another position", () => {
    const { out, steps } = play(4000, () => 10, (now) => ({
      shift: now < START + 3000 ? 80 : 500, still: now > START + 1000 && now < START + 2000,
    }));
    const at = (ms: number) => (ms * RATE) / 1000;
    expect(most(out.slice(at(1050), at(1950)).map(Math.abs))).toBe(0);
    expect(most(out.slice(at(2100), at(2900)).map(Math.abs))).toBeGreaterThan(0.4);
    expect(most(out.slice(at(3600), at(3900)).map(Math.abs))).toBeGreaterThan(0.4);
    expect(most(steps)).toBeLessThan(3 * STEP);
  });

  it("waits for sound that arrives later than pictures, unless told not to", () => {
    expect(play(2000, () => 150, () => ({ shift: 100 })).shifts.at(-1)).toBeGreaterThan(150);
    expect(play(2000, () => 150, () => ({ shift: 100, latest: 100 })).state.concealed).toBeGreaterThan(1000);
    const few = play(9000, (i) => (i % 20 === 5 ? 150 : 10), () => ({ shift: 100, latest: 115 }));
    expect(few.shifts.at(-1)).toBeLessThan(121);
    const all = play(4000, () => 150, () => ({ shift: 100, latest: 115 }));
    expect(all.shifts.at(-1)).toBeGreaterThan(150);
    expect(all.state.concealed).toBeLessThan(500);
  });

  it("plays a replay, which has no clock", () => {
    const { state, shifts } = play(2000, () => 10, () => ({ offset: undefined, shift: 90 }));
    expect(shifts.at(-1)).toBeCloseTo(90, 1);
    expect(state).toMatchObject({ late: 0, concealed: 0 });
  });

  it("survives any blocks", () => {
    const playout = new Playout(RATE, 2);
    const out = [new Float32Array(QUANTUM), new Float32Array(QUANTUM)];
    playout.target = { offset: 0, shift: 50, latest: undefined, still: false };
    let seed = 1;
    const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
    for (let k = 0; k < 5000; k++) {
      const now = START + (1000 * k * QUANTUM) / RATE;
      playout.render(out, now);
      expect(out.every((c) => c.every(Number.isFinite))).toBe(true);
      for (let n = Math.floor(10 * random()); n > 0; n--) {
        const length = [0, 1, 120, 480, 480, 480, 480, 2880][Math.floor(8 * random())]!;
        const timestamp = now + [0, 0, -50, 500, -1e6, 1e6, -1e12, 1e15][Math.floor(8 * random())]! + 20 * random();
        playout.push({ timestamp, channels: random() < 0.5 ? [] : [new Float32Array(length).fill(random())] });
      }
      if (random() < 0.01) playout.flush();
    }
  });
});
