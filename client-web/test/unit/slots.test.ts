import { describe, expect, it } from "vitest";
import { Grid } from "../../src/media/tiles/sphere.ts";
import { Slots } from "../../src/scene/slots.ts";

describe("an atlas of tiles", () => {
  it.each([
    ["a sphere that fits", [8, 4, 3840, 1920], 1, 4096, 32],
    ["5.7K on a small GPU", [8, 4, 5760, 2880], 1, 4096, 25],
    ["8K on a small GPU", [8, 4, 7680, 3840], 1, 4096, 16],
    ["8K on a small GPU, two eyes", [8, 4, 7680, 3840], 2, 4096, 8],
    ["8K on a phone of 2048", [8, 4, 7680, 3840], 1, 2048, 4],
    ["tiles of uneven size that just exceed the limit", [6, 3, 4096, 2048], 1, 4096, 18],
    ["two eyes whose rows exceed the limit", [4, 2, 4096, 4096], 2, 4096, 4],
    ["a tile wider than the limit", [1, 1, 7680, 3840], 1, 4096, 0],
    ["a tile higher than the limit", [4, 1, 7680, 3840], 2, 4096, 0],
  ] as const)("%s", (_, [columns, rows, width, height], eyes, limit, count) => {
    const s = new Slots(new Grid(columns, rows, width, height), eyes, limit);
    expect(s.count).toBe(count);
    expect(Math.max(s.columns * s.width, s.rows * s.height)).toBeLessThanOrEqual(limit);
  });

  it("gives the slots of hidden tiles to others, the longest unused first", () => {
    const s = new Slots(new Grid(4, 1, 64, 16), 1, 32); // two slots of 16×16, in each of two rows
    const shown = new Set([0, 1, 2, 3]);
    const take = (t: number) => s.take(t, (x) => shown.has(x));
    expect([s.count, take(0), take(1), take(2), take(3)]).toEqual([4, 0, 1, 2, 3]);
    const few = new Slots(new Grid(4, 1, 64, 16), 1, 16);
    const takes = (t: number) => few.take(t, (x) => shown.has(x));
    expect([few.count, takes(0), takes(1), few.of(1)]).toEqual([1, 0, -1, -1]); // tile 0 is shown
    shown.delete(0);
    expect([takes(1), few.of(0), few.of(1)]).toEqual([0, -1, 0]);
    const two = new Slots(new Grid(2, 2, 32, 32), 2, 32);
    const hidden = (t: number) => two.take(t, () => false);
    expect([two.count, hidden(0), hidden(1), hidden(0), hidden(2)]).toEqual([2, 0, 1, 0, 1]);
    expect([two.of(1), two.of(0)]).toEqual([-1, 0]);
  });
});
