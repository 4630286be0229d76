/** Keeps sound and point clouds in step (docs/spec/sound.md). Times are in ms. */
import { MAX_POSTPONED, postpone } from "../media/sound/buffer.ts";

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
const STEADY = 10;
/** The newest frames whose median applies if it is lower by more than SOONER, since late sound is noticed first. */
const QUICK = 7;
const SOONER = 30;
/** Smallest change of the hold, and minimum time until it is reduced. */
const STEP = 5;
const PAUSE = 2 * WINDOW;
/** Sound later than the held points by more than this is not waited for. */
const LATEST = 10;
const MOST = MAX_POSTPONED / 1000;

/** A displayed frame and its shift without the hold. */
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
    const shift = at - captured - this.held;
    const before = median(this.#shown);
    this.#shown.push({ at, shift });
    while (at - this.#shown[0]!.at > WINDOW) this.#shown.shift();
    const newest = this.#shown.slice(-AGREED);
    const off = newest.filter((s) => Math.abs(s.shift - before!) > JUMP && Math.abs(s.shift - shift) < JUMP);
    if (off.length === AGREED) this.#shown = newest;
  }

  /** Median local display time minus capture time of the frames; undefined if none were displayed. */
  shift(now: number): number | undefined {
    const shift = this.#natural(now);
    return shift === undefined ? undefined : shift + this.held;
  }

  /** The largest acceptable shift of sound. */
  latest(now: number): number | undefined {
    const shift = this.#natural(now);
    return shift === undefined ? undefined : shift + MOST + LATEST;
  }

  /** The shift of points that are not held back. */
  #natural(now: number): number | undefined {
    const newest = this.#shown.at(-1);
    if (!newest || now - newest.at > FORGET) return undefined;
    let shift = median(this.#shown)!;
    const quick = median(this.#shown.slice(-QUICK))!;
    if (shift - quick > SOONER) shift = quick;
    if (this.#shift === undefined || Math.abs(shift - this.#shift) > STEADY) this.#shift = shift;
    return this.#shift;
  }

  /** How long to hold points back for sound with a shift of at least `needed`. */
  hold(needed: number | undefined, now: number): number {
    const natural = this.#natural(now);
    const wanted = needed === undefined || natural === undefined ? 0 : postpone(1000 * natural, 1000 * needed) / 1000;
    const by = wanted - this.held;
    if (by === 0 || (by < STEP && now - this.#changed < PAUSE) || (Math.abs(by) < STEP && wanted !== 0))
      return this.held;
    this.#changed = now;
    return (this.held = wanted);
  }
}

function median(shown: readonly Shown[]): number | undefined {
  const sorted = shown.map((s) => s.shift).sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}
