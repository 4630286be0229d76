/**
 * Chooses a camera's quality by the share of frames that are not drawn. Times are milliseconds.
 */

/** Minimum observation before a change: time and frames. */
const WATCH = 4000;
const ENOUGH = 20;
/** Shares of frames: not drawn because decoding or drawing was busy, and lost in transit. */
const MANY_UNDRAWN = 0.6;
const MANY_LOST = 0.2;
const FEW = 0.05;
/** Time without trouble before trying the next better quality; doubles with every failed try. */
const PATIENCE = 15_000;
const MOST_PATIENCE = 240_000;

/** Frame counts since the start. */
export interface Counts {
  /** Received or declined. */
  readonly frames: number;
  /** Of these, declined or skipped because the page draws too slowly. */
  readonly undrawn: number;
  readonly lost: number;
}

export class QualityChooser {
  /** 0 is the best quality. */
  level = 0;
  #since: { readonly at: number; readonly counts: Counts } | undefined;
  #well: number | undefined; // start of the current period without trouble
  #raised = -Infinity;
  #patience = PATIENCE;

  /** Discards the counts so far. */
  restart(): void {
    this.#since = undefined;
    this.#well = undefined;
  }

  /** Adds the counts at a time and returns the level to use, at most `worst`. */
  update(now: number, counts: Counts, worst: number): number {
    this.level = Math.min(this.level, worst);
    const since = (this.#since ??= { at: now, counts: { ...counts } });
    const frames = counts.frames - since.counts.frames;
    const lost = counts.lost - since.counts.lost;
    if (now - since.at < WATCH || frames + lost < ENOUGH) return this.level;
    const undrawn = (counts.undrawn - since.counts.undrawn) / Math.max(1, frames);
    const missing = lost / (frames + lost);
    this.#since = { at: now, counts: { ...counts } };
    if (undrawn > MANY_UNDRAWN || missing > MANY_LOST) {
      this.#well = undefined;
      if (this.level < worst) {
        if (now - this.#raised < 2 * PATIENCE) this.#patience = Math.min(2 * this.#patience, MOST_PATIENCE);
        this.level++;
      }
    } else if (undrawn > FEW || missing > FEW) {
      this.#well = undefined;
    } else {
      this.#well ??= since.at;
      if (this.level > 0 && now - this.#well >= this.#patience) {
        this.level--;
        this.#raised = now;
        this.#well = undefined;
      }
    }
    return this.level;
  }
}
