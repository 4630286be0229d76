/** How long a picture may take before fewer points are drawn, and how short one must be for more again, ms. */
const SLOW = 250;
const QUICK = 100;
/** Pictures that are judged together, by their median: a single stall is not the GPU's doing. */
const TOGETHER = 3;
/** How many times fewer points are tried at once, and what share of the time that must save: a picture is more than its points. */
const THINNER = 4;
const WORTH = 0.25;
/** Rounds before a change that was for the worse, or for nothing, is tried again; doubled each time. */
const PATIENCE = 4;
const MOST_PATIENCE = 64;
/** Greatest stride. */
const COARSEST = 64;
interface Picture {
  readonly fence: WebGLSync;
  readonly submitted: number;
}

/**
 * Pictures submitted to the GPU and not finished. Without this check pictures queue in a slow driver, and a frame is
 * seen only after all before it. Times are local milliseconds.
 */
export class GpuQueue {
  /** Every stride-th point is to be drawn, so that pictures finish in time. */
  stride = 1;
  /** Time that the last picture took, from its commands to its end. */
  took = 0;
  readonly #pictures: Picture[] = []; // oldest first
  #finished = 0;
  readonly #times: number[] = [];
  /** The stride before the last change, and the median time then. */
  #change: { readonly stride: number; readonly median: number } | undefined;
  #wait = 0;
  #patience = PATIENCE;

  constructor(private readonly gl: WebGL2RenderingContext) {}

  /**
   * Whether a picture submitted now would queue. Polls the fences. With one picture ahead the GPU never waits; with a
   * slow one a picture ahead would only get old.
   */
  busy(now: number): boolean {
    for (let p = this.#pictures[0]; p && this.#done(p); p = this.#pictures[0]) {
      this.#pictures.shift();
      this.gl.deleteSync(p.fence);
      this.took = now - Math.max(p.submitted, this.#finished);
      this.#finished = now;
      this.#judge();
    }
    return this.#pictures.length >= (this.took < SLOW ? 2 : 1);
  }

  #done(p: Picture): boolean {
    return this.gl.isContextLost() || this.gl.getSyncParameter(p.fence, this.gl.SYNC_STATUS) === this.gl.SIGNALED;
  }

  /** Call after the commands of a picture were issued. */
  submitted(now: number): void {
    const fence = this.gl.fenceSync(this.gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
    if (!fence) return; // the context is lost
    this.gl.flush();
    this.#pictures.push({ fence, submitted: now });
  }

  #judge(): void {
    this.#times.push(this.took);
    if (this.#times.length < TOGETHER) return;
    const median = this.#times.sort((a, b) => a - b)[TOGETHER >> 1]!;
    this.#times.length = 0;
    const change = this.#change;
    this.#change = undefined;
    if (change && (change.stride < this.stride ? median > (1 - WORTH) * change.median : median > SLOW)) {
      this.stride = change.stride;
      this.#wait = this.#patience;
      this.#patience = Math.min(2 * this.#patience, MOST_PATIENCE);
    } else if (this.#wait > 0) {
      this.#wait--;
    } else if (median > SLOW && this.stride < COARSEST) {
      this.#try(Math.min(COARSEST, THINNER * this.stride), median);
    } else if (median < QUICK && this.stride > 1) {
      this.#try(this.stride / 2, median);
    }
  }

  #try(stride: number, median: number): void {
    this.#change = { stride: this.stride, median };
    this.stride = stride;
  }
}
