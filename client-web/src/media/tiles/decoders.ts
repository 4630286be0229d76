/** Decoders of the base sphere and the tiles, at most as many as the browser provides. */
import { BASE, type Chunk } from "./messages.ts";
import type { Sphere } from "./track.ts";

/** Lead time of decoding, ms. */
const AHEAD = 200;
/** Maximum number of chunks queued in a decoder. */
const MAX_QUEUED = 8;
/** Maximum number of chunks waiting per tile, which is several GoPs. */
const MAX_WAITING = 600;
/** Maximum number of chunks whose pictures are expected. A decoder returns none for damaged chunks. */
const MAX_DECODING = 64;
/** A quality ends when its last chunk is this many frame intervals old. Worse chunks of the group then replace it. */
const TOLERANCE = 1.5;
/** A tile releases its decoder after this many ms plus this many frames without a chunk. */
const IDLE = 500;
const IDLE_FRAMES = 4;
/**
 * This many successive failures before a first picture indicate a lack of decoders. A single failure may come from a
 * damaged tile.
 */
const FAILURES = 2;
/** Time in ms after which the known number of decoders is increased by one, to try another. */
const RETRY = 30_000;

export interface DecoderPorts {
  picture(tile: number, quality: number, frame: VideoFrame): void;
  bad(tile: number, message: string): void;
  /** Reports how many tiles can be decoded at a time. */
  most(tiles: number): void;
  /** Local time, ms. */
  now(): number;
}

export class Decoders {
  sphere: Sphere | undefined;
  readonly #tiles = new Map<number, Tile>();
  /** Number of decoders that the browser is known to provide. */
  #most = Infinity;
  #retry = Infinity;
  #failures = 0;

  constructor(readonly ports: DecoderPorts) {}

  add(c: Chunk): void {
    let t = this.#tiles.get(c.tile);
    if (!t) this.#tiles.set(c.tile, (t = new Tile(c.tile, this)));
    t.add(c);
  }

  /** Decodes the chunks due soon. `now` is the timestamp currently due, in ms; `moving` is false while paused. */
  feed(now: number, moving: boolean): void {
    if (this.ports.now() >= this.#retry) this.#limit(this.#most + 1);
    const idle = now - IDLE - (1000 * IDLE_FRAMES) / (this.sphere?.framerate ?? 30);
    for (const t of this.#tiles.values()) {
      t.feed(now, moving);
      if (moving && t.tile !== BASE && t.idle && t.last < idle) t.close();
    }
  }

  /** Discards a tile that is out of view. */
  release(tile: number): void {
    this.#tiles.get(tile)?.close();
    this.#tiles.delete(tile);
  }

  /** Discards all tiles and the base sphere. */
  drop(): void {
    for (const t of this.#tiles.values()) t.close();
    this.#tiles.clear();
  }

  get open(): number {
    return [...this.#tiles.values()].filter((t) => t.open).length;
  }

  /**
   * Makes room for a decoder: for a tile by closing one without data since `timestamp`, ms, or for the base sphere
   * by closing any tile's. Returns false if there is no room.
   */
  admit(tile: number, timestamp: number): boolean {
    if (this.open < this.#most) return true;
    const others = [...this.#tiles.values()]
      .filter((t) => t.open && t.tile !== BASE && (tile === BASE || (t.idle && t.last < timestamp)))
      .sort((a, b) => a.last - b.last);
    others[0]?.close();
    return this.open < this.#most;
  }

  /** A new decoder returned its first picture, or failed before that. Failures of the base sphere do not count. */
  tried(tile: number, works: boolean): void {
    this.#failures = works ? 0 : this.#failures + Number(tile !== BASE);
    if (this.#failures >= FAILURES && this.open > 0) this.#limit(this.open);
  }

  #limit(decoders: number): void {
    this.#most = decoders;
    this.#retry = this.ports.now() + RETRY;
    this.ports.most(decoders - 1); // one is the base sphere's
  }
}

/** A tile's decoder and waiting chunks. */
class Tile {
  /** Timestamp of the newest chunk passed to the decoder, ms. */
  last = -Infinity;
  /** In the order of groups, better qualities of a group first. */
  readonly #waiting: Chunk[] = [];
  /** Newest chunks whose pictures the decoder has not returned. */
  readonly #decoding: { readonly timestamp: number; readonly quality: number }[] = [];
  #decoder: VideoDecoder | undefined;
  /** True once the decoder has returned a picture. */
  #works = false;
  #configured = "";
  /** Group and quality being decoded, and the expected ID of the next chunk. */
  #group = -1n;
  #quality = -1;
  #next = 0;
  /** The group decoded before this one, and its quality. */
  #previous = { group: -1n, quality: -1 };
  /** Decoded chunks of this group while its start is not due. */
  #ahead: Chunk[] = [];
  #moving = true;

  constructor(
    readonly tile: number,
    private readonly decoders: Decoders,
  ) {}

  get open(): boolean {
    return this.#decoder !== undefined && this.#decoder.state !== "closed";
  }

  /** True without chunks to decode. */
  get idle(): boolean {
    return this.#waiting.length === 0;
  }

  add(c: Chunk): void {
    if (c.group < this.#group && !this.#goBack(c)) return;
    const before = (w: Chunk) => w.group < c.group || (w.group === c.group && w.quality >= c.quality);
    this.#waiting.splice(this.#waiting.findLastIndex(before) + 1, 0, c);
    if (this.#waiting.length > MAX_WAITING) this.#waiting.shift();
  }

  /** While paused just before this group, returns to the previous one if a better quality of that begins. */
  #goBack(c: Chunk): boolean {
    const { group, quality } = this.#previous;
    const better = c.group > group || (c.group === group && c.quality > quality);
    if (this.#moving || this.#ahead.length === 0 || c.id !== 0 || !better) return false;
    [this.#group, this.#quality, this.#next] = [c.group, -1, -1];
    this.#waiting.unshift(...this.#ahead.splice(0)); // to be decoded again
    return true;
  }

  /** True for a chunk of a worse quality than the one being decoded, while that one lasts: when paused, forever. */
  #spare(c: Chunk, now: number, moving: boolean): boolean {
    const interval = 1000 / (this.decoders.sphere?.framerate ?? 30);
    const ended = moving && now - this.last > TOLERANCE * interval;
    return c.group === this.#group && c.quality < this.#quality && !ended;
  }

  /** Decodes the chunks due soon, but not the next group while paused. `now` is the timestamp currently due, in ms. */
  feed(now: number, moving: boolean): void {
    this.#skip(now);
    this.#moving = moving;
    if (this.#ahead.length > 0 && this.#ahead[0]!.timestamp / 1000 <= now) this.#ahead = [];
    const early = (c: Chunk) => c.timestamp / 1000 - now > (c.id === 0 && !moving ? 0 : AHEAD);
    while (this.#waiting.length > 0 && (this.#decoder?.decodeQueueSize ?? 0) < MAX_QUEUED) {
      const c = this.#waiting[0]!;
      if (early(c)) return;
      // Keep spare chunks until the next group begins.
      const spare = this.#spare(c, now, moving);
      const next = spare && this.#waiting.find((w) => w.group > c.group);
      if (spare && (!next || early(next))) return;
      this.#waiting.shift();
      if (spare) continue;
      const begins = c.id === 0;
      // Its predecessor is missing.
      if (!begins && (c.group !== this.#group || c.quality !== this.#quality || c.id !== this.#next)) continue;
      try {
        if (begins && !this.#begin(c)) continue;
        this.#next = c.id + 1;
        this.last = c.timestamp / 1000;
        if (begins && this.last > now) this.#ahead = [c];
        else if (this.#ahead.length > 0) this.#ahead.push(c);
        this.#decoding.push({ timestamp: c.timestamp, quality: c.quality });
        if (this.#decoding.length > MAX_DECODING) this.#decoding.shift();
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
      const later = i === 0 || c.group > this.#waiting[from]!.group;
      if (c.id === 0 && c.timestamp / 1000 <= now && later) from = i;
    });
    if (from > 0) this.#waiting.splice(0, from);
  }

  /** Configures the decoder for a group. Returns false if no decoder is available or the track no longer exists. */
  #begin(c: Chunk): boolean {
    const { sphere } = this.decoders;
    const coding = this.tile === BASE ? sphere?.video : sphere?.tiles[this.tile]?.find((t) => t.quality === c.quality);
    if (!coding) {
      this.#next = -1;
      return false; // an overloaded publisher dropped this quality
    }
    const description = c.config ?? coding.config;
    const key = `${coding.codec} ${description ? Array.from(description).join() : ""}`;
    if (!this.open) {
      this.#next = -1;
      if (!this.decoders.admit(this.tile, c.timestamp / 1000)) return false;
      const decoder = new VideoDecoder({
        output: (frame) => this.#output(frame),
        error: (e) => decoder === this.#decoder && this.#fail(e),
      });
      this.#decoder = decoder;
      this.#configured = "";
      this.#works = false;
    }
    if (key !== this.#configured) {
      this.#decoder!.configure({
        codec: coding.codec,
        codedWidth: coding.width,
        codedHeight: coding.height,
        optimizeForLatency: true,
        ...(description && { description }),
        ...(sphere?.color?.matrix && { colorSpace: sphere.color }),
      });
      this.#configured = key;
    }
    if (c.group > this.#group) this.#previous = { group: this.#group, quality: this.#quality };
    [this.#group, this.#quality] = [c.group, c.quality];
    return true;
  }

  #output(frame: VideoFrame): void {
    if (!this.#works) this.decoders.tried(this.tile, true);
    this.#works = true;
    const at = this.#decoding.findIndex((c) => c.timestamp === frame.timestamp);
    const [chunk] = at < 0 ? [] : this.#decoding.splice(at, 1);
    this.decoders.ports.picture(this.tile, chunk?.quality ?? this.#quality, frame);
  }

  #fail(e: unknown): void {
    this.decoders.ports.bad(this.tile, e instanceof Error ? e.message : String(e));
    const fresh = this.#decoder !== undefined && !this.#works;
    this.close();
    if (fresh) this.decoders.tried(this.tile, false);
  }

  /** Releases the decoder until the next group starts. */
  close(): void {
    this.#next = -1;
    this.#quality = -1;
    this.#decoding.length = 0;
    if (this.open) this.#decoder!.close();
    this.#decoder = undefined;
  }
}
