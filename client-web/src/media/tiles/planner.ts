/** Plans tile requests per GoP from gaze, capacity and OWS, like internal/tile360/planner.go. */
import { Capacity } from "./capacity.ts";
import { Gaze } from "./gaze.ts";
import { DEFAULT_REFINE, ows, type Plan } from "../choice/ows.ts";
import type { PossibleGaze, View } from "./sphere.ts";

/** Planner input for one GoP. */
export interface Gop {
  /** Seconds of media time. */
  readonly start: number;
  readonly duration: number;
  /** Distortion of the base sphere, per tile. */
  readonly miss: readonly number[];
  /** Indexed by tile·qualities + quality. */
  readonly bytes: readonly number[];
  readonly distortion: readonly number[];
  /** Quality of each tile received or in transit; −1 = none. */
  readonly have?: readonly number[];
}

export interface Request {
  /** Index into the planned GoPs. */
  readonly gop: number;
  readonly tile: number;
  readonly quality: number;
}

/** Number of moments per GoP at which the gaze is predicted. */
const MOMENTS = 3;
/** Share of a GoP that must remain for its tiles to be worth requesting. */
const MIN_REST = 0.25;
/** Percentiles of the predicted capacity that limit the budget, and the additional tiles beyond it. */
export const BUDGET_PERCENTILE = 10;
const SPARE_PERCENTILE = 50;

export class Planner {
  readonly capacity = new Capacity();
  /** The last plan within the budget. */
  chosen: Plan | undefined;

  /** `latency` is the minimum time, in seconds, from a request until its tile can be shown. */
  constructor(
    public view: View,
    readonly qualities: number,
    public latency: number,
    readonly gaze = new Gaze(),
    private readonly refine = DEFAULT_REFINE,
  ) {}

  /**
   * Chooses the tiles to request, in order. `gops` are the GoPs not yet over, `seconds` is the
   * time until all must have arrived, and `pending` counts bytes requested but not received.
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
      for (const i of plan.order)
        requests.push({ gop: Math.floor(i / tiles), tile: i % tiles, quality: plan.quality[i]! });
    };
    const plan = ows(
      { ...problem, budget: this.capacity.percentile(BUDGET_PERCENTILE) * seconds - pending },
      this.refine,
    );
    this.chosen = plan;
    ask(plan);
    // Additional tiles come last, so only they are late if the network cannot carry them.
    for (const i of plan.order) bytes.fill(0, i * this.qualities, (i + 1) * this.qualities);
    ask(
      ows(
        { ...problem, budget: this.capacity.percentile(SPARE_PERCENTILE) * seconds - pending - plan.bytes },
        this.refine,
      ),
    );
    return requests;
  }

  /**
   * Computes each tile's expected share of the viewport during the part of the GoP in which tiles
   * requested now can be shown, times that part's share of the GoP.
   */
  #expect(g: Gop, seen: Float64Array): void {
    const now = this.gaze.last.t;
    const end = g.start + g.duration;
    const from = Math.max(g.start, now + this.latency);
    const rest = (end - from) / g.duration;
    if (!(rest >= MIN_REST)) return;
    const gazes: PossibleGaze[] = [];
    for (let i = 0; i < MOMENTS; i++) {
      const at = from + ((end - from) * (i + 0.5)) / MOMENTS;
      gazes.push(...this.gaze.gazes(Math.max(0, at - now), rest / MOMENTS));
    }
    this.view.expect(gazes, seen);
  }
}
