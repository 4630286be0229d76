/** A greater jump of the sequence number means that the publisher restarted. */
const JUMP = 1024;

/** Counts lost and late frames by one camera's sequence numbers. */
export class Sequence {
  #highest: number | undefined;
  received = 0;
  lost = 0;
  late = 0;
  /** Missing frames that the relay was asked not to send. */
  declined = 0;

  /** The next frame may have any number. */
  restart(): void {
    this.#highest = undefined;
  }

  /**
   * Takes a frame's number, a u32 that wraps. loops: one that goes back begins anew, and is not late. declined: how
   * many before it need not have been sent.
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
      if (d < 0 && this.lost > 0) this.lost--; // it was counted when a later frame overtook it
      return;
    }
    this.#highest = n;
  }
}
