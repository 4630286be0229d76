/** Puts the descriptions of a frame together: one group of a points track is one frame. */

/** A frame that is complete, or will get no more descriptions. */
export interface Assembled {
  readonly group: bigint;
  /** Objects of descriptions, in the order they came. */
  readonly objects: Uint8Array<ArrayBuffer>[];
}

interface Open {
  readonly group: bigint;
  readonly objects: Uint8Array<ArrayBuffer>[];
  /** Bit i: description i is there, or will not come. */
  settled: number;
}

/** Frames being assembled at most; the oldest is given up for a further one. */
const MAX_OPEN = 4;

/**
 * A frame is handed on when all its descriptions are here or known not to come, and with what it has
 * when a later frame is complete. Nothing is handed on twice, nor after a later frame.
 */
export class Assembler {
  #open: Open[] = []; // oldest first
  #last = -1n; // group handed on last

  constructor(
    private readonly descriptions: number,
    private readonly ready: (frame: Assembled) => void,
  ) {}

  /** Whether an object of this group could still be used. */
  wants(group: bigint): boolean {
    // A publisher that starts anew may count from a lower group: far below is not late.
    return group > this.#last || group + 1000n < this.#last;
  }

  add(group: bigint, description: number, object: Uint8Array<ArrayBuffer>): void {
    if (!this.wants(group) || description < 0 || description >= this.descriptions) return;
    const f = this.#frame(group);
    if (f.settled & (1 << description)) return; // fetched and subscribed both
    f.objects.push(object);
    this.#settle(f, description);
  }

  /** A description will not come: its stream was cut. */
  lost(group: bigint, description: number): void {
    if (!this.wants(group) || description < 0 || description >= this.descriptions) return;
    this.#settle(this.#frame(group), description);
  }

  #frame(group: bigint): Open {
    if (group < this.#last) this.#last = group - 1n;
    let f = this.#open.find((o) => o.group === group);
    if (!f) {
      f = { group, objects: [], settled: 0 };
      this.#open.push(f);
      this.#open.sort((a, b) => (a.group < b.group ? -1 : 1));
      if (this.#open.length > MAX_OPEN) this.#hand(this.#open[0]!);
    }
    return f;
  }

  #settle(f: Open, description: number): void {
    f.settled |= 1 << description;
    if (f.settled === (1 << this.descriptions) - 1) this.#hand(f);
  }

  #hand(f: Open): void {
    // Earlier frames go first, with what they have.
    for (const earlier of this.#open) {
      if (earlier.group > f.group) break;
      if (earlier.objects.length > 0) this.ready(earlier);
    }
    this.#open = this.#open.filter((o) => o.group > f.group);
    this.#last = f.group;
  }
}
