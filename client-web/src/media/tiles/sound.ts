/** Durations of sound packets. */
import type { SoundTrack } from "./track.ts";

/** Samples of an AAC-LC packet. */
const AAC_SAMPLES = 1024;
/** Durations of Opus frames, ms, by mode (RFC 6716, table 2). */
const SILK = [10, 20, 40, 60] as const;
const HYBRID = [10, 20] as const;
const CELT = [2.5, 5, 10, 20] as const;

/** Duration of a packet, µs. */
export function packetDuration({ codec, sampleRate }: SoundTrack, packet: Uint8Array): number {
  if (codec !== "opus") return (1e6 * AAC_SAMPLES) / sampleRate;
  const toc = packet[0] ?? 0;
  const mode = toc >> 3;
  const frame = mode < 12 ? SILK[mode & 3]! : mode < 16 ? HYBRID[mode & 1]! : CELT[mode & 3]!;
  const frames = [1, 2, 2, (packet[1] ?? 0) & 63][toc & 3]!;
  return 1000 * frame * frames;
}
