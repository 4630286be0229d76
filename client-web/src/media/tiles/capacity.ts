/** Predicts the network's capacity in bytes per second, like internal/tile360/capacity.go. */

const MEAN_OF = 3;
const RATIOS = 40;
const MAX_RATIO = 10;
/**
 * Midpoints of the deciles of the ratio between successive one-second rates in 5G networks, used until
 * measured ratios replace them.
 */
const prior = [0.2, 0.54, 0.84, 0.93, 0.99, 1.04, 1.11, 1.2, 1.51, 4.07] as const;

export class Capacity {
  readonly #recent: number[] = [];
  readonly #ratios: number[] = [];
  #sorted: number[] = [];
  #guess = false;

  /** Sets the rate to assume until one is measured. Returns false if one has been. */
  guess(rate: number): boolean {
    if (this.#recent.length > 0 && !this.#guess) return false;
    this.#recent.splice(0, 1, Math.max(rate, 1));
    this.#guess = true;
    this.#sorted = [...prior];
    return true;
  }

  /** Adds a rate measured while there was enough data to send. */
  add(rate: number): void {
    if (!(rate >= 1)) rate = 1;
    if (this.#ratios.length === 0) this.#ratios.push(...prior);
    if (this.#guess) {
      this.#recent.length = 0;
      this.#guess = false;
    }
    const { mean } = this;
    if (mean > 0) {
      if (this.#ratios.length === RATIOS) this.#ratios.shift();
      this.#ratios.push(Math.min(rate / mean, MAX_RATIO));
    }
    if (this.#recent.length === MEAN_OF) this.#recent.shift();
    this.#recent.push(rate);
    this.#sorted = this.#ratios.toSorted((a, b) => a - b);
  }

  /** Harmonic mean of the recent rates; 0 if there are none. */
  get mean(): number {
    let sum = 0;
    for (const r of this.#recent) sum += 1 / r;
    return this.#recent.length === 0 ? 0 : this.#recent.length / sum;
  }

  /** The rate that the network exceeds with a probability of 100 − p percent. */
  percentile(p: number): number {
    const n = this.#sorted.length;
    if (n === 0) return 0;
    const at = Math.max(0, Math.min(n - 1, (p / 100) * n - 0.5));
    const i = Math.floor(at);
    let r = this.#sorted[i]!;
    if (i + 1 < n) r += (at - i) * (this.#sorted[i + 1]! - r);
    return this.mean * r;
  }

  /** Bytes that the network may carry in this many seconds, as equally probable values in ascending order. */
  distribution(seconds: number): number[] {
    const { mean } = this;
    return this.#sorted.map((r) => mean * r * seconds);
  }
}

/** Minimum size of a packet train to measure, in bytes, and lower limit on its measured duration, in ms. */
const MIN_TRAIN = 3000;
const MIN_TRAIN_TIME = 5;

/**
 * Measures the network's capacity by packet trains. The first frames of a GoP are sent back to back
 * for all tiles, so their arrivals are spread out by the bottleneck however low the average rate
 * is.
 */
export class Train {
  #group = -1n;
  #bytes = 0;
  #first = 0;
  #last = 0;
  #from = 0;
  #to = 0;

  /** Adds an object of any track that arrived at `at`, ms. `begins` is true for the first object of a tile's GoP. */
  add(at: number, bytes: number, group: bigint, begins: boolean): void {
    this.#bytes += bytes;
    if (!begins || group < this.#group) return;
    if (group > this.#group) {
      this.#group = group;
      this.#first = at;
      this.#from = this.#bytes;
    }
    this.#last = Math.max(this.#first, at);
    this.#to = this.#bytes;
  }

  /** Rate at which the GoP's first frames arrived, in bytes per second; 0 if too few arrived. */
  rate(group: bigint): number {
    const bytes = this.#to - this.#from;
    return group !== this.#group || bytes < MIN_TRAIN
      ? 0
      : (1000 * bytes) / Math.max(this.#last - this.#first, MIN_TRAIN_TIME);
  }
}
