import { readFileSync } from "node:fs";
import { describe, expect, it, vi } from "vitest";
import {
  addParts,
  noParts,
  partOf,
  PartsAssembler,
  PartsReceiver,
  type Part,
  type PartsCounts,
  type PartsRequest,
  type Payload,
} from "../../src/media/points/parts.ts";

interface Vector {
  readonly name: string;
  readonly max_payload: number;
  readonly timeout_ms: number;
  readonly rtt_ms: number;
  readonly limit: number;
  readonly steps: readonly {
    readonly at_ms: number;
    readonly part?: { group: number; object: number; bytes: string; length?: number; end?: boolean; fetched?: boolean };
    readonly expect?: { group: number; last: number };
    readonly whole?: readonly { group: number; object: number; bytes: string }[];
    readonly ask?: readonly { group: number; first: number; last: number }[];
  }[];
  readonly stats: Partial<PartsCounts>;
}

const hex = (b: Uint8Array): string => Buffer.from(b).toString("hex");
const part = (group: number, object: number, bytes: Uint8Array, length?: number, endOfGroup = false): Part => ({
  group: BigInt(group),
  object: BigInt(object),
  endOfGroup,
  length: length === undefined ? undefined : BigInt(length),
  payload: bytes,
});

describe("frames in datagrams", () => {
  const { cases } = JSON.parse(
    readFileSync(new URL("../../../internal/parts/testdata/assembler.json", import.meta.url), "utf8"),
  ) as { cases: Vector[] };
  it.each(cases.map((c) => [c.name, c] as const))("%s", (_, c) => {
    const a = new PartsAssembler(c.max_payload, c.timeout_ms);
    for (const s of c.steps) {
      const now = 1e12 + s.at_ms;
      if (s.expect) a.expect(BigInt(s.expect.group), BigInt(s.expect.last), now);
      const p = s.part;
      const payloads = p
        ? a.add(part(p.group, p.object, Buffer.from(p.bytes, "hex"), p.length, p.end), p.fetched ?? false, now)
        : [];
      expect(payloads.map((w) => ({ group: Number(w.group), object: w.object, bytes: hex(w.payload) }))).toEqual(
        s.whole ?? [],
      );
      expect(
        a.due(now, c.rtt_ms, c.limit).map((r) => ({ group: Number(r.group), first: r.first, last: r.last })),
      ).toEqual(s.ask ?? []);
    }
    a.close();
    expect(a.counts).toEqual({ ...noParts(), ...c.stats });
    expect(a.bytes).toBe(0);
  });

  it("reads properties of datagrams and fetched objects", () => {
    const properties = { other: new Map<number, bigint | Uint8Array>([[0x6863706c, 9n]]) };
    const payload = Uint8Array.of(1);
    expect(
      partOf({
        alias: 1n, group: 2n, object: 3n, priority: 96, endOfGroup: true, status: "normal", properties, payload,
      }),
    ).toEqual({ group: 2n, object: 3n, endOfGroup: true, length: 9n, payload });
    expect(
      partOf({ group: 2n, subgroup: 0n, id: 4n, status: "normal", properties: {}, payload, datagram: true }),
    ).toEqual({ group: 2n, object: 4n, endOfGroup: false, length: undefined, payload });
  });

  it("fetches missing parts, a few at a time, and uses the answers", async () => {
    vi.useFakeTimers();
    try {
      const payloads: Payload[] = [];
      const asked: PartsRequest[] = [];
      const answers: (() => void)[] = [];
      const r: PartsReceiver = new PartsReceiver(
        4096,
        500,
        () => 20,
        (w) => payloads.push(w),
        (q) => {
          asked.push(q);
          return new Promise((resolve) => answers.push(resolve));
        },
        () => performance.now(),
      );
      const parts = Array.from({ length: 40 }, (_, i) =>
        part(1, i, Uint8Array.of(i), i === 0 ? 40 : undefined, i === 39),
      );
      for (const p of parts) if (p.object % 4n !== 1n || p.object > 36n) r.add(p, false);
      expect(asked.map((q) => [q.first, q.last])).toEqual([1, 5, 9, 13, 17, 21, 25, 29].map((i) => [i, i]));
      r.add(parts[1]!, true);
      answers[0]!();
      await vi.advanceTimersByTimeAsync(0);
      expect(asked.slice(8).map((q) => [q.first, q.last])).toEqual([[33, 33]]);
      for (const p of parts) if (p.object % 4n === 1n && p.object !== 1n) r.add(p, true);
      expect(payloads.map((w) => [...w.payload])).toEqual([Array.from({ length: 40 }, (_, i) => i)]);
      for (const answer of answers) answer();
      await vi.advanceTimersByTimeAsync(0);
      // The end of the next payload is lost, so the timer requests it.
      r.add(part(2, 0, Uint8Array.of(1), 2), false);
      await vi.advanceTimersByTimeAsync(20);
      expect(asked.at(-1)).toEqual({ group: 2n, first: 1, last: 1 });
      r.close();
      r.add(part(2, 1, Uint8Array.of(2)), true);
      expect(payloads.length).toBe(1);
      const sum = noParts();
      addParts(sum, r.assembler.counts);
      expect(sum).toMatchObject({ frames: 1, repaired: 1, abandoned: 1, parts_lost: 1, requests: 10 });
      await vi.advanceTimersByTimeAsync(5000);
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });
});
