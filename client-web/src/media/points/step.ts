/** Captures this close count as simultaneous, ms. Cameras that are not synchronized differ by up to a frame. */
const TOGETHER = 20;
/** Bounds on the time to wait for other cameras' frames, ms. */
const SHORTEST = 40;
const LONGEST = 200;
/** A camera whose frame is older than another's by this much is silent, ms. */
const SILENT = 1000;

/** A camera that is always late is waited for again after at most this many pictures. */
const MOST_SKIPPED = 64;

interface Capture {
  readonly camera: number;
  /** Capture time on the session's clock, ms. */
  readonly captured: number;
}

/** Shows the cameras' frames in step: a person captured at different times has limbs twice. Times are in ms. */
export class Step {
  readonly #shown = new Map<number, number>();
  #since: number | undefined;
  /** Pictures left to show without waiting, and their number after the next wait that times out. */
  #skip = 0;
  #backoff = 1;

  /**
   * Whether to show the frames that are ready, at local time `now`. `gap` is the time between pictures. If not, more
   * frames are expected soon.
   */
  ready(frames: Iterable<Capture>, cameras: readonly number[], now: number, gap: number): boolean {
    const times = new Map(this.#shown);
    let newest = -Infinity;
    let any = false;
    for (const { camera, captured } of frames) {
      times.set(camera, captured);
      newest = Math.max(newest, captured);
      any = true;
    }
    if (!any) {
      this.#since = undefined;
      return false;
    }
    this.#since ??= now;
    const wait = Math.min(LONGEST, Math.max(SHORTEST, gap));
    const behind = (c: number) => newest - (times.get(c) ?? -Infinity);
    const waits = cameras.some((c) => behind(c) > TOGETHER && behind(c) < SILENT);
    if (waits && this.#skip === 0 && now - this.#since < wait) return false;
    const waited = now > this.#since;
    this.#since = undefined;
    if (this.#skip > 0) {
      this.#skip--;
    } else if (waits) {
      this.#skip = this.#backoff;
      this.#backoff = Math.min(2 * this.#backoff, MOST_SKIPPED);
    } else if (waited) {
      this.#backoff = 1;
    }
    return true;
  }

  /** Call for each frame shown. */
  shown({ camera, captured }: Capture): void {
    this.#shown.set(camera, captured);
  }
}
