/** What a viewer asks for, GoP by GoP: gaze, capacity and sorting together, as internal/tile360/planner.go. */
import { Capacity } from "./capacity.ts";
import { Gaze } from "./gaze.ts";
import { DEFAULT_REFINE, ows, type Plan } from "./ows.ts";
import type { Look, View } from "./sphere.ts";

/** What is known of one GoP of all tiles. */
export interface Gop {
  /** Seconds on the medium's timeline. */
  readonly start: number;
  readonly duration: number;
  /** Distortion of the low-resolution sphere in each tile. */
  readonly miss: readonly number[];
  /** At [tile·qualities + quality]. */
  readonly bytes: readonly number[];
  readonly distortion: readonly number[];
  /** The quality of each tile that is there or under way, −1 where none is. */
  readonly have?: readonly number[];
}

export interface Request {
  /** Index in the GoPs planned for. */
  readonly gop: number;
  readonly tile: number;
  readonly quality: number;
}

/** The gaze is expected at so many moments of a GoP. */
const MOMENTS = 3;
/** Share of a GoP below which it is not worth asking for its tiles. */
const LEAST_REST = 0.25;
/** Percentiles of the predicted capacity that are planned with, and up to which further tiles are asked for. */
export const BUDGET_PERCENTILE = 10;
const SPARE_PERCENTILE = 50;

export class Planner {
  readonly capacity = new Capacity();
  /** What was chosen last within the budget. */
  chosen: Plan | undefined;

  /** latency: how long after a request its tile can be shown at the earliest, seconds. */
  constructor(
    public view: View,
    readonly qualities: number,
    public latency: number,
    readonly gaze = new Gaze(),
    private readonly refine = DEFAULT_REFINE,
  ) {}

  /**
   * Decides which tiles to ask for, in the order in which to have them sent. gops: those whose time is not over, the
   * one being shown first. seconds: until the last of them must be there. pending: bytes asked for that are to come.
   */
  plan(gops: readonly Gop[], seconds: number, pending: number): Request[] {
    const { tiles } = this.view.grid;
    const seen = new Float64Array(gops.length * tiles);
    const miss: number[] = [];
    const bytes: number[] = [];
    const distortion: number[] = [];
    gops.forEach((g, i) => {
      this.#expect(g, seen.subarray(i * tiles, (i + 1) * tiles));
      for (let t = 0; t < tiles; t++) {
        const have = g.have?.[t] ?? -1;
        miss.push(have >= 0 ? Math.min(g.miss[t]!, g.distortion[t * this.qualities + have]!) : g.miss[t]!);
        for (let q = 0; q < this.qualities; q++) bytes.push(q === have ? 0 : g.bytes[t * this.qualities + q]!);
      }
      distortion.push(...g.distortion);
    });
    const capacity = this.capacity.distribution(seconds).map((c) => c - pending);
    const problem = { qualities: this.qualities, seen, miss, bytes, distortion, capacity };
    const requests: Request[] = [];
    const ask = (plan: Plan): void => {
      for (const i of plan.order) requests.push({ gop: Math.floor(i / tiles), tile: i % tiles, quality: plan.quality[i]! });
    };
    const plan = ows({ ...problem, budget: this.capacity.percentile(BUDGET_PERCENTILE) * seconds - pending }, this.refine);
    this.chosen = plan;
    ask(plan);
    // What it left out follows: if the network does not carry that, it is late, and nothing before it is.
    for (const i of plan.order) bytes.fill(0, i * this.qualities, (i + 1) * this.qualities);
    ask(ows({ ...problem, budget: this.capacity.percentile(SPARE_PERCENTILE) * seconds - pending - plan.bytes }, this.refine));
    return requests;
  }

  /** Sets the share of the viewport that each tile is expected to fill while what is asked for now can be shown. */
  #expect(g: Gop, seen: Float64Array): void {
    const now = this.gaze.last.t;
    const end = g.start + g.duration;
    const from = Math.max(g.start, now + this.latency);
    const rest = (end - from) / g.duration;
    if (!(rest >= LEAST_REST)) return;
    const looks: Look[] = [];
    for (let i = 0; i < MOMENTS; i++) {
      const at = from + ((end - from) * (i + 0.5)) / MOMENTS;
      looks.push(...this.gaze.looks(Math.max(0, at - now), rest / MOMENTS));
    }
    this.view.expect(looks, seen);
  }
}
