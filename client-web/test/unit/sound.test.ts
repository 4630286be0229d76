import { expect, it } from "vitest";
import { packetDuration } from "../../src/media/tiles/sound.ts";

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
