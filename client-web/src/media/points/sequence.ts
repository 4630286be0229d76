/** A larger jump in the sequence number means that the publisher restarted. */
const JUMP = 1024;

/** Counts one camera's lost and late frames by sequence number. */
export class Sequence {
  #highest: number | undefined;
  received = 0;
  lost = 0;
  late = 0;
  /** Gaps caused by frames that the relay was asked not to send. */
  declined = 0;

  /** Forgets the last number, so that the next frame may have any number. */
  restart(): void {
    this.#highest = undefined;
  }

  /**
   * Adds a frame's number, a u32 that wraps. If `loops` is true, a lower number starts a new round
   * and is not late. `declined` is the number of preceding frames that the relay may have omitted.
   */
  add(n: number, loops = false, declined = 0): void {
    this.received++;
    const d = this.#highest === undefined ? 1 : (n - this.#highest) | 0;
    if (loops && d <= 0) {
      this.#highest = n;
      return;
    }
    if (d > 0 && d <= JUMP) {
      const unsent = Math.min(d - 1, declined);
      this.declined += unsent;
      this.lost += d - 1 - unsent;
    } else if (d <= 0 && d > -JUMP / 8) {
      this.late++;
      if (d < 0 && this.lost > 0) this.lost--; // counted as lost when a later frame arrived first
      return;
    }
    this.#highest = n;
  }
}
