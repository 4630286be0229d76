/**
 * Decodes video and sound off the page's thread. Each tile has its own decoder and is decoded
 * shortly before it is due.
 */
import { localTime } from "../session/clock.ts";
import { mediaTime, SOUND, BASE, type Due, type FromVideo, type PageToVideo, type ToVideo } from "./messages.ts";
import type { Sphere, SoundTrack } from "./track.ts";

/** Lead time of decoding, and interval between checks, ms. */
const AHEAD = 200;
const TICK = 15;
/** Maximum number of chunks queued in a decoder. */
const MAX_QUEUED = 8;
/** Maximum number of chunks waiting per tile: several GoPs. */
const MAX_WAITING = 600;

type Chunk = Extract<ToVideo, { type: "chunk" }>;

const send = (m: FromVideo, transfer: Transferable[] = []): void => postMessage(m, { transfer });

let sphere: Sphere | undefined;
let due: Due = { type: "due", shift: 0, still: undefined };
/** Counts seeks; results of earlier runs are dropped. */
let run = 0;
const tiles = new Map<number, Tile>();

/** A tile's decoder and waiting chunks. */
class Tile {
  readonly #waiting: Chunk[] = [];
  #decoder: VideoDecoder | undefined;
  #configured = "";
  /** Group and quality being decoded, and the expected ID of the next chunk. */
  #group = -1n;
  #quality = -1;
  #next = 0;

  constructor(readonly tile: number) {}

  add(c: Chunk): void {
    if (c.group < this.#group) return;
    this.#waiting.push(c);
    if (this.#waiting.length > MAX_WAITING) this.#waiting.shift();
  }

  /** Decodes the chunks due soon; now: the timestamp currently due, ms. */
  feed(now: number): void {
    this.#skip(now);
    while (this.#waiting.length > 0 && (this.#decoder?.decodeQueueSize ?? 0) < MAX_QUEUED) {
      const c = this.#waiting[0]!;
      if (c.timestamp / 1000 - now > AHEAD) return;
      this.#waiting.shift();
      const begins = c.id === 0;
      // Its predecessor is missing.
      if (!begins && (c.group !== this.#group || c.quality !== this.#quality || c.id !== this.#next)) continue;
      try {
        if (begins) this.#begin(c);
        this.#next = c.id + 1;
        this.#decoder!.decode(
          new EncodedVideoChunk({ type: begins ? "key" : "delta", timestamp: c.timestamp, data: c.data }),
        );
      } catch (e) {
        this.#fail(e);
      }
    }
  }

  /** Drops chunks made obsolete by the start of a later group or of a better quality. */
  #skip(now: number): void {
    let from = 0;
    this.#waiting.forEach((c, i) => {
      if (c.id === 0 && c.timestamp / 1000 <= now) from = i;
    });
    if (from > 0) this.#waiting.splice(0, from);
  }

  #begin(c: Chunk): void {
    const coding = this.tile === BASE ? sphere?.video : sphere?.tiles[this.tile]?.find((t) => t.quality === c.quality);
    if (!coding) throw new Error("no such track");
    const description = c.config ?? coding.config;
    const key = `${coding.codec} ${description ? Array.from(description).join() : ""}`;
    if (!this.#decoder || this.#decoder.state === "closed") {
      this.#decoder = new VideoDecoder({ output: (frame) => this.#output(frame), error: (e) => this.#fail(e) });
      this.#configured = "";
    }
    if (key !== this.#configured) {
      this.#decoder.configure({
        codec: coding.codec,
        codedWidth: coding.width,
        codedHeight: coding.height,
        optimizeForLatency: true,
        ...(description && { description }),
        ...(sphere?.color?.matrix && { colorSpace: sphere.color }),
      });
      this.#configured = key;
    }
    [this.#group, this.#quality] = [c.group, c.quality];
  }

  #output(frame: VideoFrame): void {
    send({ type: "picture", run, tile: this.tile, quality: this.#quality, timestamp: frame.timestamp, frame }, [frame]);
  }

  #fail(e: unknown): void {
    send({ type: "bad", tile: this.tile, message: e instanceof Error ? e.message : String(e) });
    this.#next = -1; // until the next group starts
    if (this.#decoder && this.#decoder.state !== "closed") this.#decoder.close();
    this.#decoder = undefined;
  }

  close(): void {
    if (this.#decoder && this.#decoder.state !== "closed") this.#decoder.close();
  }
}

/** The sound's decoder. */
class Sound {
  readonly #decoder = new AudioDecoder({ output: (data) => this.#output(data), error: (e) => this.#fail(e) });

  constructor({ codec, config, sampleRate, channels }: SoundTrack) {
    this.#decoder.configure({ codec, sampleRate, numberOfChannels: channels, ...(config && { description: config }) });
  }

  decode(timestamp: number, data: Uint8Array<ArrayBuffer>): void {
    try {
      if (this.#decoder.state === "configured")
        this.#decoder.decode(new EncodedAudioChunk({ type: "key", timestamp, data }));
    } catch (e) {
      this.#fail(e);
    }
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
  for (const t of tiles.values()) t.close();
  tiles.clear();
  sound?.close();
  sound = undefined;
}

addEventListener("message", (e: MessageEvent<PageToVideo>) => {
  e.data.network.onmessage = ({ data: m }: MessageEvent<ToVideo>) => {
    switch (m.type) {
      case "sphere":
        sphere = m.sphere;
        if (!m.same) drop();
        break;
      case "due":
        due = m;
        break;
      case "drop":
        run = m.run;
        drop();
        break;
      case "packet":
        if (m.run === run && sphere?.sound) (sound ??= new Sound(sphere.sound)).decode(m.timestamp, m.data);
        break;
      case "chunk": {
        if (m.run !== run) break;
        let t = tiles.get(m.tile);
        if (!t) tiles.set(m.tile, (t = new Tile(m.tile)));
        t.add(m);
      }
    }
  };
});
setInterval(() => {
  const now = mediaTime(due, localTime());
  for (const t of tiles.values()) t.feed(now);
}, TICK);
