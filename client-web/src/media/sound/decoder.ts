/** Decodes sound. */
import type { Block } from "./messages.ts";
import type { SoundTrack } from "./track.ts";

/** Samples of an AAC-LC packet. */
const AAC_SAMPLES = 1024;
/** Durations of Opus frames, ms, by mode (RFC 6716, table 2). */
const SILK = [10, 20, 40, 60] as const;
const HYBRID = [10, 20] as const;
const CELT = [2.5, 5, 10, 20] as const;
/** Maximum number of packets in a decoder. */
const MAX_QUEUE = 600;

/** Duration of a packet, µs. */
export function packetDuration(
  { codec, sampleRate }: Pick<SoundTrack, "codec" | "sampleRate">,
  packet: Uint8Array,
): number {
  if (codec !== "opus") return (1e6 * AAC_SAMPLES) / sampleRate;
  const toc = packet[0] ?? 0;
  const mode = toc >> 3;
  const frame = mode < 12 ? SILK[mode & 3]! : mode < 16 ? HYBRID[mode & 1]! : CELT[mode & 3]!;
  const frames = [1, 2, 2, (packet[1] ?? 0) & 63][toc & 3]!;
  return 1000 * frame * frames;
}

export interface DecoderPorts {
  block(block: Block): void;
  bad(message: string): void;
}

/** A packet in the decoder. */
interface Decoding {
  /** UNIX µs. */
  readonly timestamp: number;
  readonly samples: number;
  /** Decoded samples; the first `filled` are complete. */
  sound: Float32Array<ArrayBuffer>[] | undefined;
  filled: number;
}

/**
 * Decodes a track's packets in order. A decoder counts samples and ignores gaps between packets, so sample times are
 * computed from the packets' timestamps.
 */
export class SoundDecoder {
  #decoder: AudioDecoder | undefined;
  #queue: Decoding[] = [];

  constructor(
    private readonly track: SoundTrack,
    private readonly ports: DecoderPorts,
  ) {}

  #open(): AudioDecoder {
    const { codec, config, sampleRate, channels } = this.track;
    const decoder: AudioDecoder = new AudioDecoder({
      output: (data) => this.#output(decoder, data),
      error: (e) => this.#fail(e),
    });
    decoder.configure({ codec, sampleRate, numberOfChannels: channels, ...(config && { description: config }) });
    return decoder;
  }

  /** `timestamp` is in UNIX µs. */
  decode(timestamp: number, data: Uint8Array<ArrayBuffer>): void {
    const samples = Math.round((packetDuration(this.track, data) * this.track.sampleRate) / 1e6);
    try {
      this.#decoder ??= this.#open();
      if (this.#queue.length >= MAX_QUEUE) throw new Error("a decoder that is too slow");
      this.#decoder.decode(new EncodedAudioChunk({ type: "key", timestamp, data }));
      this.#queue.push({ timestamp, samples, sound: undefined, filled: 0 });
    } catch (e) {
      this.#fail(e);
    }
  }

  #output(decoder: AudioDecoder, data: AudioData): void {
    const { numberOfFrames } = data;
    const channels = Array.from({ length: data.numberOfChannels }, (_, planeIndex) => {
      const samples = new Float32Array(numberOfFrames);
      data.copyTo(samples, { planeIndex, format: "f32-planar" });
      return samples;
    });
    data.close();
    if (decoder !== this.#decoder) return;
    for (let at = 0; at < numberOfFrames && this.#queue.length > 0; ) {
      const packet = this.#queue[0]!;
      packet.sound ??= channels.map(() => new Float32Array(packet.samples));
      const n = Math.min(packet.samples - packet.filled, numberOfFrames - at);
      packet.sound.forEach((c, i) => channels[i] && c.set(channels[i].subarray(at, at + n), packet.filled));
      at += n;
      packet.filled += n;
      if (packet.filled < packet.samples) break;
      this.#queue.shift();
      this.ports.block({ timestamp: packet.timestamp / 1000, channels: packet.sound });
    }
  }

  #fail(e: unknown): void {
    this.close();
    this.ports.bad(e instanceof Error ? e.message : String(e));
  }

  /** Discards packets in the decoder. The next packet opens another one. */
  close(): void {
    if (this.#decoder && this.#decoder.state !== "closed") this.#decoder.close();
    this.#decoder = undefined;
    this.#queue = [];
  }
}
