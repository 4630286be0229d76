/**
 * Shortens, lengthens or continues sound by a period of its waveform, without clicks or a change of pitch. Arrays hold
 * one channel each; lengths are in samples.
 */

export type Channels = readonly Float32Array<ArrayBuffer>[];

/** Range of spliced periods, length of a crossfade, and maximum period of a continuation, ms. */
const MIN = 2;
const MAX = 5;
const FADE = 2;
const LONGEST = 12.5;
/** Step of the coarse search, which keeps it cheap enough for the audio thread. */
const COARSE = 4;
/** Difference in similarity that counts. */
const EQUAL = 1e-6;

export interface Lags {
  readonly min: number;
  readonly max: number;
  readonly fade: number;
  readonly longest: number;
}

export function lagsAt(rate: number): Lags {
  const samples = (ms: number) => Math.round((ms * rate) / 1000);
  return { min: samples(MIN), max: samples(MAX), fade: samples(FADE), longest: samples(LONGEST) };
}

/** Similarity of `length` samples from two positions, −1 to 1; 1 for silence. */
function similarity(a: Channels, at: number, b: Channels, from: number, length: number, step: number): number {
  let [ab, aa, bb] = [0, 0, 0];
  a.forEach((x, c) => {
    const y = b[c]!;
    for (let i = 0; i < length; i += step) {
      const [u, v] = [x[at + i]!, y[from + i]!];
      ab += u * v;
      aa += u * u;
      bb += v * v;
    }
  });
  return aa + bb === 0 ? 1 : ab / Math.sqrt(aa * bb || 1);
}

/** The lag from min to max with the greatest similarity; the longest if several are equal. */
function best(min: number, max: number, similar: (lag: number, step: number) => number): number {
  let found = max;
  const search = (from: number, to: number, step: number): void => {
    let top = -Infinity;
    for (let lag = from; lag >= to; lag -= step) {
      const s = similar(lag, step);
      if (s > top + EQUAL) [top, found] = [s, lag];
    }
  };
  search(max, min, COARSE);
  search(Math.min(max, found + COARSE - 1), Math.max(min, found - COARSE + 1), 1);
  return found;
}

/** Fades from one sound to another over n samples, into `out`. */
function crossfade(out: Float32Array, from: Float32Array, to: Float32Array, n: number): void {
  for (let i = 0; i < n; i++) {
    const k = (i + 1) / (n + 1);
    out[i] = (1 - k) * from[i]! + k * to[i]!;
  }
}

/** Removes a period from x; undefined if x is too short. */
export function shorten(x: Channels, { min, max, fade }: Lags): Channels | undefined {
  const most = Math.min(max, x[0]!.length - fade);
  if (most < min) return undefined;
  const lag = best(min, most, (l, step) => similarity(x, 0, x, l, fade, step));
  return x.map((c) => {
    const out = c.slice(lag);
    crossfade(out, c, c.subarray(lag), fade);
    return out;
  });
}

/** Repeats the last period of `past` before x, which follows it; undefined if x is too short. */
export function prolong(x: Channels, past: Channels, { min, max, fade }: Lags): Channels | undefined {
  const n = past[0]!.length;
  if (x[0]!.length < fade) return undefined;
  const lag = best(min, max, (l, step) => similarity(x, 0, past, n - l, fade, step));
  return x.map((c, i) => {
    const again = past[i]!.subarray(n - lag);
    const out = new Float32Array(lag + c.length);
    out.set(again);
    out.set(c, lag);
    crossfade(out, c, again, fade);
    return out;
  });
}

/** The last period of `past`, faded so that it repeats without a step. */
export function period(past: Channels, { min, longest, fade }: Lags): Float32Array[] {
  const n = past[0]!.length;
  const compared = 2 * fade;
  const lag = best(min, longest, (l, step) => similarity(past, n - compared, past, n - compared - l, compared, step));
  return past.map((c) => {
    const out = c.slice(n - lag);
    // Fade the end into the samples that preceded the period, which lead to its beginning.
    crossfade(out.subarray(lag - fade), c.subarray(n - fade), c.subarray(n - lag - fade), fade);
    return out;
  });
}
