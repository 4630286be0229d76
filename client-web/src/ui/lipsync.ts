/** Keeps sound and point clouds in step (docs/spec/sound.md). Times are in ms. */
import { postpone } from "../media/sound/buffer.ts";

/**
 * Time over which the median shift of displayed frames is taken, and time without frames after which the shift is
 * unknown.
 */
const WINDOW = 2000;
const FORGET = 3000;
/** This many frames in a row whose shift is off by more than JUMP indicate a seek or a new round of a replay. */
const JUMP = 200;
const AGREED = 3;
/** Changes of the shift up to this are ignored, because each one stretches sound. Nobody notices such an offset. */
const STEADY = 15;
/** Smallest change of the hold, and minimum time between changes. */
const STEP = 15;
const PAUSE = 2 * WINDOW;

interface Shown {
  readonly at: number;
  readonly shift: number;
}

export class LipSync {
  #shown: Shown[] = [];
  #shift: number | undefined;
  /** How long points are held back for sound, and the time of the last change. */
  held = 0;
  #changed = -Infinity;

  /** A frame with capture time `captured` was displayed at local time `at`. */
  shown(captured: number, at: number): void {
    const shift = at - captured;
    const before = median(this.#shown);
    this.#shown.push({ at, shift });
    while (at - this.#shown[0]!.at > WINDOW) this.#shown.shift();
    const newest = this.#shown.slice(-AGREED);
    const off = newest.filter((s) => Math.abs(s.shift - before!) > JUMP && Math.abs(s.shift - shift) < JUMP);
    if (off.length === AGREED) this.#shown = newest;
  }

  /** Median local display time minus capture time of the displayed frames; undefined if there are none. */
  shift(now: number): number | undefined {
    const newest = this.#shown.at(-1);
    if (!newest || now - newest.at > FORGET) return undefined;
    const shift = median(this.#shown)!;
    if (this.#shift === undefined || Math.abs(shift - this.#shift) > STEADY) this.#shift = shift;
    return this.#shift;
  }

  /** How long to hold points back for sound with a shift of at least `needed`. */
  hold(needed: number | undefined, now: number): number {
    const shift = this.shift(now);
    const natural = shift === undefined ? undefined : 1000 * (shift - this.held);
    const wanted = needed === undefined || natural === undefined ? 0 : postpone(natural, 1000 * needed) / 1000;
    if (now - this.#changed < PAUSE || (Math.abs(wanted - this.held) < STEP && wanted !== 0)) return this.held;
    if (wanted !== this.held) this.#changed = now;
    return (this.held = wanted);
  }
}

function median(shown: readonly Shown[]): number | undefined {
  const sorted = shown.map((s) => s.shift).sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}
