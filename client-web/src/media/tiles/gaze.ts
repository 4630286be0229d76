/** Predicts where a viewer will look, like internal/tile360 (gaze.go, crowd.go, model_data.go). */
import { dot, FORWARD, moved, offset, unit, type PossibleGaze, type Vec } from "./sphere.ts";

/** A gaze direction at media time t, in seconds. */
export interface Sample {
  readonly t: number;
  readonly gaze: Vec;
}

const HISTORY = 0.5; // seconds of gaze in the regression
const MAX_SAMPLES = 64;
const RING_LOOKS = 8;

const horizons = [0, 0.25, 0.5, 1, 1.5, 2, 3] as const;
const speeds = [0.1, 0.4] as const;
/**
 * Weights of the offsets, by horizon. Each row holds pairs of a horizontal and a vertical weight: the regression's and
 * the crowd's if there is a crowd, and the regression's if there is none.
 */
const blends = [
  [0, 0, 0, 0, 0, 0],
  [0.668, 0.451, 0.036, 0.016, 0.663, 0.447],
  [0.558, 0.331, 0.084, 0.033, 0.552, 0.327],
  [0.447, 0.189, 0.162, 0.041, 0.439, 0.186],
  [0.373, 0.113, 0.202, 0.042, 0.363, 0.11],
  [0.301, 0.061, 0.22, 0.057, 0.29, 0.057],
  [0.168, 0, 0.217, 0.085, 0.157, -0.003],
] as const;
/**
 * Prediction errors without and with a crowd, by speed class and horizon. Each entry holds the
 * horizontal and vertical errors and the crowd's share.
 */
const spreads = [
  [
    [
      [0, 0, 0],
      [0.036, 0.013, 0],
      [0.093, 0.028, 0],
      [0.218, 0.06, 0],
      [0.336, 0.092, 0],
      [0.436, 0.122, 0],
      [0.584, 0.183, 0],
    ],
    [
      [0, 0, 0],
      [0.078, 0.027, 0],
      [0.174, 0.054, 0],
      [0.355, 0.104, 0],
      [0.509, 0.15, 0],
      [0.637, 0.194, 0],
      [0.809, 0.275, 0],
    ],
    [
      [0, 0, 0],
      [0.122, 0.038, 0],
      [0.242, 0.07, 0],
      [0.464, 0.128, 0],
      [0.661, 0.186, 0],
      [0.814, 0.245, 0],
      [1.007, 0.353, 0],
    ],
  ],
  [
    [
      [0, 0, 0],
      [0.038, 0.013, 0],
      [0.097, 0.029, 0],
      [0.225, 0.061, 0.1],
      [0.343, 0.093, 0.1],
      [0.438, 0.124, 0.2],
      [0.581, 0.182, 0.2],
    ],
    [
      [0, 0, 0],
      [0.078, 0.027, 0],
      [0.173, 0.055, 0],
      [0.351, 0.103, 0],
      [0.499, 0.149, 0.2],
      [0.62, 0.192, 0.3],
      [0.789, 0.267, 0.4],
    ],
    [
      [0, 0, 0],
      [0.122, 0.038, 0],
      [0.241, 0.071, 0],
      [0.46, 0.128, 0.1],
      [0.649, 0.186, 0.2],
      [0.794, 0.242, 0.3],
      [0.978, 0.343, 0.4],
    ],
  ],
] as const;
/** Radii, in standard deviations, that divide the errors into equally frequent rings. */
const rings = [0.195, 0.489, 0.836, 1.306, 2.051, 3.871] as const;

/** Interpolates a table's row for a horizon. */
function at(table: readonly (readonly number[])[], ahead: number): number[] {
  const k = horizons.findIndex((h, i) => i > 0 && ahead < h);
  if (k < 0) return [...table.at(-1)!];
  const f = Math.max(0, (ahead - horizons[k - 1]!) / (horizons[k]! - horizons[k - 1]!));
  return table[k - 1]!.map((a, i) => a + f * (table[k]![i]! - a));
}

function limited(x: number, y: number, max: number): [number, number] {
  const n = Math.sqrt(x * x + y * y);
  return n > max ? [(x * max) / n, (y * max) / n] : [x, y];
}

/** Recorded gazes of several viewers of a medium, sampled at a fixed rate from its start. */
export class Crowd {
  constructor(
    readonly rate: number,
    readonly viewers: readonly (readonly Vec[])[],
  ) {}

  /**
   * The recorded directions at media time `t`, each weighted by how near that viewer's gaze was to this
   * viewer's gaze at `now`.
   */
  #weighted(now: Sample, t: number): { readonly v: Vec; readonly w: number }[] {
    const found = [];
    for (const trace of this.viewers) {
      const index = (time: number) => Math.floor(time * this.rate + 0.5);
      const [then, v] = [trace[index(now.t)], trace[index(t)]];
      if (then && v) found.push({ v, w: Math.exp(4 * (dot(then, now.gaze) - 1)) });
    }
    return found.filter(({ w }) => w > 0);
  }

  mean(now: Sample, t: number): Vec | undefined {
    const sum: [number, number, number] = [0, 0, 0];
    for (const { v, w } of this.#weighted(now, t)) for (let i = 0; i < 3; i++) sum[i]! += w * v[i]!;
    return dot(sum, sum) < 1e-18 ? undefined : unit(sum);
  }

  gazes(now: Sample, t: number, p: number): PossibleGaze[] {
    const list = this.#weighted(now, t);
    const sum = list.reduce((n, { w }) => n + w, 0);
    return list.map(({ v, w }) => ({ gaze: v, p: w * (p / sum) }));
  }
}

export class Gaze {
  #samples: Sample[] = []; // oldest first

  constructor(readonly crowd?: Crowd) {}

  /** Adds a gaze sample. If the time has gone back, as after a seek, the history restarts. */
  add(t: number, gaze: Vec): void {
    const s = { t, gaze: unit(gaze) };
    const last = this.#samples.at(-1);
    if (last && !(t > last.t)) this.#samples = [];
    let from = 0;
    const n = this.#samples.length;
    while (from < n && (this.#samples[from]!.t < t - HISTORY - 1e-9 || n - from >= MAX_SAMPLES)) from++;
    this.#samples.splice(0, from);
    this.#samples.push(s);
  }

  get last(): Sample {
    return this.#samples.at(-1) ?? { t: 0, gaze: FORWARD };
  }

  /** Angular velocity to the right and up, in radians per second, by regression over the history. */
  velocity(): [right: number, up: number] {
    const { last } = this;
    const n = this.#samples.length;
    if (n < 2) return [0, 0];
    let t = 0, x = 0, y = 0, tt = 0, tx = 0, ty = 0;
    for (const s of this.#samples) {
      const [a, b] = offset(last.gaze, s.gaze);
      const d = s.t - last.t;
      t += d;
      x += a;
      y += b;
      tt += d * d;
      tx += d * a;
      ty += d * b;
    }
    const spread = tt - (t * t) / n;
    return spread < 1e-9 ? [0, 0] : [(tx - (t * x) / n) / spread, (ty - (t * y) / n) / spread];
  }

  #offset(ahead: number): [number, number] {
    const [right, up] = this.velocity();
    return limited(right * ahead, up * ahead, Math.PI / 2);
  }

  /** Extrapolates the regression this many seconds past the last sample. */
  linear(ahead: number): Vec {
    return moved(this.last.gaze, ...this.#offset(ahead));
  }

  /** Blends regression and crowd with the weights that minimise errors in recorded head movements. */
  predict(ahead: number): Vec {
    const [right, up] = this.#offset(ahead);
    const { last } = this;
    const [ownX, ownY, crowdX, crowdY, aloneX, aloneY] = at(blends, ahead) as [
      number,
      number,
      number,
      number,
      number,
      number,
    ];
    const c = this.crowd?.mean(last, last.t + ahead);
    if (!c) return moved(last.gaze, aloneX * right, aloneY * up);
    const [x, y] = offset(last.gaze, c);
    return moved(last.gaze, ownX * right + crowdX * x, ownY * up + crowdY * y);
  }

  /** Possible gazes this many seconds after the last sample; their probabilities sum to p. */
  gazes(ahead: number, p: number): PossibleGaze[] {
    const centre = this.predict(ahead);
    const [right, up] = this.velocity();
    const speed = Math.sqrt(right * right + up * up);
    const found = speeds.findIndex((s) => speed <= s);
    const [ex, ey, share] = at(spreads[this.crowd ? 1 : 0]![found < 0 ? speeds.length : found]!, ahead) as [
      number,
      number,
      number,
    ];
    const gazes: PossibleGaze[] = [];
    if (this.crowd) {
      gazes.push(...this.crowd.gazes(this.last, this.last.t + ahead, p * share));
      if (gazes.length > 0) p -= p * share;
    }
    const per = p / (rings.length * RING_LOOKS);
    rings.forEach((radius, i) => {
      for (let k = 0; k < RING_LOOKS; k++) {
        const a = (2 * Math.PI * (k + 0.5 * (i % 2))) / RING_LOOKS;
        const [x, y] = limited(radius * ex * Math.cos(a), radius * ey * Math.sin(a), Math.PI);
        gazes.push({ gaze: moved(centre, x, y), p: per });
      }
    });
    return gazes;
  }
}
