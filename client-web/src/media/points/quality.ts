/** Chooses a camera's quality by the share of frames that are not drawn. Times are in milliseconds. */

/** Minimum time and number of frames to observe before a change. */
const WATCH = 4000;
const ENOUGH = 20;
/**
 * The quality is lowered if more than these shares of the frames are not drawn (decoding or drawing was busy) or
 * lost in transit. It is not raised while either share exceeds FEW.
 */
const MANY_UNDRAWN = 0.6;
const MANY_LOST = 0.2;
const FEW = 0.05;
/** Time without trouble before trying the next better quality. It doubles with each failed try. */
const RETRY_AFTER = 15_000;
const MAX_RETRY_AFTER = 240_000;

/** Frame counts since the start. */
export interface Counts {
  /** Received or declined. */
  readonly frames: number;
  /** Number of these frames declined or skipped because the page draws too slowly. */
  readonly undrawn: number;
  readonly lost: number;
}

/** Cost of a quality over all cameras. */
export interface Cost {
  readonly points: number;
  /** Bits per second; 0 = unknown. */
  readonly bitrate: number;
}

export class QualityChooser {
  /** 0 is the best quality. */
  level = 0;
  #since: { readonly at: number; readonly counts: Counts } | undefined;
  #goodSince: number | undefined; // start of the current period without trouble
  #raised = -Infinity;
  #retryAfter = RETRY_AFTER;

  /** Discards the counts so far. */
  restart(): void {
    this.#since = undefined;
    this.#goodSince = undefined;
  }

  /**
   * Adds the counts at local time `now` and returns the level to use. `costs` lists the cost of each quality, best
   * first.
   */
  update(now: number, counts: Counts, costs: readonly Cost[]): number {
    this.level = Math.min(this.level, costs.length - 1);
    const since = (this.#since ??= { at: now, counts: { ...counts } });
    const frames = counts.frames - since.counts.frames;
    const lost = counts.lost - since.counts.lost;
    if (now - since.at < WATCH || frames + lost < ENOUGH) return this.level;
    const undrawn = (counts.undrawn - since.counts.undrawn) / Math.max(1, frames);
    const missing = lost / (frames + lost);
    this.#since = { at: now, counts: { ...counts } };
    if (
      (undrawn > MANY_UNDRAWN && this.#lower(now, costs, "points")) ||
      (missing > MANY_LOST && this.#lower(now, costs, "bitrate")) ||
      undrawn > FEW ||
      missing > FEW
    ) {
      this.#goodSince = undefined;
    } else {
      this.#goodSince ??= since.at;
      if (this.level > 0 && now - this.#goodSince >= this.#retryAfter) {
        this.level--;
        this.#raised = now;
        this.#goodSince = undefined;
      }
    }
    return this.level;
  }

  /** Selects the best level that saves points or bits, and returns whether there is one. */
  #lower(now: number, costs: readonly Cost[], what: keyof Cost): boolean {
    const cost = costs[this.level]![what];
    const lower = costs.findIndex((c, i) => i > this.level && (c[what] < cost || c[what] === 0));
    if (lower < 0) return false;
    if (now - this.#raised < 2 * RETRY_AFTER) this.#retryAfter = Math.min(2 * this.#retryAfter, MAX_RETRY_AFTER);
    this.level = lower;
    return true;
  }
}
