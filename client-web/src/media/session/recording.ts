/**
 * The recording behind a replay, which each viewer can pause and seek on its own
 * (docs/spec/replay.md).
 */
import { RequestCode, RequestError, type Subscription, type TrackName, type TrackSink } from "../../moqt/index.ts";
import type { Catalog } from "./catalog.ts";
import type { Host, Medium, RecordedTrack, RecordingSource } from "./medium.ts";
import type { PlaybackAction, PlaybackState } from "./messages.ts";
import { Playback, type PlaybackPorts } from "./playback.ts";
import { subscribeCatalog } from "./subscribe.ts";

/** Last field of the recording's namespace. */
const RECORDING = "recording";
/** Interval between playback updates, ms. */
const TICK = 10;
const FETCH_TIMEOUT = 20_000;
const RETRY = 1000;
/** Subscriber priority of fetches. */
const PRIORITY = 128;

export class Recording {
  #catalog: Catalog | undefined;
  /** Set while the recording is played. */
  #playback: Playback | undefined;
  #recordedTracks: ReadonlyMap<string, RecordedTrack> = new Map();
  #ticking: ReturnType<typeof setInterval> | undefined;
  /** True if playback was running when the page became hidden. */
  #played = false;

  constructor(
    private readonly host: Host,
    private readonly media: readonly Medium[],
    private readonly tell: (state: PlaybackState) => void,
  ) {}

  /** True while the recording is played instead of the shared replay. */
  get watched(): boolean {
    return this.#playback !== undefined;
  }

  get offered(): boolean {
    return this.#catalog !== undefined;
  }

  #track(name: string): TrackName {
    const { namespace } = this.host.track(name);
    return { namespace: [...namespace, RECORDING], name };
  }

  /** Follows the recording's catalog while the session's catalog is subscribed to. */
  async follow(session: Subscription): Promise<void> {
    while (!session.ended) {
      try {
        const sub = await subscribeCatalog(session.session, this.#track("catalog"), {}, (c) => {
          // Ignore an unreadable catalog. The recording is then not seekable.
          if (!(c instanceof Error) && !session.ended) this.offer(c);
        });
        await Promise.race([sub.done, session.done]);
        sub.cancel();
      } catch (e) {
        if (e instanceof RequestError && e.code === RequestCode.DOES_NOT_EXIST) return;
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY));
    }
  }

  /** Sets the recording's catalog; undefined once it is gone. */
  offer(catalog: Catalog | undefined): void {
    this.#catalog = catalog;
    if (!catalog) this.#watchLive();
    else this.tracksChanged();
    this.report();
  }

  /** Duration in ms, or 0 without a recording that any medium can play. */
  get #duration(): number {
    const catalog = this.#catalog;
    if (
      !catalog ||
      this.media.every((m) => m.recordedTracks(catalog).size === 0 && !m.part?.(catalog, this.#source(0)))
    )
      return 0;
    return Math.max(0, ...catalog.tracks.map((t) => (t.timeline ? t.duration : 0)));
  }

  /** Discards prefetched objects, because the media switched tracks. */
  tracksChanged(): void {
    if (!this.#playback || !this.#catalog) return;
    const before = new Set(this.#recordedTracks.keys());
    this.#rewind();
    if ([...this.#recordedTracks.keys()].some((name) => !before.has(name)))
      this.#playback.seek(this.#playback.position);
  }

  #rewind(): void {
    this.#recordedTracks = new Map(this.media.flatMap((m) => [...m.recordedTracks(this.#catalog!)]));
    this.#playback!.setTracks(this.#recordedTracks);
  }

  control(action: PlaybackAction): void {
    if (this.#duration === 0) return;
    if (action === "live") {
      this.#watchLive();
    } else {
      const position = typeof action === "object" ? action.seek : this.#position();
      if (!this.#playback) {
        // A seek resumes playback; only pause stops it.
        this.#watch(position);
        if (action !== "pause") this.#playback!.play();
      } else if (action === "play") {
        this.#playback.play();
      } else if (action === "pause") {
        this.#playback.pause();
      } else {
        this.#playback.seek(position);
        for (const m of this.media) m.jump();
      }
    }
    this.report();
  }

  /** Pauses while the page is hidden. */
  setSeen(seen: boolean): void {
    const p = this.#playback;
    if (!p) return;
    if (!seen) {
      this.#played = p.playing;
      p.pause();
    } else if (this.#played) {
      p.play();
    }
    this.report();
  }

  /** Position in the recording, ms. */
  #position(): number {
    if (this.#playback) return this.#playback.position;
    const origin = this.#catalog?.tracks.find((t) => t.timeline)?.timeline;
    const captured = Math.max(0, ...this.media.map((m) => m.captured));
    if (!origin || captured === 0) return 0;
    return Math.max(0, Math.min(captured - origin.wallclock, this.#duration));
  }

  /** Switches from the shared replay to the recording. */
  #watch(position: number): void {
    const ports: PlaybackPorts = {
      now: () => performance.now(),
      skip: (name, objects) => this.#recordedTracks.get(name)?.skip(objects),
      show: (name, objects) => this.#recordedTracks.get(name)?.show(objects),
      fetch: (name, first, last, object, signal) => this.#fetch(name, first, last, object, signal),
    };
    for (const m of this.media) m.leave();
    this.#playback = new Playback(this.#duration, ports);
    this.#playback.seek(position);
    this.#rewind();
    const source = this.#source(this.#duration);
    this.#playback.setParts(this.media.flatMap((m) => m.part?.(this.#catalog!, source) ?? []));
    this.#ticking = setInterval(() => this.#playback?.tick(), TICK);
  }

  #source(duration: number): RecordingSource {
    return {
      duration,
      fetch: (name, first, last, sink, priority, signal) => this.#request(name, first, last, sink, priority, signal),
    };
  }

  async #fetch(
    name: string,
    first: bigint,
    last: bigint,
    object: (group: bigint, payload: Uint8Array<ArrayBuffer>) => void,
    signal: AbortSignal,
  ): Promise<void> {
    const track = this.#recordedTracks.get(name);
    if (!track) throw new Error(`track ${name} is not being played`);
    const sink: TrackSink = {
      maxObject: track.maxObject,
      object: (o) => {
        if (o.status === "normal" && o.payload.length > 0) object(o.group, o.payload);
      },
      received: (bytes) => this.host.received(bytes),
    };
    await this.#request(name, first, last, sink, PRIORITY, signal);
  }

  async #request(
    name: string,
    first: bigint,
    last: bigint,
    sink: TrackSink,
    priority: number,
    signal: AbortSignal,
  ): Promise<void> {
    const { session } = this.host;
    if (!session || session.over) throw new Error("not connected to the relay");
    try {
      await session.fetch(this.#track(name), first, last, sink, {
        priority,
        signal: AbortSignal.any([signal, AbortSignal.timeout(FETCH_TIMEOUT)]),
      });
    } catch (e) {
      throw Object.assign(new Error(String(e)), {
        invalidRange: e instanceof RequestError && e.code === RequestCode.INVALID_RANGE,
      });
    }
  }

  #watchLive(): void {
    if (!this.#playback) return;
    this.#playback.stop();
    this.#playback = undefined;
    clearInterval(this.#ticking);
    for (const m of this.media) {
      m.leave();
      m.follow();
    }
  }

  report(): void {
    const p = this.#playback;
    this.tell({
      type: "playback",
      duration: this.#duration,
      position: this.#position(),
      playing: p?.playing ?? true,
      live: !p,
      waiting: p?.waiting ?? false,
    });
  }
}

