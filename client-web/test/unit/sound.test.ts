import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { SoundTrack } from "../../src/media/sound/track.ts";
import { packetDuration, SoundDecoder } from "../../src/media/sound/decoder.ts";

const track = (codec: string): SoundTrack => ({
  track: "audio", codec, config: undefined, sampleRate: 48_000, channels: 2, microphone: undefined, timeout: 1000,
  group: 1000, timeline: undefined,
});

it.each([
  ["CELT, 20 ms", "opus", [0xfc], 20_000],
  ["CELT, 2.5 ms", "opus", [0xe0], 2500],
  ["two frames of SILK, 60 ms each", "opus", [0x19], 120_000],
  ["three frames of hybrid, 10 ms each", "opus", [0x63, 0x03], 30_000],
  ["no bytes", "opus", [], 10_000],
  ["AAC", "mp4a.40.2", [0xff], 1024e6 / 48_000],
])("gives the duration of a packet: %s", (_, codec, bytes, duration) => {
  expect(packetDuration(track(codec), Uint8Array.from(bytes))).toBe(duration);
});

const PACKET = 20_000; // µs
const SAMPLES = 960;
const packet = Uint8Array.of(0xfc);

/** A decoder that returns the packets' first bytes as samples, in pieces of a given size. */
class FakeDecoder {
  static all: FakeDecoder[] = [];
  static piece = SAMPLES;
  state = "unconfigured";
  #samples: number[] = [];

  constructor(private readonly init: { output(data: object): void; error(e: Error): void }) {
    FakeDecoder.all.push(this);
  }

  configure(): void {
    this.state = "configured";
  }

  decode({ data }: { data: Uint8Array }): void {
    if (data[1] === 0xff) throw new Error("damaged");
    this.#samples.push(...Array.from({ length: SAMPLES }, () => data[1] ?? 0));
  }

  /** Returns everything decoded. */
  drain(): void {
    while (this.#samples.length > 0) {
      const samples = this.#samples.splice(0, FakeDecoder.piece);
      this.init.output({
        sampleRate: 48_000, numberOfFrames: samples.length, numberOfChannels: 2,
        copyTo: (to: Float32Array) => to.set(samples), close() {},
      });
    }
  }

  close(): void {
    this.state = "closed";
  }
}

beforeEach(() => {
  FakeDecoder.all = [];
  FakeDecoder.piece = SAMPLES;
  vi.stubGlobal("AudioDecoder", FakeDecoder);
  vi.stubGlobal("EncodedAudioChunk", class { constructor(init: object) { Object.assign(this, init); } });
});
afterEach(() => void vi.unstubAllGlobals());

function decoder() {
  const got: { at: number; samples: number[] }[] = [];
  const bad: string[] = [];
  const decoder = new SoundDecoder(track("opus"), {
    block: ({ timestamp, channels }) => {
      expect(channels.map((c) => c.length)).toEqual([SAMPLES, SAMPLES]);
      got.push({ at: (1000 * timestamp) / PACKET, samples: [...new Set(channels[0])] });
    },
    bad: (message) => void bad.push(message),
  });
  return { got, bad, decoder };
}

it.each([
  ["without gaps", [0, 1, 2], SAMPLES],
  ["after lost packets", [0, 1, 5, 6, 9], SAMPLES],
  ["in small pieces", [0, 1, 2], 100],
  ["in large pieces", [0, 1, 2], 2000],
])("keeps the time of samples: %s", (_, times, piece) => {
  const { got, decoder: d } = decoder();
  FakeDecoder.piece = piece;
  for (const t of times) d.decode(t * PACKET, Uint8Array.of(0xfc, t));
  FakeDecoder.all[0]!.drain();
  expect(got).toEqual(times.map((t) => ({ at: t, samples: [t] })));
});

it("continues with another decoder after a damaged packet", () => {
  const { got, bad, decoder: d } = decoder();
  d.decode(0, packet);
  d.decode(PACKET, Uint8Array.of(0xfc, 0xff));
  d.decode(2 * PACKET, packet);
  for (const f of FakeDecoder.all) f.drain();
  expect(bad).toEqual(["damaged"]);
  expect(got.map((g) => g.at)).toEqual([2]);
  expect(FakeDecoder.all.map((f) => f.state)).toEqual(["closed", "configured"]);
});

it("returns nothing after it is closed", () => {
  const { got, decoder: d } = decoder();
  d.decode(0, packet);
  d.close();
  FakeDecoder.all[0]!.drain();
  expect(got).toEqual([]);
  expect(FakeDecoder.all[0]!.state).toBe("closed");
});
