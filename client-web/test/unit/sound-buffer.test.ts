/** Tests decisions about sound with the vectors of internal/jitter. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { postpone, SoundBuffer, type Kind } from "../../src/media/sound/buffer.ts";

interface Vectors {
  readonly kinds: readonly Kind[];
  readonly splice: number;
  readonly cases: readonly {
    readonly name: string;
    readonly packet: number;
    readonly lead: number;
    readonly steps: readonly { readonly add?: readonly number[]; readonly next?: readonly number[] }[];
    readonly own: number;
    readonly stats: object;
  }[];
}
const { kinds, splice, cases } = JSON.parse(
  readFileSync(new URL("../../../internal/jitter/testdata/vectors.json", import.meta.url), "utf8"),
) as Vectors;

it.each(cases)("decides as Go does: $name", ({ packet, lead, steps, own, stats }) => {
  const buffer = new SoundBuffer<true>(packet, lead);
  steps.forEach(({ add, next }, i) => {
    if (add) return buffer.add(add[0]!, add[1]!, true, add[2] ? true : undefined);
    const [at, pictures] = [next![0]!, next![1]!];
    const d = buffer.decide(at, buffer.target(pictures === -1 ? undefined : pictures));
    if (d.stretch !== 0) buffer.stretched(splice);
    const got = [at, pictures, kinds.indexOf(d.kind), d.packet?.timestamp ?? 0, d.samples, Number(d.jump), d.stretch];
    expect(got, `step ${i}`).toEqual(next);
  });
  expect([buffer.own, buffer.stats]).toEqual([own, stats]);
});

describe("points", () => {
  it.each([
    [100_000, 60_000, 0],
    [100_000, 130_000, 30_000],
    [100_000, 900_000, 80_000],
  ])("delayed by %d µs wait for sound that needs %d µs", (pictures, own, by) => expect(postpone(pictures, own)).toBe(by));
});
