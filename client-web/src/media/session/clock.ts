/**
 * Estimates the relay's clock, which is the session's clock. Applies a one-way minimum filter to the
 * stamps that the relay sends ten times a second on .relay/clock, like internal/clock. Times are in
 * milliseconds.
 */

export const CLOCK_TRACK = { namespace: [".relay"], name: "clock" } as const;

const STAMP_SIZE = 16;
const WINDOW = 10_000;
const MAX_SAMPLES = 1024;
/** Maximum drift between two clocks. A poor crystal drifts by 50 ppm. */
const MAX_DRIFT = 50e-6;
/** A stamp that is off by more than this plus the known queueing delay suggests that a clock was set. */
const STEP_MARGIN = 20;
/**
 * Consecutive stamps needed to accept a step. The network cannot make a stamp early, but a busy
 * machine may delay many of them by more than any network would.
 */
const STEP_EARLY = 5;
const STEP_LATE = 50;
/** 2200-01-01, µs. Later stamps are corrupt. */
const MAX_TIME = 7258118400n * 1000000n;

/** UNIX time in milliseconds, monotonic for the lifetime of the page. */
export function localTime(): number {
  return performance.timeOrigin + performance.now();
}

/** Parses a stamp, UNIX ms; undefined if invalid. */
export function parseStamp(b: Uint8Array): number | undefined {
  if (b.length < STAMP_SIZE || b[0] !== 1) return undefined;
  const us = new DataView(b.buffer, b.byteOffset, b.length).getBigUint64(8, true);
  return us > MAX_TIME ? undefined : Number(us) / 1000;
}

interface Sample {
  readonly at: number; // local
  readonly offset: number; // the stamp minus `at`: clock offset minus one-way delay
}

export class ClockEstimator {
  #samples: Sample[] = [];
  #suspects: Sample[] = [];
  #best: Sample | undefined;
  /** Minimum round-trip time of the path observed so far. */
  minRtt = 0;
  smoothedRtt = 0;

  /** Adds a stamp that arrived at local time `at`. */
  observe(stamp: number, at: number): void {
    const n: Sample = { at, offset: stamp - at };
    if (this.#best && this.#suspect(n, this.#best)) {
      this.#suspects.push(n);
      if (this.#suspects.length < (n.offset > this.#best.offset ? STEP_EARLY : STEP_LATE)) return;
      this.#samples = this.#suspects;
    } else {
      this.#samples.push(n);
    }
    this.#suspects = [];
    while (this.#samples.length > 1 && (at - this.#samples[0]!.at > WINDOW || this.#samples.length > MAX_SAMPLES))
      this.#samples.shift();
    let best = -Infinity;
    for (const s of this.#samples) {
      const score = s.offset - n.offset - MAX_DRIFT * (at - s.at);
      if (score >= best) {
        best = score;
        this.#best = s;
      }
    }
  }

  #suspect(n: Sample, best: Sample): boolean {
    const drift = MAX_DRIFT * Math.abs(n.at - best.at);
    return Math.abs(n.offset - best.offset) > STEP_MARGIN + drift + Math.max(0, this.smoothedRtt - this.minRtt);
  }

  get known(): boolean {
    return this.#best !== undefined;
  }

  /** The relay's clock minus the local one; 0 before the first stamp. */
  get offset(): number {
    return this.#best ? this.#best.offset + this.minRtt / 2 : 0;
  }

  /** Bound on the offset's error at a local time: half the minimum round trip, plus the drift since the best stamp. */
  error(at: number): number {
    return this.#best ? this.minRtt / 2 + MAX_DRIFT * Math.abs(at - this.#best.at) : Infinity;
  }
}
