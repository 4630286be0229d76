/** Decodes sound. */
import type { Samples } from "./messages.ts";
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

/** Difference, in µs, from the end of the previous packet that counts as a gap or an overlap. */
const DISCONTINUITY = 5000;

export interface SoundPorts {
  samples(samples: Pick<Samples, "timestamp" | "sampleRate" | "channels">): void;
  bad(message: string): void;
}

/** The sound's decoder. */
export class Sound {
  #decoder: AudioDecoder;
  /** Decoders before a gap, until they have returned their last samples. */
  readonly #ending = new Set<AudioDecoder>();
  /** End of the newest packet, µs. */
  #end: number | undefined;

  constructor(
    private readonly track: SoundTrack,
    private readonly ports: SoundPorts,
  ) {
    this.#decoder = this.#open();
  }

  #open(): AudioDecoder {
    const { codec, config, sampleRate, channels } = this.track;
    const decoder = new AudioDecoder({ output: (data) => this.#output(data), error: (e) => this.#fail(e) });
    decoder.configure({ codec, sampleRate, numberOfChannels: channels, ...(config && { description: config }) });
    return decoder;
  }

  decode(timestamp: number, data: Uint8Array<ArrayBuffer>): void {
    try {
      // Decoders count samples from the first packet on, and ignore later timestamps.
      if (this.#end !== undefined && Math.abs(timestamp - this.#end) > DISCONTINUITY) this.#restart();
      this.#end = timestamp + packetDuration(this.track, data);
      if (this.#decoder.state === "configured")
        this.#decoder.decode(new EncodedAudioChunk({ type: "key", timestamp, data }));
    } catch (e) {
      this.#fail(e);
    }
  }

  #restart(): void {
    const old = this.#decoder;
    this.#decoder = this.#open();
    if (old.state !== "configured") return;
    this.#ending.add(old);
    const end = (): void => {
      if (this.#ending.delete(old) && old.state !== "closed") old.close();
    };
    void old.flush().then(end, end);
  }

  #output(data: AudioData): void {
    const channels = Array.from({ length: data.numberOfChannels }, (_, planeIndex) => {
      const samples = new Float32Array(data.numberOfFrames);
      data.copyTo(samples, { planeIndex, format: "f32-planar" });
      return samples;
    });
    const { timestamp, sampleRate } = data;
    data.close();
    this.ports.samples({ timestamp, sampleRate, channels });
  }

  #fail(e: unknown): void {
    this.ports.bad(e instanceof Error ? e.message : String(e));
  }

  close(): void {
    for (const d of [this.#decoder, ...this.#ending]) if (d.state !== "closed") d.close();
    this.#ending.clear();
  }
}
