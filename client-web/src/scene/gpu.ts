/** Drawing time, in ms, above which only one picture may be in flight. */
const SLOW = 250;
/** Number of drawing times whose median is judged, since a single stall need not be the GPU's fault. */
const TOGETHER = 3;
/** Factor by which one step thins out the points. */
const THINNER = 4;
/** Share of the drawing time that a step must save to be kept. Part of the cost is fixed. */
const WORTH = 0.25;
/** Number of medians to wait before retrying a change without effect. It doubles with each failure. */
const RETRY_AFTER = 4;
const MAX_RETRY_AFTER = 64;
/** Drawing times, in ms, above which fewer points are drawn and below which more are drawn. */
export interface Limits {
  readonly slow: number;
  readonly quick: number;
  /** Maximum stride. */
  readonly coarsest: number;
}

interface Picture {
  readonly fence: WebGLSync;
  readonly submitted: number;
}

/**
 * Tracks the pictures submitted to the GPU, and limits those in flight. Without a limit, pictures
 * queue up in a slow driver, and each frame is seen only after all earlier ones. Times are local,
  * in milliseconds.
 */
export class GpuQueue {
  /** Every stride-th point is drawn, to keep the drawing time bounded. */
  stride = 1;
  /** GPU time of the last picture: from its submission, or the previous completion if later, to its completion. */
  took = 0;
  readonly #pictures: Picture[] = []; // oldest first
  #finished = 0;
  readonly #times: number[] = [];
  /** The stride before the last change, and the longest median duration to accept. */
  #change: { readonly stride: number; readonly most: number } | undefined;
  #wait = 0;
  /** Number of medians between `quick` and `slow` at this stride. */
  #steady = 0;
  #retryAfter = RETRY_AFTER;

  constructor(
    private readonly gl: WebGL2RenderingContext,
    private limits: Limits,
  ) {}

  limit(limits: Limits): void {
    this.limits = limits;
    this.stride = Math.min(this.stride, limits.coarsest);
    this.#change = undefined;
  }

  /**
   * Polls the fences and returns true if no further picture may be submitted. Two may be in flight,
   * so that the GPU never waits for the next one; on a slow GPU only one, as a second only adds delay.
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

  /** Call after submitting a picture's commands. */
  submitted(now: number): void {
    const fence = this.gl.fenceSync(this.gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
    if (!fence) return; // context lost
    this.gl.flush();
    this.#pictures.push({ fence, submitted: now });
  }

  #judge(): void {
    const { slow, quick, coarsest } = this.limits;
    this.#times.push(this.took);
    if (this.#times.length < TOGETHER) return;
    const median = this.#times.sort((a, b) => a - b)[TOGETHER >> 1]!;
    this.#times.length = 0;
    const change = this.#change;
    this.#change = undefined;
    if (change && median > change.most) {
      this.stride = change.stride;
      this.#wait = this.#retryAfter;
      this.#retryAfter = Math.min(2 * this.#retryAfter, MAX_RETRY_AFTER);
    } else if (this.#wait > 0) {
      this.#wait--;
    } else if (median > slow && this.stride < coarsest) {
      this.#try(Math.min(coarsest, THINNER * this.stride), (1 - WORTH) * median);
    } else if (median < quick && this.stride > 1) {
      this.#try(this.stride / 2, slow);
    } else if (median <= slow && this.stride > 1 && ++this.#steady >= this.#retryAfter) {
      this.#try(this.stride / 2, Math.min(slow, median / (1 - WORTH))); // if the points cost little
    }
  }

  #try(stride: number, most: number): void {
    this.#change = { stride: this.stride, most };
    this.stride = stride;
    this.#steady = 0;
  }
}
