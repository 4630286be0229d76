/**
 * Observation-weighted sorting (OWS), like internal/tile360 (ows.go, refine.go): chooses tiles,
 * qualities and their order to minimise the viewport's expected distortion within a budget.
 */

/** The choice for one GoP or several consecutive ones. */
export interface Problem {
  readonly qualities: number;
  /** Expected share of the viewport, per tile. */
  readonly seen: ArrayLike<number>;
  /** Distortion where a tile does not arrive, per tile. */
  readonly miss: ArrayLike<number>;
  /** Size in bytes of quality q of tile t at [t·qualities + q]; 0 or less = not available. */
  readonly bytes: ArrayLike<number>;
  readonly distortion: ArrayLike<number>;
  readonly budget: number;
  /**
   * Bytes that the network may carry until the deadline, as equally probable values in ascending order.
   * Empty means unlimited.
   */
  readonly capacity: readonly number[];
}

export interface Plan {
  /** Per tile; −1 = not sent. */
  readonly quality: number[];
  /** Tiles to send, in order. */
  readonly order: number[];
  readonly bytes: number;
  readonly loss: number;
  /** Lower bound on the loss of any choice within the budget. */
  readonly bound: number;
  readonly expected: number;
}

/** Maximum number of tiles for which to search for the optimum. */
const REFINE_TILES = 128;
/** Default number of search states, enough to prove the optimum of most choices among 32 tiles. */
export const DEFAULT_REFINE = 8192;

/**
 * A vertex of the lower convex hull of a tile's loss over bytes. At the first vertex the tile is not
 * sent.
 */
interface Corner {
  readonly bytes: number;
  readonly loss: number;
  readonly quality: number;
  readonly tile: number;
}

/** A partial choice, with the tiles decided so far. */
interface State {
  readonly bytes: number;
  readonly excess: number;
  readonly loss: number;
  readonly previous: number;
  readonly quality: number;
}

interface Choice {
  quality: number[];
  loss: number;
  bound: number;
}

const offered = (p: Problem, i: number): boolean =>
  p.bytes[i]! > 0 && p.bytes[i]! <= Number.MAX_VALUE && Math.abs(p.distortion[i]!) <= Number.MAX_VALUE;

/** Computes a plan. `refine` is the maximum number of search states; 0 means a greedy choice only. */
export function ows(p: Problem, refine = DEFAULT_REFINE): Plan {
  const tiles = p.seen.length;
  const hulls = Array.from({ length: tiles }, (_, t) => hull(p, t));
  const { choice, slope } = greedy(p, hulls);
  if (refine > 0 && tiles <= REFINE_TILES && choice.loss > choice.bound) search(p, choice, slope, refine);
  const order = descending(
    choice.quality.flatMap((q, t) => {
      if (q < 0) return [];
      const i = t * p.qualities + q;
      return [{ value: (p.seen[t]! * (p.miss[t]! - p.distortion[i]!)) / p.bytes[i]!, index: t }];
    }),
  );
  let bytes = 0, loss = 0, expected = 0;
  choice.quality.forEach((q, t) => {
    if (q >= 0) return;
    loss += p.seen[t]! * p.miss[t]!;
    expected += p.seen[t]! * p.miss[t]!;
  });
  for (const t of order) {
    const i = t * p.qualities + choice.quality[t]!;
    bytes += p.bytes[i]!;
    const e = late(p, bytes);
    loss += p.seen[t]! * p.distortion[i]!;
    expected += p.seen[t]! * ((1 - e) * p.distortion[i]! + e * p.miss[t]!);
  }
  const bound = choice.loss <= choice.bound ? loss : Math.min(choice.bound, loss); // equal up to rounding
  return { quality: choice.quality, order, bytes, loss, bound, expected };
}

/** Probability that data ending this many bytes into the GoP misses the deadline. */
function late(p: Problem, bytes: number): number {
  const n = p.capacity.length;
  if (n === 0) return 0;
  const first = p.capacity.findIndex((c) => c >= bytes);
  return (first < 0 ? n : first) / n;
}

function hull(p: Problem, t: number): Corner[] {
  const seen = p.seen[t]!;
  const points: Corner[] = [];
  for (let q = 0; q < p.qualities; q++) {
    const i = t * p.qualities + q;
    if (offered(p, i)) points.push({ bytes: p.bytes[i]!, loss: seen * p.distortion[i]!, quality: q, tile: t });
  }
  points.sort((a, b) => a.bytes - b.bytes || a.loss - b.loss);
  const corners: Corner[] = [{ bytes: 0, loss: seen * p.miss[t]!, quality: -1, tile: t }];
  for (const c of points) {
    if (c.loss >= corners.at(-1)!.loss) continue;
    while (corners.length >= 2) {
      const [a, b] = [corners.at(-2)!, corners.at(-1)!];
      if ((b.loss - c.loss) * (b.bytes - a.bytes) < (a.loss - b.loss) * (c.bytes - b.bytes)) break;
      corners.pop();
    }
    corners.push(c);
  }
  return corners;
}

/**
 * Returns the indexes in descending order of value, compared in single precision; equal values in ascending order of
 * index.
 */
function descending(keys: { readonly value: number; readonly index: number }[]): number[] {
  return keys
    .map(({ value, index }) => ({ value: Math.fround(value), index }))
    .sort((a, b) => b.value - a.value || a.index - b.index)
    .map(({ index }) => index);
}

/** Applies the hulls' steps in order of descending slope as long as they fit. */
function greedy(p: Problem, hulls: readonly Corner[][]): { choice: Choice; slope: number } {
  const steps: { a: Corner; b: Corner; level: number }[] = [];
  let bytes = 0, loss = 0;
  for (const corners of hulls) {
    loss += corners[0]!.loss;
    for (let i = 1; i < corners.length; i++) steps.push({ a: corners[i - 1]!, b: corners[i]!, level: i });
  }
  const steep = ({ a, b }: { a: Corner; b: Corner }) => (a.loss - b.loss) / (b.bytes - a.bytes);
  const level = hulls.map(() => 0);
  let slope: number | undefined;
  for (const i of descending(steps.map((s, index) => ({ value: steep(s), index })))) {
    const { a, b, level: n } = steps[i]!;
    if (level[b.tile] !== n - 1) continue; // the previous step did not fit
    if (bytes + (b.bytes - a.bytes) > p.budget) {
      slope ??= steep(steps[i]!);
      continue;
    }
    bytes += b.bytes - a.bytes;
    loss += b.loss - a.loss;
    level[b.tile] = n;
  }
  const quality = level.map((n, t) => hulls[t]![n]!.quality);
  if (slope === undefined) return { choice: { quality, loss, bound: loss }, slope: 0 };
  // Lagrangian dual at this price per byte: the optimum if tiles could be split between qualities.
  let bound = -slope * p.budget;
  for (const corners of hulls) {
    let least = Infinity;
    for (const h of corners) least = Math.min(least, h.loss + slope * h.bytes);
    bound += least;
  }
  return { choice: { quality, loss, bound: Math.min(loss, bound) }, slope };
}

/** Improves on the greedy choice by branch and bound if possible, and raises the lower bound. */
function search(p: Problem, choice: Choice, slope: number, refine: number): void {
  const slack = choice.loss - choice.bound;
  const before = [...choice.quality];
  const open: {
    readonly tile: number;
    readonly options: { bytes: number; excess: number; quality: number }[];
    readonly least: number;
  }[] = [];
  let fixed = 0,
    least = 0;
  for (let t = 0; t < p.seen.length; t++) {
    const seen = p.seen[t]!;
    const all = [{ bytes: 0, excess: seen * p.miss[t]!, quality: -1 }];
    for (let q = 0; q < p.qualities; q++) {
      const i = t * p.qualities + q;
      if (offered(p, i))
        all.push({ bytes: p.bytes[i]!, excess: seen * p.distortion[i]! + slope * p.bytes[i]!, quality: q });
    }
    const base = Math.min(...all.map((o) => o.excess));
    const options = all.map((o) => ({ ...o, excess: o.excess - base })).filter((o) => o.excess < slack);
    const smallest = Math.min(...options.map((o) => o.bytes));
    if (options.length === 1) {
      fixed += smallest;
      choice.quality[t] = options[0]!.quality;
      continue;
    }
    open.push({ tile: t, options, least: smallest });
    least += smallest;
  }
  const width = Math.max(1, Math.floor(refine / Math.max(1, open.length)));
  const states: State[] = [{ bytes: fixed, excess: 0, loss: -slope * fixed, previous: -1, quality: -1 }];
  let exact = true;
  let from = 0;
  for (const { options, least: own } of open) {
    const to = states.length;
    least -= own;
    let next: State[] = [];
    for (let i = from; i < to; i++) {
      const s = states[i]!;
      for (const o of options) {
        const bytes = s.bytes + o.bytes;
        const excess = s.excess + o.excess;
        if (bytes + least <= p.budget && excess < slack)
          next.push({ bytes, excess, loss: excess - slope * bytes, previous: i, quality: o.quality });
      }
    }
    // Keep the Pareto front in bytes and loss.
    next.sort((a, b) => a.bytes - b.bytes || a.loss - b.loss || a.previous - b.previous || a.quality - b.quality);
    let best = Infinity;
    next = next.filter((s) => s.loss < best && ((best = s.loss), true));
    if (next.length > width) {
      next.sort((a, b) => a.excess - b.excess || a.bytes - b.bytes);
      next.length = width;
      exact = false;
    }
    states.push(...next);
    from = to;
  }
  let best = choice.loss;
  let at = -1;
  for (let i = from; i < states.length; i++) {
    const loss = choice.bound + states[i]!.loss + slope * p.budget;
    if (loss < best) [best, at] = [loss, i];
  }
  if (at < 0) {
    choice.quality = before;
  } else {
    for (let k = open.length - 1; k >= 0; k--) {
      choice.quality[open[k]!.tile] = states[at]!.quality;
      at = states[at]!.previous;
    }
  }
  choice.loss = best;
  if (exact) choice.bound = best;
}
