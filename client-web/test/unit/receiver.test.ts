import { readFileSync } from "node:fs";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Receiver } from "../../src/media/sound/receiver.ts";

const NOW = 1e12; // ms
const MICROPHONE = { name: "", position: undefined };
/** Table of contents of 10 ms of CELT, with one channel. */
const TOC = 0xf0;

function receiver(channels = 1, microphone: typeof MICROPHONE | undefined = MICROPHONE) {
  const decoded: string[] = [];
  const r = new Receiver({ codec: "opus", sampleRate: 48_000, channels, microphone }, {
    decode: (timestamp, data) => void decoded.push(`${timestamp / 10_000 - NOW / 10}:${data[1] ?? ""}`),
    restart: () => void decoded.push("restart"),
  });
  return { r, decoded };
}

/** Packet i, optionally with a copy of its predecessor. */
function packet(i: number, o: { data?: Uint8Array; previous?: Uint8Array; stamp?: bigint } = {}) {
  const other = new Map<number, bigint | Uint8Array>();
  other.set(0x10, o.stamp ?? BigInt(1000 * NOW + 10_000 * i));
  if (o.previous) other.set(0x68636175, o.previous);
  return { properties: { other }, payload: o.data ?? Uint8Array.of(TOC, i) };
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it("puts packets in order, and does not wait long for missing ones", () => {
  const { r, decoded } = receiver();
  for (const i of [0, 2, 4, 1]) r.add(packet(i), NOW, NOW, true);
  expect(decoded).toEqual(["0:0", "1:1", "2:2"]);
  vi.advanceTimersByTime(100);
  expect(decoded.at(-1)).toBe("4:4");
  r.add(packet(3), NOW, NOW, true);
  expect([decoded.length, r.late]).toEqual([4, 1]);
});

it.each<[string, number[], string[]]>([
  ["in order", [0, 1, 2], ["0:0", "1:1", "2:2"]],
  ["after a loss, from the copy in the next packet", [0, 2, 3], ["0:0", "1:1", "2:2", "3:3"]],
  ["after two losses", [0, 3], ["0:0", "2:2", "3:3"]],
  ["without duplicates and late packets", [0, 1, 1, 3, 2, 4], ["0:0", "1:1", "2:2", "3:3", "4:4"]],
  ["from a restarted publisher", [500, 0, 1], ["500:244", "restart", "0:0", "1:1"]],
])("decodes packets %s", (_, sent, want) => {
  const { r, decoded } = receiver();
  for (const i of sent) r.add(packet(i, { previous: Uint8Array.of(TOC, i - 1) }), NOW, NOW, true);
  vi.advanceTimersByTime(100);
  expect(decoded).toEqual(want);
  expect(r.refused).toBe(0);
});

it.each<[string, Parameters<typeof packet>[1], string]>([
  ["60 kB", { data: new Uint8Array(60_000).fill(TOC) }, "60000 bytes, more than 1275"],
  ["no bytes", { data: new Uint8Array(0) }, "no bytes"],
  ["20 ms", { data: Uint8Array.of(0xf8) }, "20 ms of sound instead of 10"],
  ["no frames", { data: Uint8Array.of(0xf3, 0) }, "0 ms of sound instead of 10"],
  ["stereo", { data: Uint8Array.of(TOC | 4, 0) }, "2 channels instead of 1"],
  ["a far timestamp", { stamp: BigInt(1000 * (NOW + 25_000)) }, "a timestamp 25 s after the session's clock"],
  ["an old timestamp", { stamp: 0n }, "a timestamp 1000000000 s before the session's clock"],
  ["a huge timestamp", { stamp: (1n << 62n) - 1n }, "a timestamp 4610686018427 s after the session's clock"],
  ["a large copy", { previous: new Uint8Array(1276).fill(TOC) }, "1276 bytes, more than 1275"],
])("refuses %s", (_, o, reason) => {
  const { r, decoded } = receiver();
  r.add(packet(0), NOW, NOW, true);
  r.add(packet(2, o), NOW, NOW, true);
  r.add(packet(3), NOW, NOW, true);
  vi.advanceTimersByTime(100);
  expect([r.refused, r.reason, decoded.at(-1)]).toEqual([1, reason, "3:3"]);
});

interface Vector {
  readonly name: string;
  readonly channels: number;
  readonly begin: string;
  readonly bytes: number;
  readonly ahead: number;
  readonly accepted: boolean;
}
const { cases } = JSON.parse(
  readFileSync(new URL("../../../internal/loc/testdata/opus-packets.json", import.meta.url), "utf8"),
) as { readonly cases: readonly Vector[] };

it.each(cases)("accepts or refuses as Go does: $name", ({ channels, begin, bytes, ahead, accepted }) => {
  const { r, decoded } = receiver(channels);
  const data = new Uint8Array(bytes);
  data.set(Buffer.from(begin, "hex"));
  r.add(packet(0, { data, stamp: BigInt(1000 * (NOW + ahead)) }), NOW, NOW, true);
  expect([decoded.length, r.refused]).toEqual(accepted ? [1, 0] : [0, 1]);
});

it("accepts at most 200 packets per second", () => {
  const { r, decoded } = receiver();
  for (let i = 0; i < 50_000; i++) r.add(packet(i % 900, { data: Uint8Array.of(TOC) }), NOW + i / 10, NOW, true);
  expect(decoded.length).toBeLessThan(1500);
  expect(r.reason).toBe("more than 200 packets per second");
  r.add(packet(950), NOW + 10_000, NOW, true);
  vi.runAllTimers();
  expect(decoded.at(-1)).toMatch(/^950:/);
});

it("does not compare a recording's timestamps with the clock", () => {
  const { r, decoded } = receiver();
  for (let i = 0; i < 3000; i++) r.add(packet(i), 2 * NOW, undefined, false);
  expect([decoded.length, r.refused]).toEqual([3000, 0]);
});

it("survives any packets", () => {
  let seed = 1;
  const random = (below: number) => Math.floor(((seed = (seed * 48271) % 2147483647) / 2147483647) * below);
  const bytes = () => Uint8Array.from({ length: [0, 1, 2, 100, 1275, 1276][random(6)]! }, () => random(256));
  for (const microphone of [MICROPHONE, undefined]) {
    const { r, decoded } = receiver(1 + random(2), microphone);
    for (let i = 0; i < 5000; i++) {
      const stamp = BigInt(Math.max(0, 1000 * NOW + 10_000 * i + (random(9) - 4) * 10 ** random(12)));
      const now = NOW + 10 * i;
      const live = random(2) === 0;
      r.add(packet(0, { data: bytes(), previous: bytes(), stamp }), now, live ? now : undefined, live);
      vi.advanceTimersByTime(random(20));
    }
    expect(decoded.length).toBeGreaterThan(0);
    expect(r.refused).toBeGreaterThan(0);
  }
});
