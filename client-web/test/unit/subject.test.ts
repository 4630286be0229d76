import { expect, it } from "vitest";
import type { Frame } from "../../src/media/points/frame.ts";
import { subject } from "../../src/media/points/subject.ts";

const pose = { r: [1, 0, 0, 0, 1, 0, 0, 0, 1], t: [0, 0, 0] };

/** A square of side×side points, `apart` mm apart, at 1 m. Each point's place in the order is `order(k)`. */
function square(side: number, apart: number, order = (k: number) => k): Frame {
  const words = new Uint32Array(3 * side * side);
  for (let k = 0; k < side * side; k++) {
    const [x, y] = [apart * (k % side) - (apart * side) / 2, apart * Math.floor(k / side) - (apart * side) / 2];
    const i = 3 * order(k);
    words[i] = (x & 0xffff) | ((y & 0xffff) << 16);
    words[i + 1] = 1000;
  }
  return { points: side * side, words, form: "coordinates" } as unknown as Frame;
}

it("finds the distance between points in sensor order", () => {
  expect(subject(square(200, 4), undefined, pose)!.spacing).toBeCloseTo(4, 5);
});

it("bounds the distance between points in any order", () => {
  const side = 200;
  const spacing = subject(square(side, 4, (k) => (k * 7919) % (side * side)), undefined, pose)!.spacing;
  expect(spacing).toBeGreaterThanOrEqual(4);
  expect(spacing).toBeLessThan(8);
});

it.each([1, 2])("accepts a cloud with a side of %d", (side) => {
  const { spacing, middle } = subject(square(side, 10), undefined, pose)!;
  expect(spacing).toBeLessThanOrEqual(10);
  expect(middle[2]).toBe(1000);
});

it("finds nothing in an empty cloud", () => {
  expect(subject(square(0, 1), undefined, pose)).toBeUndefined();
});
