import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { packetDuration, Sound } from "../../src/media/tiles/sound.ts";

const track = (codec: string) => ({ track: "audio", codec, config: undefined, sampleRate: 48_000, channels: 2 });

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
const packet = Uint8Array.of(0xfc);

/** A decoder that counts samples from its first packet on, as browsers' decoders do. */
class FakeDecoder {
  static all: FakeDecoder[] = [];
  state = "unconfigured";
  #next: number | undefined;
  readonly #queued: number[] = [];

  constructor(private readonly init: { output(data: object): void }) {
    FakeDecoder.all.push(this);
  }

  configure(): void {
    this.state = "configured";
  }

  decode({ timestamp }: { timestamp: number }): void {
    this.#next ??= timestamp;
    this.#queued.push(this.#next);
    this.#next += PACKET;
  }

  async flush(): Promise<void> {
    await Promise.resolve();
    if (this.state === "closed") throw new Error("closed");
    for (const timestamp of this.#queued.splice(0))
      this.init.output({ timestamp, sampleRate: 48_000, numberOfChannels: 0, close() {} });
  }

  close(): void {
    this.state = "closed";
  }
}

beforeEach(() => {
  FakeDecoder.all = [];
  vi.stubGlobal("AudioDecoder", FakeDecoder);
  vi.stubGlobal("EncodedAudioChunk", class { constructor(init: object) { Object.assign(this, init); } });
});
afterEach(() => void vi.unstubAllGlobals());

/** Decodes packets at times given in packet durations. Returns the times of the samples, and the sound. */
function decode(...times: number[]) {
  const got: number[] = [];
  const sound = new Sound(track("opus"), {
    samples: ({ timestamp }) => void got.push(timestamp / PACKET),
    bad: (message) => expect.unreachable(message),
  });
  for (const t of times) sound.decode(t * PACKET, packet);
  return { got, sound };
}

it.each([
  ["without gaps", [0, 1, 2]],
  ["after lost packets", [0, 1, 5, 6, 9]],
  ["after an overlap", [0, 1, 1.5, 2.5]],
  ["after a loop", [7, 8, 0, 1]],
])("keeps the time of samples: %s", async (_, times) => {
  const { got } = decode(...times);
  await FakeDecoder.all.at(-1)!.flush();
  expect(got).toEqual(times);
});

it("returns nothing after it is closed, and releases its decoders", async () => {
  const { got, sound } = decode(0, 1, 5);
  sound.close();
  await Promise.allSettled(FakeDecoder.all.map((d) => d.flush()));
  expect(got).toEqual([]);
  expect(FakeDecoder.all.map((d) => d.state)).toEqual(["closed", "closed"]);
});

it("releases a decoder before a gap once it has returned its samples", async () => {
  const { got } = decode(0, 5);
  await new Promise((resolve) => setTimeout(resolve));
  expect(got).toEqual([0]);
  expect(FakeDecoder.all.map((d) => d.state)).toEqual(["closed", "configured"]);
});
