/** A recording's sphere at the viewer's own pace: fetched GoP by GoP, a little ahead of what is shown (docs/spec/tiles.md). */
import type { ReceivedObject, TrackSink } from "../../moqt/index.ts";
import { MAX_CATALOG, type Timeline } from "../session/catalog.ts";
import type { Shelf } from "../session/medium.ts";
import { groupAt, type Part } from "../session/playback.ts";
import { SOUND, WHOLE } from "./messages.ts";
import { parseRates, type Rates, type Sphere } from "./track.ts";

/** How much is kept ahead, and how near its end the whole sphere goes before tiles; ms. */
const AHEAD = 1500;
const SHORT = 400;
const RETRY = 500;
/** Subscriber priorities (§7), tiles in their order. */
const RATES_PRIORITY = 16;
const SOUND_PRIORITY = 48;
const WHOLE_PRIORITY = 64;
const TILE_PRIORITY = 130;
const LAST_PRIORITY = 250;
/** Bytes of one frame at most. */
export const MAX_FRAME = 8 << 20;

export interface Choice {
  readonly tile: number;
  readonly quality: number;
}

/** What chooses tiles, and where frames go. */
export interface FilmPorts {
  /** Chooses the tiles of a GoP that begins at a timestamp, ms: the most important first. */
  choose(start: number, rates: Rates | undefined): readonly Choice[];
  /** Chooses missing tiles that are in view now. */
  turn(start: number, rates: Rates | undefined, there: ReadonlySet<number>): readonly Choice[];
  take(tile: number, quality: number, object: ReceivedObject): void;
  /** Discards everything taken before. */
  drop(): void;
  /** Sets the timestamp that is due, ms; moving: playback continues from it. */
  due(timestamp: number, moving: boolean): void;
  /** Reports bytes that arrived within a time, ms. */
  carried(bytes: number, ms: number): void;
  received(bytes: number): void;
  /** Whether sound is wanted. */
  audible(): boolean;
  /** Local time, ms. */
  now(): number;
}

interface Gop {
  readonly group: bigint;
  /** Media time, ms. */
  readonly at: number;
  readonly rates: Rates | undefined;
  readonly there: Set<number>;
}

export class Film implements Part {
  primed = false;
  until = 0;
  #place = 0;
  #gops: Gop[] = [];
  /** What is being fetched: everything, and the tiles and sound alone. */
  #all: AbortController | undefined;
  #tiles: AbortController | undefined;
  #retry = 0;
  #moving = false;
  #bytes = 0;
  /** Aborted by a seek. */
  #run = new AbortController();

  constructor(
    private readonly sphere: Sphere,
    private readonly timeline: Timeline,
    private readonly shelf: Shelf,
    private readonly ports: FilmPorts,
  ) {}

  get ended(): boolean {
    return this.until > this.shelf.duration;
  }

  seek(media: number): void {
    this.stop();
    this.#place = media;
    // The GoP that holds it began earlier.
    this.until = Math.max(0, Math.floor(media) - this.sphere.gop + 1);
    this.primed = false;
    this.#gops = [];
    this.#retry = 0;
    this.ports.drop();
  }

  stop(): void {
    this.#all?.abort();
    this.#all = this.#tiles = undefined;
    this.#run.abort();
    this.#run = new AbortController();
  }

  refill(position: number): void {
    this.#place = position;
    if (this.#all) {
      // The whole sphere goes on, with tiles or without.
      if (this.primed && this.#moving && !this.ended && this.until - position < SHORT) this.#tiles?.abort();
      return;
    }
    if (this.ended || this.until - position > AHEAD || this.ports.now() < this.#retry) return;
    const all = new AbortController();
    this.#all = all;
    const over = (): void => {
      if (this.#all === all) this.#all = this.#tiles = undefined;
    };
    this.#load(all.signal).then(over, () => {
      if (this.#all === all) this.#retry = this.ports.now() + RETRY; // else it was a seek
      over();
    });
  }

  show(position: number, moving: boolean): void {
    this.#moving = moving;
    this.ports.due(this.timeline.wallclock + position - this.timeline.media, moving);
  }

  /** The viewer looks elsewhere: fetches what is missing of the GoP being shown. */
  turn(): void {
    const gop = this.#gops.findLast((g) => g.at <= this.#place);
    if (!gop) return;
    for (const c of this.ports.turn(this.#stamp(gop), gop.rates, gop.there)) {
      void this.#tile(gop, c, TILE_PRIORITY, this.#run.signal);
    }
  }

  #stamp(g: Gop): number {
    return this.timeline.wallclock + g.at - this.timeline.media;
  }

  /** Fetches the GoP that follows what is here. */
  async #load(signal: AbortSignal): Promise<void> {
    const { sphere } = this;
    const end = this.until + sphere.gop;
    const range = [groupAt(this.timeline, this.until), groupAt(this.timeline, end) - 1n] as const;
    const began = this.ports.now();
    this.#bytes = 0;
    const records = this.#records(range, signal);
    const tiles = new AbortController();
    this.#tiles = tiles;
    const ahead = AbortSignal.any([signal, tiles.signal]);
    const sound = this.#sound(range, ahead);
    const groups = await this.#whole(range, signal);
    const rates = await records;
    signal.throwIfAborted();
    this.until = groups === undefined ? this.shelf.duration + 1 : end;
    this.primed ||= this.until > this.#place;
    for (const group of groups ?? []) {
      const gop: Gop = { group, at: Number(group), rates: rates.get(group), there: new Set() };
      this.#gops = [...this.#gops.slice(-3), gop];
      const chosen = this.ports.choose(this.#stamp(gop), gop.rates);
      await Promise.all(chosen.map((c, rank) => this.#tile(gop, c, Math.min(LAST_PRIORITY, TILE_PRIORITY + 3 * rank), ahead)));
    }
    await sound;
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

  /** The groups of the whole sphere that came; undefined where the recording ends before. */
  async #whole([first, last]: readonly [bigint, bigint], signal: AbortSignal): Promise<bigint[] | undefined> {
    const groups: bigint[] = [];
    const sink = this.#sink((o) => {
      if (groups.at(-1) !== o.group) groups.push(o.group);
      this.ports.take(WHOLE, 0, o);
    }, signal);
    try {
      await this.shelf.fetch(this.sphere.video.track, first, last, sink, WHOLE_PRIORITY, signal);
    } catch (e) {
      if ((e as { invalidRange?: boolean }).invalidRange) return undefined;
      throw e;
    }
    return groups;
  }

  async #records([first, last]: readonly [bigint, bigint], signal: AbortSignal): Promise<Map<bigint, Rates>> {
    const found = new Map<bigint, Rates>();
    if (this.sphere.rates === undefined) return found;
    const sink = this.#sink((o) => {
      try {
        found.set(o.group, parseRates(o.payload, this.sphere));
      } catch {
        // Without a record, by the tracks' bit rates.
      }
    }, signal, MAX_CATALOG);
    await this.shelf.fetch(this.sphere.rates, first, last, sink, RATES_PRIORITY, signal).catch(() => {});
    return found;
  }

  async #sound([first, last]: readonly [bigint, bigint], signal: AbortSignal): Promise<void> {
    if (!this.ports.audible() || !this.sphere.sound) return;
    await this.shelf.fetch(this.sphere.sound.track, first, last, this.#sink((o) => this.ports.take(SOUND, 0, o), signal), SOUND_PRIORITY, signal).catch(() => {});
  }

  /** Fetches a tile; one that did not come may be asked for again. */
  async #tile({ group, there }: Gop, { tile, quality }: Choice, priority: number, signal: AbortSignal): Promise<void> {
    const track = this.sphere.tiles[tile]!.find((t) => t.quality === quality);
    if (!track) return;
    there.add(tile);
    const sink = this.#sink((o) => this.ports.take(tile, quality, o), signal);
    await this.shelf.fetch(track.track, group, group, sink, priority, signal).catch(() => there.delete(tile));
  }
}
