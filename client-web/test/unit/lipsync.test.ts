import { describe, expect, it, vi } from "vitest";
import { Hold } from "../../src/media/points/hold.ts";
import { LipSync } from "../../src/ui/lipsync.ts";

const NOW = 1e12;

/** Shows frames at 30 FPS for `ms`, cycling through `shifts`. Returns the time after the last frame. */
function show(lips: LipSync, from: number, ms: number, ...shifts: number[]): number {
  let at = from;
  for (let i = 0; at < from + ms; i++, at += 33) lips.shown(at - shifts[i % shifts.length]!, at);
  return at;
}

describe("the shift of points", () => {
  it("is the median of two seconds, without single late frames", () => {
    const lips = new LipSync();
    expect(lips.shift(NOW)).toBeUndefined();
    let at = show(lips, NOW, 4000, 80, 84, 90, 400, 82);
    expect(lips.shift(at)).toBeCloseTo(84, 0);
    at = show(lips, at, 4000, 85, 90);
    expect(lips.shift(at)).toBeCloseTo(84, 0); // steady
    at = show(lips, at, 4000, 150);
    expect(lips.shift(at)).toBeCloseTo(150, 0);
    expect(lips.shift(at + 5000)).toBeUndefined();
  });

  it("follows a seek within three frames", () => {
    const lips = new LipSync();
    const at = show(lips, NOW, 4000, 80);
    expect(lips.shift(show(lips, at, 99, -5000))).toBeCloseTo(-5000, 0);
  });
});

describe("points", () => {
  it("wait for sound that is up to 80 ms later", () => {
    const lips = new LipSync();
    let at = show(lips, NOW, 4000, 50);
    expect(lips.hold(100, at)).toBeCloseTo(50, 0);
    expect(lips.shift(at)).toBeCloseTo(100, 0); // before it shows
    expect(lips.hold(300, at)).toBe(80);
    expect(lips.latest(at)).toBeCloseTo(140, 0);
    at = show(lips, at, 3000, 130);
    expect(lips.hold(110, at)).toBe(80); // not reduced yet
    at = show(lips, at, 3000, 130);
    expect(lips.hold(128, at)).toBe(80); // close enough
    expect(lips.hold(110, at)).toBeCloseTo(60, 0);
    at = show(lips, at, 5000, 110);
    expect(lips.hold(undefined, at)).toBe(0);
  });

  it("keep their order while they are held back", () => {
    vi.useFakeTimers();
    const hold = new Hold();
    const got: number[] = [];
    const add = (n: number, transit = 40) => hold.add(performance.now() - transit, () => got.push(n));
    add(1);
    hold.by = 50;
    add(2);
    hold.by = 0;
    add(3);
    expect(got).toEqual([1]);
    vi.advanceTimersByTime(49);
    expect(got).toEqual([1]);
    vi.advanceTimersByTime(2);
    expect(got).toEqual([1, 2, 3]);
    add(4);
    expect(got).toEqual([1, 2, 3, 4]);
    hold.by = 50;
    add(5, 70); // late
    vi.advanceTimersByTime(19);
    expect(got).toHaveLength(4);
    vi.advanceTimersByTime(2);
    expect(got).toHaveLength(5);
    hold.add(undefined, () => got.push(6));
    vi.advanceTimersByTime(1);
    expect(got).toHaveLength(6);
    vi.useRealTimers();
  });
});
