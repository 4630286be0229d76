/** Number of calls that determine the median transit time. */
const RECENT = 31;
/** A transit time this far from the median belongs to another round of a replay, ms. */
const FAR = 1000;

interface Call {
  readonly at: number;
  readonly call: () => void;
}

/** Postpones frames and keeps their order. Times are in ms. */
export class Hold {
  /** How long to hold a frame. Late frames are held for less time, which evens out the picture rate. */
  by = 0;
  readonly #calls: Call[] = [];
  #transits: number[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  /**
   * Makes a call for a frame captured at `captured`, on any clock, or for none. The call is made after those already
   * waiting, and at once if `by` is 0 and none is waiting.
   */
  add(captured: number | undefined, call: () => void): void {
    const now = performance.now();
    const late = captured === undefined ? Infinity : this.#lateness(now - captured);
    if (this.by === 0 && this.#calls.length === 0) return call();
    const wait = Math.min(this.by, Math.max(0, this.by - late));
    this.#calls.push({ at: Math.max(this.#calls.at(-1)?.at ?? 0, now + wait), call });
    this.#timer ??= this.#wait();
  }

  /** A frame's transit time minus the median. */
  #lateness(transit: number): number {
    const typical = this.#typical;
    if (typical === undefined || Math.abs(transit - typical) > FAR) this.#transits = [];
    this.#transits.push(transit);
    if (this.#transits.length > RECENT) this.#transits.shift();
    return transit - this.#typical!;
  }

  get #typical(): number | undefined {
    return this.#transits.toSorted((a, b) => a - b)[this.#transits.length >> 1];
  }

  #wait(): ReturnType<typeof setTimeout> {
    return setTimeout(() => {
      while (this.#calls.length > 0 && this.#calls[0]!.at <= performance.now()) this.#calls.shift()!.call();
      this.#timer = this.#calls.length > 0 ? this.#wait() : undefined;
    }, Math.max(0, this.#calls[0]!.at - performance.now()));
  }
}
