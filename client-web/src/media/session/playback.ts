/**
 * Plays a recording at the viewer's own pace. Fetches one second at a time ahead of the position and
 * shows frames when they are due (docs/spec/replay.md). Media times are in milliseconds.
 */
import type { Timeline } from "./catalog.ts";

/** Length of the first fetch after a seek. */
const FIRST = 250;
/** Length of later fetches. */
const WINDOW = 1000;
/** Media time to fetch ahead of the position. */
const AHEAD = 1500;
/** A seek shows the frame at or before its position. That frame may start this much earlier. */
const BEFORE = 100;
/** Likewise for the group of a chained track, which starts at most this much earlier. */
const GROUP_BEFORE = 1200;
const RETRY = 500;

export type Objects = Uint8Array<ArrayBuffer>[];

/** Source and destination of a recording's frames. */
export interface PlaybackPorts {
  /** Fetches groups first to last of a track; resolves when all have arrived. */
  fetch(
    track: string,
    first: bigint,
    last: bigint,
    object: (group: bigint, payload: Uint8Array<ArrayBuffer>) => void,
    signal: AbortSignal,
  ): Promise<void>;
  /** Shows a frame, or the last of several on a chained track. */
  show(track: string, frame: Objects): void;
  /** A frame arrived after a later one was due. */
  skip(track: string, frame: Objects): void;
  /** Local time, ms. */
  now(): number;
}

/** The first group at or after a media time. */
export function groupAt(t: Timeline, media: number): bigint {
  return BigInt(Math.max(0, Math.ceil(t.group + ((media - t.media) / t.mediaStep) * t.groupStep)));
}

export function mediaAt(t: Timeline, group: bigint): number {
  return t.media + ((Number(group) - t.group) / t.groupStep) * t.mediaStep;
}

/** A recorded track. `captured` is the capture time, ms, of an object of a chained track. */
export interface PlaybackTrack {
  readonly timeline: Timeline;
  captured?(object: Uint8Array<ArrayBuffer>): number;
}

/** Part of a recording that is played as a unit, consisting of one track or several dependent tracks. */
export interface Part {
  /** True once something was shown after the last seek. */
  readonly primed: boolean;
  /** True at the end of the recording. */
  readonly ended: boolean;
  /** Media time up to which everything has arrived. */
  readonly until: number;
  seek(media: number): void;
  stop(): void;
  /** Fetches the data after a position unless already fetched. `playing` is false while paused. */
  refill(position: number, playing: boolean): void;
  /** Shows the frames that are due. `moving` means that playback continues from the position. */
  show(position: number, moving: boolean): void;
}

/** Frames of one track fetched ahead. On a chained track, each object is a frame. */
class TrackBuffer implements Part {
  readonly frames: { readonly at: number; readonly objects: Objects }[] = [];
  /** Media time up to which everything has arrived. */
  until = 0;
  /** True once a frame was shown after the last seek. */
  primed = false;
  window = FIRST;
  readonly #before: number;
  #request: AbortController | undefined;
  #retry = 0;

  constructor(
    readonly track: string,
    private readonly from: PlaybackTrack,
    private readonly duration: number,
    private readonly ports: PlaybackPorts,
  ) {
    this.#before = from.captured ? GROUP_BEFORE : BEFORE;
  }

  seek(media: number): void {
    this.stop();
    this.frames.length = 0;
    this.until = Math.max(0, media - this.#before);
    this.primed = false;
    this.window = FIRST - BEFORE + this.#before;
  }

  stop(): void {
    this.#request?.abort();
    this.#request = undefined;
  }

  get ended(): boolean {
    return this.until > this.duration;
  }

  refill(position: number): void {
    if (this.#request || this.ended || this.until - position > AHEAD || this.ports.now() < this.#retry) return;
    const { timeline } = this.from;
    const end = this.until + this.window;
    const first = groupAt(timeline, this.until);
    const last = groupAt(timeline, end) - 1n;
    const request = new AbortController();
    this.#request = request;
    let group = -1n;
    let captured: number | undefined; // of the group's first object
    let objects: Objects = [];
    const finish = () => {
      if (objects.length > 0) this.frames.push({ at: mediaAt(timeline, group), objects });
      objects = [];
    };
    const object = (g: bigint, payload: Uint8Array<ArrayBuffer>) => {
      if (this.#request !== request) return;
      if (g !== group) {
        finish();
        group = g;
        captured = this.from.captured?.(payload);
        this.until = Math.max(this.until, mediaAt(timeline, g));
      }
      if (captured === undefined) objects.push(payload);
      else this.frames.push({ at: mediaAt(timeline, g) + this.from.captured!(payload) - captured, objects: [payload] });
    };
    this.ports.fetch(this.track, first, last, object, request.signal).then(
      () => {
        if (this.#request !== request) return;
        finish();
        this.#request = undefined;
        this.until = end;
        this.window = WINDOW;
      },
      (e: unknown) => {
        if (this.#request !== request) return;
        this.#request = undefined;
        // Keep the received objects, and request the others again unless the recording ends before them.
        finish();
        if (group >= 0n) this.until = mediaAt(timeline, group + 1n);
        if ((e as { invalidRange?: boolean } | undefined)?.invalidRange) this.until = this.duration + 1;
        this.#retry = this.ports.now() + RETRY;
      },
    );
  }

  /** Shows the frame that is due or, after a seek, the nearest frame. */
  show(position: number): void {
    let due = 0;
    while (due < this.frames.length && this.frames[due]!.at <= position) due++;
    if (!this.primed) {
      const known = due < this.frames.length || this.until > position;
      if (!known || this.frames.length === 0) return;
      due = Math.max(1, due);
    }
    if (due === 0) return;
    const frames = this.frames.splice(0, due);
    if (this.from.captured) {
      this.ports.show(this.track, frames.flatMap((f) => f.objects));
    } else {
      if (this.primed) for (const f of frames.slice(0, -1)) this.ports.skip(this.track, f.objects);
      this.ports.show(this.track, frames.at(-1)!.objects);
    }
    this.primed = true;
  }
}

export class Playback {
  readonly #buffers: TrackBuffer[] = [];
  #parts: readonly Part[] = [];
  #position = 0;
  #at = 0; // local time at which #position was current
  #playing = false;
  /** True while the frames that are due have not arrived. */
  waiting = false;

  constructor(
    readonly duration: number,
    private readonly ports: PlaybackPorts,
  ) {}

  /** Sets the recorded tracks to play. */
  setTracks(tracks: ReadonlyMap<string, PlaybackTrack>): void {
    for (const buffer of this.#buffers.splice(0)) {
      if (tracks.has(buffer.track)) this.#buffers.push(buffer);
      else buffer.stop();
    }
    for (const [name, track] of tracks) {
      if (this.#buffers.some((b) => b.track === name)) continue;
      const buffer = new TrackBuffer(name, track, this.duration, this.ports);
      buffer.seek(this.#position);
      this.#buffers.push(buffer);
    }
  }

  /** Sets the parts to play in addition to the tracks. */
  setParts(parts: readonly Part[]): void {
    this.#parts = parts;
    for (const p of parts) p.seek(this.#position);
  }

  get #all(): readonly Part[] {
    return [...this.#buffers, ...this.#parts];
  }

  get position(): number {
    return this.#position;
  }

  get playing(): boolean {
    return this.#playing;
  }

  play(): void {
    if (this.#position >= this.duration) this.seek(0);
    this.#playing = true;
    this.#at = this.ports.now();
  }

  pause(): void {
    this.#playing = false;
  }

  seek(media: number): void {
    this.#position = Math.max(0, Math.min(media, this.duration));
    this.#at = this.ports.now();
    for (const p of this.#all) p.seek(this.#position);
  }

  stop(): void {
    this.#playing = false;
    for (const p of this.#all) p.stop();
  }

  /** Advances the position, fetches ahead and shows the frames that are due. Call often. */
  tick(): void {
    const now = this.ports.now();
    const all = this.#all;
    this.waiting = all.some((p) => !p.primed && !p.ended);
    if (this.#playing) {
      const wanted = this.waiting ? this.#position : this.#position + (now - this.#at);
      let here = this.duration;
      for (const p of all) if (!p.ended) here = Math.min(here, Math.max(p.until, this.#position));
      this.#position = Math.min(wanted, here);
      this.waiting ||= wanted > here && here < this.duration;
      if (this.#position >= this.duration) this.#playing = false;
    }
    this.#at = now;
    for (const p of all) {
      p.refill(this.#position, this.#playing);
      p.show(this.#position, this.#playing && !this.waiting);
    }
  }
}
