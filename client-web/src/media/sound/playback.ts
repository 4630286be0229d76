/** Fetches a recording's sound slightly ahead of the position (docs/spec/replay.md). */
import type { ReceivedObject } from "../../moqt/index.ts";
import type { Timeline } from "../session/catalog.ts";
import type { RecordingSource } from "../session/medium.ts";
import { groupAt, mediaAt, type Part } from "../session/playback.ts";
import { MAX_PACKET } from "./receiver.ts";
import type { SoundTrack } from "./track.ts";

/** Length of a fetch, and media time to fetch ahead of the position, ms. */
const WINDOW = 1000;
const AHEAD = 1500;
/** Media time to pass on ahead of the position, less than the player's buffer holds, ms. */
const PASS_AHEAD = 400;
/** Media time to fetch before the position of a seek, in addition to a group, ms. */
const BEFORE = 100;
/** Maximum number of waiting packets per track. */
const MAX_FETCHED = 2000;
const RETRY = 500;
const PRIORITY = 48;

export type RecordedSound = SoundTrack & { readonly timeline: Timeline };

export interface SoundPlaybackPorts {
  /** True if sound is on. */
  audible(): boolean;
  packet(track: string, object: ReceivedObject): void;
  /** Discards all sound received so far. */
  drop(): void;
  received(bytes: number): void;
  /** Local time, ms. */
  now(): number;
}

/** The sound of a recording. Playback does not wait for it. */
export class SoundPlayback implements Part {
  readonly primed = true;
  readonly until = Infinity;
  readonly ended = true;
  /** Media time up to which each track was requested; undefined while sound is off. */
  #until: number | undefined;
  /** Packets fetched but not yet passed on, by track. */
  readonly #fetched = new Map<string, { readonly at: number; readonly object: ReceivedObject }[]>();
  #request: AbortController | undefined;
  #retry = 0;

  constructor(
    private readonly tracks: readonly RecordedSound[],
    private readonly source: RecordingSource,
    private readonly ports: SoundPlaybackPorts,
  ) {}

  seek(): void {
    this.stop();
    this.#until = undefined;
    this.#fetched.clear();
    this.#retry = 0;
    this.ports.drop();
  }

  stop(): void {
    this.#request?.abort();
    this.#request = undefined;
  }

  refill(position: number): void {
    if (!this.ports.audible()) {
      if (this.#until !== undefined) this.seek();
      return;
    }
    const before = BEFORE + Math.max(0, ...this.tracks.map((t) => t.group));
    this.#until ??= Math.max(0, position - before);
    if (this.#request || this.#until - position > AHEAD || this.ports.now() < this.#retry) return;
    if (this.#until > this.source.duration) return;
    void this.#load(this.#until, this.#until + WINDOW);
  }

  async #load(from: number, to: number): Promise<void> {
    const request = (this.#request = new AbortController());
    const { signal } = request;
    const fetched = await Promise.allSettled(this.tracks.map((t) => this.#fetch(t, from, to, signal)));
    if (this.#request !== request) return;
    this.#request = undefined;
    if (fetched.some((f) => f.status === "rejected" && !(f.reason as { invalidRange?: boolean }).invalidRange))
      this.#retry = this.ports.now() + RETRY;
    this.#until = to; // without what failed, as sound does not wait
  }

  #fetch(t: RecordedSound, from: number, to: number, signal: AbortSignal): Promise<void> {
    let list = this.#fetched.get(t.track);
    if (!list) this.#fetched.set(t.track, (list = []));
    const waiting = list;
    const sink = {
      maxObject: MAX_PACKET,
      object: (o: ReceivedObject) => {
        if (o.status !== "normal" || signal.aborted || waiting.length >= MAX_FETCHED) return;
        waiting.push({ at: mediaAt(t.timeline, o.group), object: o });
      },
      received: (bytes: number) => this.ports.received(bytes),
    };
    const [first, last] = [groupAt(t.timeline, from), groupAt(t.timeline, to) - 1n];
    return this.source.fetch(t.track, first, last, sink, PRIORITY, signal);
  }

  show(position: number): void {
    for (const [track, list] of this.#fetched) {
      let n = 0;
      while (n < list.length && list[n]!.at <= position + PASS_AHEAD) n++;
      for (const { object } of list.splice(0, n)) this.ports.packet(track, object);
    }
  }
}
