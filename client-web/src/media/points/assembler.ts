/** Assembles frames from their descriptions. Each group of a points track is one frame. */

/** A complete frame, or one whose remaining descriptions are lost. */
export interface Assembled {
  readonly group: bigint;
  /** The descriptions' objects in order of arrival. */
  readonly objects: Uint8Array<ArrayBuffer>[];
}

interface Open {
  readonly group: bigint;
  readonly objects: Uint8Array<ArrayBuffer>[];
  /** Bit i is set once description i has arrived or is lost. */
  settled: number;
}

/** Maximum number of incomplete frames; the oldest is completed early to make room. */
const MAX_OPEN = 4;

/**
 * Delivers a frame once all of its descriptions have arrived or are lost, or with the descriptions
 * it has when a later frame completes. Delivers every frame at most once and in order.
 */
export class Assembler {
  #open: Open[] = []; // ascending groups
  #last = -1n; // group delivered last

  constructor(
    private readonly descriptions: number,
    private readonly ready: (frame: Assembled) => void,
  ) {}

  /** False if the frame of this group was already delivered, or a later one was. */
  wants(group: bigint): boolean {
    // A group far below the newest is not late, since a restarted publisher may use lower group IDs.
    return group > this.#last || group + 1000n < this.#last;
  }

  add(group: bigint, description: number, object: Uint8Array<ArrayBuffer>, _id?: number): void {
    if (!this.wants(group) || description < 0 || description >= this.descriptions) return;
    const f = this.#frame(group);
    if (f.settled & (1 << description)) return; // both fetched and subscribed to
    f.objects.push(object);
    this.#settle(f, description);
  }

  /** Marks a description as lost because its stream was reset. */
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
    // Deliver earlier frames first, complete or not.
    for (const earlier of this.#open) {
      if (earlier.group > f.group) break;
      if (earlier.objects.length > 0) this.ready(earlier);
    }
    this.#open = this.#open.filter((o) => o.group > f.group);
    this.#last = f.group;
  }
}
