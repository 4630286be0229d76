/**
 * Decodes video and sound off the page's thread. Each tile has its own decoder and is decoded
 * shortly before it is due.
 */
import { localTime } from "../session/clock.ts";
import { Decoders } from "./decoders.ts";
import { mediaTime, SOUND, type Due, type FromVideo, type PageToVideo, type ToVideo } from "./messages.ts";
import { packetDuration } from "./sound.ts";
import type { SoundTrack } from "./track.ts";

/** Interval between checks for chunks that are due, ms. */
const TICK = 15;

const send = (m: FromVideo, transfer: Transferable[] = []): void => postMessage(m, { transfer });

let network: MessagePort | undefined;
let due: Due = { type: "due", shift: 0, still: undefined };
/** Counts seeks; results of earlier runs are dropped. */
let run = 0;
const video = new Decoders({
  picture: (tile, quality, frame) =>
    send({ type: "picture", run, tile, quality, timestamp: frame.timestamp, frame }, [frame]),
  bad: (tile, message) => send({ type: "bad", tile, message }),
  most: (tiles) => network?.postMessage(tiles),
  now: localTime,
});

/** Difference from the end of the previous packet, µs, that is a gap or an overlap. */
const DISCONTINUITY = 5000;

/** The sound's decoder. */
class Sound {
  #decoder: AudioDecoder;
  /** End of the newest packet, µs. */
  #end: number | undefined;

  constructor(private readonly track: SoundTrack) {
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
    if (old.state === "configured")
      void old.flush().then(
        () => old.close(),
        () => {},
      );
    this.#decoder = this.#open();
  }

  #output(data: AudioData): void {
    const channels = Array.from({ length: data.numberOfChannels }, (_, planeIndex) => {
      const samples = new Float32Array(data.numberOfFrames);
      data.copyTo(samples, { planeIndex, format: "f32-planar" });
      return samples;
    });
    const { timestamp, sampleRate } = data;
    data.close();
    send({ type: "samples", run, timestamp, sampleRate, channels }, channels.map((c) => c.buffer));
  }

  #fail(e: unknown): void {
    send({ type: "bad", tile: SOUND, message: e instanceof Error ? e.message : String(e) });
  }

  close(): void {
    if (this.#decoder.state !== "closed") this.#decoder.close();
  }
}

let sound: Sound | undefined;

/** Discards waiting chunks and resets the decoders. */
function drop(): void {
  video.drop();
  sound?.close();
  sound = undefined;
}

addEventListener("message", (e: MessageEvent<PageToVideo>) => {
  network = e.data.network;
  network.onmessage = ({ data: m }: MessageEvent<ToVideo>) => {
    switch (m.type) {
      case "sphere":
        video.sphere = m.sphere;
        if (!m.same) drop();
        break;
      case "due":
        due = m;
        break;
      case "drop":
        run = m.run;
        drop();
        break;
      case "release":
        video.release(m.tile);
        break;
      case "packet":
        if (m.run === run && video.sphere?.sound)
          (sound ??= new Sound(video.sphere.sound)).decode(m.timestamp, m.data);
        break;
      case "chunk":
        if (m.run === run) video.add(m);
    }
  };
});
setInterval(() => video.feed(mediaTime(due, localTime()), due.still === undefined), TICK);
