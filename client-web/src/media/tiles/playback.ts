/**
 * Plays the video of a recording at the viewer's own pace. Fetches GoP by GoP, slightly ahead of the
 * position (docs/spec/tiles.md).
 */
import type { ReceivedObject, TrackSink } from "../../moqt/index.ts";
import { MAX_CATALOG, type Timeline } from "../session/catalog.ts";
import type { RecordingSource } from "../session/medium.ts";
import { groupAt, type Part } from "../session/playback.ts";
import { BASE } from "./messages.ts";
import { parseRates, type Rates, type Sphere } from "./track.ts";

/** Media time to fetch ahead, and the lead below which the base sphere takes precedence over tiles, ms. */
const AHEAD = 1500;
const SHORT = 400;
const RETRY = 500;
/** Subscriber priorities (§7). Ranks of tiles start at TILE_PRIORITY. */
const RATES_PRIORITY = 16;
const BASE_PRIORITY = 64;
const TILE_PRIORITY = 130;
const LAST_PRIORITY = 250;
/** Maximum size of a frame, bytes. */
export const MAX_FRAME = 8 << 20;

export interface Choice {
  readonly tile: number;
  readonly quality: number;
}

/** Chooses tiles and receives frames. */
export interface VideoPlaybackPorts {
  /** Chooses the tiles of the GoP that starts at timestamp `start`, ms, most important first. */
  choose(start: number, rates: Rates | undefined): readonly Choice[];
  /**
   * Chooses missing tiles in the current view; while paused, also tiles that could have a better quality.
   * `fetched` holds each tile's quality; tiles that must be fetched again later are removed from it.
   */
  turn(start: number, rates: Rates | undefined, fetched: Map<number, number>, paused: boolean): readonly Choice[];
  take(tile: number, quality: number, object: ReceivedObject): void;
  /** Discards all frames received so far. */
  drop(): void;
  /** Sets the timestamp currently due, ms. `moving` means that playback continues from it. */
  due(timestamp: number, moving: boolean): void;
  /** Reports the size of a transfer in bytes and its duration in ms. */
  carried(bytes: number, ms: number): void;
  received(bytes: number): void;
  /** Local time, ms. */
  now(): number;
}

interface Gop {
  readonly group: bigint;
  /** Media time, ms. */
  readonly at: number;
  readonly rates: Rates | undefined;
  /** Quality of each tile fetched or being fetched. */
  readonly fetched: Map<number, number>;
}

export class VideoPlayback implements Part {
  primed = false;
  until = 0;
  #position = 0;
  #gops: Gop[] = [];
  /** Controllers that abort all current fetches, and only the tiles' fetches. */
  #fetches: AbortController | undefined;
  #tiles: AbortController | undefined;
  #retry = 0;
  #moving = false;
  #playing = true;
  #bytes = 0;
  /** Aborted by a seek. */
  #run = new AbortController();

  constructor(
    private readonly sphere: Sphere,
    private readonly timeline: Timeline,
    private readonly source: RecordingSource,
    private readonly ports: VideoPlaybackPorts,
  ) {}

  get ended(): boolean {
    return this.until > this.source.duration;
  }

  seek(media: number): void {
    this.stop();
    this.#position = media;
    // Start with the GoP that contains the position.
    this.until = Math.max(0, Math.floor(media) - this.sphere.gop + 1);
    this.primed = false;
    this.#gops = [];
    this.#retry = 0;
    this.ports.drop();
  }

  stop(): void {
    this.#fetches?.abort();
    this.#fetches = this.#tiles = undefined;
    this.#run.abort();
    this.#run = new AbortController();
  }

  refill(position: number, playing = true): void {
    this.#position = position;
    this.#playing = playing;
    if (this.#fetches) {
      // Stop fetching tiles before the base sphere runs out of data.
      if (this.primed && this.#moving && !this.ended && this.until - position < SHORT) this.#tiles?.abort();
      return;
    }
    if (this.ended || this.until - position > AHEAD || this.ports.now() < this.#retry) return;
    const all = new AbortController();
    this.#fetches = all;
    const over = (): void => {
      if (this.#fetches === all) this.#fetches = this.#tiles = undefined;
    };
    this.#load(all.signal).then(over, () => {
      if (this.#fetches === all) this.#retry = this.ports.now() + RETRY; // otherwise aborted by a seek
      over();
    });
  }

  show(position: number, moving: boolean): void {
    this.#moving = moving;
    this.ports.due(this.timeline.wallclock + position - this.timeline.media, moving);
  }

  get #current(): Gop | undefined {
    return this.#gops.findLast((g) => g.at <= this.#position);
  }

  /**
   * Fetches missing tiles of the current GoP after the view moved. While paused there is time for the best quality.
   */
  turn(): void {
    const gop = this.#current;
    if (!gop) return;
    for (const c of this.ports.turn(this.#stamp(gop), gop.rates, gop.fetched, !this.#playing)) {
      void this.#fetchTile(gop, c, TILE_PRIORITY, this.#run.signal);
    }
  }

  #stamp(g: Gop): number {
    return this.timeline.wallclock + g.at - this.timeline.media;
  }

  /** Fetches the next GoP. */
  async #load(signal: AbortSignal): Promise<void> {
    const { sphere } = this;
    const end = this.until + sphere.gop;
    const range = [groupAt(this.timeline, this.until), groupAt(this.timeline, end) - 1n] as const;
    const began = this.ports.now();
    this.#bytes = 0;
    const records = this.#fetchRates(range, signal);
    const tiles = new AbortController();
    this.#tiles = tiles;
    const ahead = AbortSignal.any([signal, tiles.signal]);
    const groups = await this.#fetchBase(range, signal);
    const rates = await records;
    signal.throwIfAborted();
    this.until = groups === undefined ? this.source.duration + 1 : end;
    this.primed ||= this.until > this.#position;
    for (const group of groups ?? []) {
      const gop: Gop = { group, at: Number(group), rates: rates.get(group), fetched: new Map() };
      this.#gops = [...this.#gops.slice(-3), gop];
      if (!this.#playing && gop === this.#current) {
        this.turn();
        continue;
      }
      const chosen = this.ports.choose(this.#stamp(gop), gop.rates);
      await Promise.all(
        chosen.map((c, rank) => this.#fetchTile(gop, c, Math.min(LAST_PRIORITY, TILE_PRIORITY + 3 * rank), ahead)),
      );
    }
    if (!signal.aborted) this.ports.carried(this.#bytes, this.ports.now() - began);
  }

  #sink(take: (o: ReceivedObject) => void, signal: AbortSignal, maxObject = MAX_FRAME): TrackSink {
    return {
      maxObject,
      object: (o) => {
        if (o.status === "normal" && o.payload.length > 0 && !signal.aborted) take(o);
      },
      received: (bytes) => {
        this.#bytes += bytes;
        this.ports.received(bytes);
      },
    };
  }

  /**
   * Fetches groups of the base sphere and returns the IDs of the received ones; undefined if the recording ends before
   * the first.
   */
  async #fetchBase([first, last]: readonly [bigint, bigint], signal: AbortSignal): Promise<bigint[] | undefined> {
    const groups: bigint[] = [];
    const sink = this.#sink((o) => {
      if (groups.at(-1) !== o.group) groups.push(o.group);
      this.ports.take(BASE, 0, o);
    }, signal);
    try {
      await this.source.fetch(this.sphere.video.track, first, last, sink, BASE_PRIORITY, signal);
    } catch (e) {
      if ((e as { invalidRange?: boolean }).invalidRange) return undefined;
      throw e;
    }
    return groups;
  }

  async #fetchRates([first, last]: readonly [bigint, bigint], signal: AbortSignal): Promise<Map<bigint, Rates>> {
    const found = new Map<bigint, Rates>();
    if (this.sphere.rates === undefined) return found;
    const sink = this.#sink((o) => {
      try {
        found.set(o.group, parseRates(o.payload, this.sphere));
      } catch {
        // Without rates, planning uses the tracks' bit rates.
      }
    }, signal, MAX_CATALOG);
    await this.source.fetch(this.sphere.rates, first, last, sink, RATES_PRIORITY, signal).catch(() => {});
    return found;
  }

  /** Fetches a tile. After a failure it may be requested again. */
  async #fetchTile(
    { group, fetched }: Gop,
    { tile, quality }: Choice,
    priority: number,
    signal: AbortSignal,
  ): Promise<void> {
    const track = this.sphere.tiles[tile]!.find((t) => t.quality === quality);
    if (!track) return;
    fetched.set(tile, quality);
    const sink = this.#sink((o) => this.ports.take(tile, quality, o), signal);
    await this.source.fetch(track.track, group, group, sink, priority, signal).catch(() => {
      if (fetched.get(tile) === quality) fetched.delete(tile);
    });
  }
}
