/** The seam between a session and the media it carries. */
import type { Session, TrackName, TrackSink } from "../../moqt/index.ts";
import type { Catalog, Timeline } from "./catalog.ts";
import type { Part } from "./playback.ts";

/** What a medium sees of its session. */
export interface Host {
  /** The session at the relay; undefined while there is none. */
  readonly session: Session | undefined;
  /** Whether live tracks are to be received: the page is visible and does not play the recording. */
  readonly live: boolean;
  /** Whether the session is a replay, which may loop. */
  readonly loops: boolean;
  /** Smoothed round-trip time, ms. */
  readonly rtt: number;
  /** The relay's clock minus the local one, ms; 0 as long as that is unknown. */
  readonly offset: number;
  /** Full name of a track of the session. */
  track(name: string): TrackName;
  /** Payload has arrived. */
  received(bytes: number): void;
  /** A frame was shown; delay in ms. */
  shown(camera: number, sequence: number, delay: number): void;
  /** The set of tracks received has changed. */
  changed(): void;
}

/** A recorded track that a medium plays. */
export interface Reel {
  readonly timeline: Timeline;
  readonly maxObject: number;
  show(objects: Uint8Array<ArrayBuffer>[]): void;
  /** Counts objects that arrived too late to show. */
  skip(objects: Uint8Array<ArrayBuffer>[]): void;
}

/** A recording, to a medium that fetches of it what it chooses. */
export interface Shelf {
  /** ms. */
  readonly duration: number;
  /** Fetches a track's groups from first to last; rejects with `invalidRange` where the recording ends before. */
  fetch(track: string, first: bigint, last: bigint, sink: TrackSink, priority: number, signal: AbortSignal): Promise<void>;
}

/** One kind of media, as the network worker has it. */
export interface Medium {
  /** Whether the catalog has anything of it. */
  readonly present: boolean;
  /** UNIX time on the relay's clock at which what is shown was captured, ms; 0 = unknown. */
  readonly captured: number;
  /** Parses its part of a catalog and returns a function that applies it. Throws a CatalogError. */
  prepare(catalog: Catalog): () => void;
  /** Subscribes to what the catalog lists, if the host is live; existing subscriptions stay. */
  follow(): void;
  /** Cancels all subscriptions until `follow`. */
  leave(): void;
  /** The session or its catalog has ended: forgets the catalog. */
  clear(): void;
  /** After a seek: what arrives now does not follow what came before. */
  jump(): void;
  /** The recorded counterparts of the tracks received, by track name. */
  reels(recording: Catalog): ReadonlyMap<string, Reel>;
  /** What of a recording is not played track by track; undefined where it has none of this medium. */
  part?(recording: Catalog, shelf: Shelf): Part | undefined;
  /** Whether nothing has arrived for long enough to say so; local time, ms. */
  silent(now: number): boolean;
  /** Called every 250 ms. */
  tick(now: number): void;
}
