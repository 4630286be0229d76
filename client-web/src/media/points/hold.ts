/** Postpones calls and keeps their order. */
export class Hold {
  /** Time from adding a call to making it, ms. */
  by = 0;
  readonly #calls: { readonly at: number; readonly call: () => void }[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Postpones a call by `by`, behind the calls already waiting. Without either, makes it immediately. */
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
