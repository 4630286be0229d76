/** Tests geometry, prediction and tile selection with the vectors of internal/tile360. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { Capacity, Train } from "../../src/media/tiles/capacity.ts";
import { Crowd, Gaze } from "../../src/media/tiles/gaze.ts";
import { ows, type Problem } from "../../src/media/choice/ows.ts";
import { BUDGET_PERCENTILE, Planner, type Gop } from "../../src/media/tiles/planner.ts";
import { angles, equirect, Grid, View, type Vec } from "../../src/media/tiles/sphere.ts";

const read = <T>(name: string): T =>
  JSON.parse(readFileSync(new URL(`../../../internal/tile360/testdata/${name}.json`, import.meta.url), "utf8")) as T;

interface GridOf {
  columns: number;
  rows: number;
  width: number;
  height: number;
}
interface ViewOf {
  fieldOfView: [number, number];
  samples: number;
}
interface CrowdOf {
  rate: number;
  viewers: Vec[][];
}
const gridOf = (g: GridOf) => new Grid(g.columns, g.rows, g.width, g.height);
const viewOf = (g: GridOf, v: ViewOf) =>
  new View(gridOf(g), (v.fieldOfView[0] * Math.PI) / 180, (v.fieldOfView[1] * Math.PI) / 180, v.samples);
const gazeOf = (c: CrowdOf | undefined) => new Gaze(c && new Crowd(c.rate, c.viewers));

/** Compares numbers with a relative tolerance of 10⁻⁹. */
function near(got: unknown, want: unknown, at = "$"): void {
  if (typeof want === "number") {
    expect(Math.abs((got as number) - want), `${at}: ${String(got)}, want ${want}`).toBeLessThanOrEqual(
      1e-9 * Math.max(1, Math.abs(want)),
    );
  } else {
    const [g, w] = [Array.from(got as number[]), want as unknown[]];
    expect(g.length, at).toBe(w.length);
    w.forEach((v, i) => near(g[i], v, `${at}[${i}]`));
  }
}

describe("geometry vectors", () => {
  const v = read<{
    directions: { direction: Vec; yaw: number; pitch: number; picture: number[] }[];
    grids: (GridOf & { rects: number[][]; solidAngles: number[]; tiles: number[] })[];
    viewports: (GridOf & ViewOf & { looks: { direction: Vec; p: number }[]; share: number[]; seen: number[] })[];
  }>("geometry");
  it("directions", () =>
    v.directions.forEach((c) => near([angles(c.direction), equirect(c.direction)], [[c.yaw, c.pitch], c.picture])));
  it.each(v.grids)("grid of $columns×$rows, $width×$height", (c) => {
    const g = gridOf(c);
    const all = Array.from({ length: g.tiles }, (_, t) => t);
    expect(all.map((t) => Object.values(g.rect(t)))).toEqual(c.rects);
    near(all.map((t) => g.solidAngle(t)), c.solidAngles);
    expect(v.directions.map((d) => g.at(...equirect(d.direction)))).toEqual(c.tiles);
  });
  it.each(v.viewports)("viewport of $fieldOfView on $columns×$rows", (c) => {
    const share = new Float64Array(c.share.length);
    const seen = new Float64Array(c.seen.length);
    viewOf(c, c).expect(c.looks.map((l) => ({ gaze: l.direction, p: l.p })), share, seen);
    near(share, c.share, "share");
    near(seen, c.seen, "seen");
  });
});

describe("prediction vectors", () => {
  const all = read<(GridOf & {
    samples: { t: number; gaze: Vec }[] | null;
    crowd?: CrowdOf;
    view: ViewOf;
    ahead: { seconds: number; linear: Vec; predict: Vec; share: number[] }[];
  })[]>("prediction");
  it.each(all.map((c, i) => [i, c] as const))("%d", (_, c) => {
    const gaze = gazeOf(c.crowd);
    for (const s of c.samples ?? []) gaze.add(s.t, s.gaze);
    const view = viewOf(c, c.view);
    for (const a of c.ahead) {
      near([gaze.linear(a.seconds), gaze.predict(a.seconds)], [a.linear, a.predict], `${a.seconds} s`);
      const share = new Float64Array(a.share.length);
      view.expect(gaze.gazes(a.seconds, 1), share);
      near(share, a.share, `share after ${a.seconds} s`);
    }
  });
});

describe("OWS vectors", () => {
  type PlanOf = { quality: number[]; order: number[]; bytes: number; loss: number; bound: number; expected: number };
  const all = read<(Problem & { name: string; plans: Record<"ows" | "greedy", PlanOf> })[]>("ows");
  it.each(all)("$name", (c) => {
    for (const [name, refine] of [["ows", undefined], ["greedy", 0]] as const) {
      const { quality, order, ...figures } = ows(c, refine);
      const want = c.plans[name];
      expect([quality, order], name).toEqual([want.quality, want.order]);
      for (const f of ["bytes", "loss", "bound", "expected"] as const) near(figures[f], want[f], `${name}: ${f}`);
    }
  });
  it("takes a small part of a GoP for 32 tiles", () => {
    const c = all.find((o) => o.name === "8×4×3")!;
    const began = performance.now();
    for (let i = 0; i < 100; i++) ows(c);
    console.log(`OWS of 32 tiles: ${((performance.now() - began) / 100).toFixed(2)} ms`);
  });
});

describe("planner vectors", () => {
  const all = read<(GridOf & {
    view: ViewOf;
    qualities: number;
    latency: number;
    crowd?: CrowdOf;
    steps: {
      samples: { t: number; gaze: Vec }[] | null;
      rates: number[] | null;
      mean: number;
      p10: number;
      gops: Gop[];
      seconds: number;
      pending: number;
      requests: [number, number, number][];
      chosen: { loss: number; bound: number; expected: number };
    }[];
  })[]>("planner");
  it.each(all.map((c, i) => [i, c] as const))("%d", (_, c) => {
    const p = new Planner(viewOf(c, c.view), c.qualities, c.latency, gazeOf(c.crowd));
    c.steps.forEach((s, i) => {
      for (const x of s.samples ?? []) p.gaze.add(x.t, x.gaze);
      for (const r of s.rates ?? []) p.capacity.add(r);
      near([p.capacity.mean, p.capacity.percentile(BUDGET_PERCENTILE)], [s.mean, s.p10], `step ${i}: capacity`);
      expect(
        p.plan(s.gops, s.seconds, s.pending).map((r) => [r.gop, r.tile, r.quality]),
        `step ${i}`,
      ).toEqual(s.requests);
      const { loss, bound, expected } = p.chosen!;
      near([loss, bound, expected], [s.chosen.loss, s.chosen.bound, s.chosen.expected], `step ${i}: chosen`);
    });
  });
});

describe("capacity", () => {
  it("discards a guess once a rate is measured", () => {
    const c = new Capacity();
    expect([c.guess(100), c.guess(200), c.mean]).toEqual([true, true, 200]);
    expect(c.percentile(10)).toBeGreaterThan(0);
    c.add(900);
    expect([c.mean, c.guess(100), c.mean]).toEqual([900, false, 900]);
  });
  it("measures the rate at which a GoP's first frames arrive", () => {
    const t = new Train();
    expect(t.rate(0n)).toBe(0);
    for (let i = 0; i <= 10; i++) {
      t.add(1000 + 10 * i, 900, 5n, true);
      t.add(1005 + 10 * i, 100, 5n, false);
    }
    t.add(1200, 1000, 5n, false);
    t.add(1300, 1000, 4n, true); // late
    expect([t.rate(5n), t.rate(4n), t.rate(6n)]).toEqual([100_000, 0, 0]);
    t.add(2000, 2000, 6n, true);
    expect(t.rate(6n)).toBe(0); // only one frame
  });
});
