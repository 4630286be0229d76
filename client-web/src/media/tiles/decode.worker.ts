/** Decodes the sphere and its tiles off the page's thread, one decoder a tile, shortly before each picture is due. */
import { localTime } from "../session/clock.ts";
import { WHOLE, type FromVideo, type PageToVideo, type ToVideo } from "./messages.ts";
import type { Sphere } from "./track.ts";

/** How long before it is due a picture is decoded, ms, and how often that is looked after. */
const AHEAD = 200;
const TICK = 15;
/** Chunks that a decoder has at most. */
const MOST_QUEUED = 8;
/** Chunks of a tile kept at most: some GoPs. */
const MOST_WAITING = 600;

type Chunk = Extract<ToVideo, { type: "chunk" }>;

const send = (m: FromVideo, transfer: Transferable[] = []): void => postMessage(m, { transfer });

let sphere: Sphere | undefined;
let shift = 0;
const tiles = new Map<number, Tile>();

/** One tile's decoder and what waits for it. */
class Tile {
  readonly #waiting: Chunk[] = [];
  #decoder: VideoDecoder | undefined;
  #configured = "";
  /** The group and quality being decoded, and the next chunk of it. */
  #group = -1n;
  #quality = -1;
  #next = 0;

  constructor(readonly tile: number) {}

  add(c: Chunk): void {
    if (c.group < this.#group) return;
    this.#waiting.push(c);
    if (this.#waiting.length > MOST_WAITING) this.#waiting.shift();
  }

  /** Decodes what is due soon. */
  feed(now: number): void {
    this.#skip(now);
    while (this.#waiting.length > 0 && (this.#decoder?.decodeQueueSize ?? 0) < MOST_QUEUED) {
      const c = this.#waiting[0]!;
      if (c.timestamp / 1000 + shift - now > AHEAD) return;
      this.#waiting.shift();
      const begins = c.id === 0;
      if (!begins && (c.group !== this.#group || c.quality !== this.#quality || c.id !== this.#next)) continue; // its beginning is missing
      try {
        if (begins) this.#begin(c);
        this.#next = c.id + 1;
        this.#decoder!.decode(new EncodedVideoChunk({ type: begins ? "key" : "delta", timestamp: c.timestamp, data: c.data }));
      } catch (e) {
        this.#fail(e);
      }
    }
  }

  /** Leaves out what has been overtaken by the beginning of a later group, or of a better quality. */
  #skip(now: number): void {
    let from = 0;
    this.#waiting.forEach((c, i) => {
      if (c.id === 0 && c.timestamp / 1000 + shift <= now) from = i;
    });
    if (from > 0) this.#waiting.splice(0, from);
  }

  #begin(c: Chunk): void {
    const coding = this.tile === WHOLE ? sphere?.video : sphere?.tiles[this.tile]?.find((t) => t.quality === c.quality);
    if (!coding) throw new Error("no such track");
    const description = c.config ?? coding.config;
    const key = `${coding.codec} ${description ? Array.from(description).join() : ""}`;
    if (!this.#decoder || this.#decoder.state === "closed") {
      this.#decoder = new VideoDecoder({ output: (frame) => this.#output(frame), error: (e) => this.#fail(e) });
      this.#configured = "";
    }
    if (key !== this.#configured) {
      this.#decoder.configure({
        codec: coding.codec, codedWidth: coding.width, codedHeight: coding.height, optimizeForLatency: true, ...(description && { description }),
      });
      this.#configured = key;
    }
    [this.#group, this.#quality] = [c.group, c.quality];
  }

  #output(frame: VideoFrame): void {
    send({ type: "picture", tile: this.tile, quality: this.#quality, timestamp: frame.timestamp, frame }, [frame]);
  }

  #fail(e: unknown): void {
    send({ type: "bad", tile: this.tile, message: e instanceof Error ? e.message : String(e) });
    this.#next = -1; // until a group begins
    if (this.#decoder && this.#decoder.state !== "closed") this.#decoder.close();
    this.#decoder = undefined;
  }

  close(): void {
    if (this.#decoder && this.#decoder.state !== "closed") this.#decoder.close();
  }
}

addEventListener("message", (e: MessageEvent<PageToVideo>) => {
  e.data.network.onmessage = ({ data: m }: MessageEvent<ToVideo>) => {
    switch (m.type) {
      case "sphere":
        sphere = m.sphere;
        if (m.same) break;
        for (const t of tiles.values()) t.close();
        tiles.clear();
        break;
      case "due":
        shift = m.shift;
        break;
      case "chunk": {
        let t = tiles.get(m.tile);
        if (!t) tiles.set(m.tile, (t = new Tile(m.tile)));
        t.add(m);
      }
    }
  };
});
setInterval(() => {
  const now = localTime();
  for (const t of tiles.values()) t.feed(now);
}, TICK);
