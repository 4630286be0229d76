import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import type { Transform } from "../../src/media/points/track.ts";
import { ahead, choose, chooseAtLevel, surface, worth, type View } from "../../src/media/points/viewselect.ts";

interface Vectors {
  surfaces: {
    rays: [number, number][];
    width: number;
    depth: number[];
    pose: Transform;
    stride: number;
    samples: number[][];
  }[];
  worths: {
    cameras: number[][][];
    views: (View & { velocity: [number, number, number]; turn: number; after: number })[];
    worth: number[];
  }[];
  choices: {
    worth: number[];
    rates: number[][];
    errors: number[][];
    budget: number;
    current: number[] | null;
    choice: number[];
  }[];
}

const vectors = JSON.parse(
  readFileSync(new URL("../../../internal/viewselect/testdata/vectors.json", import.meta.url), "utf8"),
) as Vectors;
const NO_RAY = 1e9;

test.each(vectors.surfaces.map((c, i) => ({ i, ...c })))("surface $i", (c) => {
  const { rays, width, depth, pose, stride, samples } = c;
  const table = Float32Array.from(rays.flatMap(([x, y]) => [x === NO_RAY ? NaN : x, y]));
  const got = surface(table, width, (i) => depth[i]!, pose, stride);
  expect(got.length).toBe(11 * samples.length);
  for (const [i, want] of samples.flat().entries())
    expect(Math.abs(got[i]! - want)).toBeLessThanOrEqual(1e-6 * Math.max(1, Math.abs(want)));
});

test.each(vectors.worths.map((c, i) => ({ i, ...c })))("worth $i", ({ cameras, views, worth: want }) => {
  const all = views.flatMap((v) => ahead(v, v.velocity, v.turn, v.after));
  const got = worth(cameras.map((samples) => Float32Array.from(samples.flat())), all);
  for (const [i, w] of want.entries()) expect(got[i]).toBeCloseTo(w, 9);
});

test.each(vectors.choices.map((c, i) => ({ i, ...c })))("choice $i", (c) => {
  const options = c.rates.map((list, i) => list.map((rate, q) => ({ rate, error: c.errors[i]![q]! })));
  expect(choose(c.worth, options, c.budget, c.current ?? undefined)).toEqual(c.choice);
});

test.each([
  { name: "more for the camera in view", worths: [0.8, 0.1], level: 1, errors: [0, 10, 40], want: [1, 1] },
  { name: "the best where the rate allows it", worths: [0.8, 0], level: 1, errors: [0, 1000, 1001], want: [1, 1] },
  { name: "nothing below the cheapest", worths: [0.8, 0.1], level: 2, errors: [0, 10, 40], want: [2, 2] },
  { name: "unknown errors", worths: [0.9, 0], level: 1, errors: [undefined, undefined, undefined], want: [1, 1] },
])("level: $name", ({ worths, level, errors, want }) => {
  const list = [70e6, 4e6, 2e6].map((bitrate, i) => ({ bitrate, error: errors[i] }));
  expect(chooseAtLevel(worths, [list, list], level, undefined)).toEqual(want);
});

test("level: spends the rate of an invisible camera on the visible one", () => {
  const list = [6e6, 4e6, 2e6].map((bitrate, i) => ({ bitrate, error: [0, 10, 40][i]! }));
  expect(chooseAtLevel([0.9, 0], [list, list], 1, undefined)).toEqual([0, 2]);
  expect(chooseAtLevel([0, 0.9], [list, list], 1, [0, 2])).toEqual([2, 0]);
  expect(chooseAtLevel([0.5, 0.5], [list, list.slice(0, 2)], 1, undefined)).toEqual([1, 1]);
});
