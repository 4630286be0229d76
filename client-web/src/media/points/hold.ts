/** Postpones calls and keeps their order. */
export class Hold {
  /** Time from adding a call to making it, ms. */
  by = 0;
  readonly #calls: { readonly at: number; readonly call: () => void }[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Makes a call after `by` and after the calls already waiting; at once if `by` is 0 and none is waiting. */
  add(call: () => void): void {
    if (this.by === 0 && this.#calls.length === 0) return call();
    this.#calls.push({ at: performance.now() + this.by, call });
    this.#timer ??= this.#wait();
  }

  #wait(): ReturnType<typeof setTimeout> {
    return setTimeout(() => {
      while (this.#calls.length > 0 && this.#calls[0]!.at <= performance.now()) this.#calls.shift()!.call();
      this.#timer = this.#calls.length > 0 ? this.#wait() : undefined;
    }, Math.max(0, this.#calls[0]!.at - performance.now()));
  }
}
