/** How far a sequence number may jump before it means that the publisher began again. */
const JUMP = 1024;

/** Finds frames that never came in the sequence numbers of one camera's frames. */
export class Sequence {
  #highest: number | undefined;
  received = 0;
  lost = 0;
  late = 0;

  /** What comes next has any number. */
  restart(): void {
    this.#highest = undefined;
  }

  /** Takes a frame's number, a u32 that wraps; loops: one that goes back begins anew, and is not late. */
  add(n: number, loops = false): void {
    this.received++;
    const d = this.#highest === undefined ? 1 : (n - this.#highest) | 0;
    if (loops && d <= 0) {
      this.#highest = n;
      return;
    }
    if (d > 0 && d <= JUMP) this.lost += d - 1;
    else if (d <= 0 && d > -JUMP / 8) {
      this.late++;
      if (d < 0 && this.lost > 0) this.lost--; // it was counted when a later frame overtook it
      return;
    }
    this.#highest = n;
  }
}
