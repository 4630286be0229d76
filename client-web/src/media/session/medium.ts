/** The interface between a session and the media it carries. */
import type { Session, TrackName, TrackSink } from "../../moqt/index.ts";
import type { Catalog, Timeline } from "./catalog.ts";
import type { Part } from "./playback.ts";

/** The part of a session that a medium uses. */
export interface Host {
  /** The open session; undefined while disconnected. */
  readonly session: Session | undefined;
  /** True if live tracks should be received because the page is visible and not playing the recording. */
  readonly live: boolean;
  /** True for a replay, which may loop. */
  readonly loops: boolean;
  /** Smoothed round-trip time, ms. */
  readonly rtt: number;
  /** The relay's clock minus the local one, ms; 0 if unknown. */
  readonly offset: number;
  /** Returns the full name of one of the session's tracks. */
  track(name: string): TrackName;
  /** Reports received payload. */
  received(bytes: number): void;
  /** Reports a displayed frame and its delay in ms. */
  shown(camera: number, sequence: number, delay: number): void;
  /** Reports that the set of received tracks changed. */
  changed(): void;
  /** Updates the session's state after a medium became playable or unplayable. */
  settle(): void;
}

/** A recorded track that the session plays for a medium. */
export interface RecordedTrack {
  readonly timeline: Timeline;
  readonly maxObject: number;
  /**
   * Capture time of an object, ms, on a chained track: a group holds successive frames, and each needs the earlier
   * ones. If absent, a group is one frame.
   */
  captured?(object: Uint8Array<ArrayBuffer>): number;
  /** Shows a frame, or the last of several frames that depend on each other. */
  show(objects: Uint8Array<ArrayBuffer>[]): void;
  /** Counts objects that arrived too late to show. */
  skip(objects: Uint8Array<ArrayBuffer>[]): void;
}

/** A recording from which a medium fetches selected groups itself. */
export interface RecordingSource {
  /** ms. */
  readonly duration: number;
  /**
   * Fetches groups first to last of a track; rejects with `invalidRange` if the recording ends
   * before `first`.
   */
  fetch(
    track: string,
    first: bigint,
    last: bigint,
    sink: TrackSink,
    priority: number,
    signal: AbortSignal,
  ): Promise<void>;
}

/** One kind of media in the network worker. */
export interface Medium {
  /** True if the catalog lists tracks of this medium. */
  readonly present: boolean;
  /** True if this medium only accompanies others: it does not replace one that the browser cannot play. */
  readonly accompanies?: boolean;
  /** A sentence that says why this browser cannot play this medium's tracks; undefined if it can. */
  readonly unplayable?: string | undefined;
  /** Capture time of the current frame, UNIX ms on the relay's clock; 0 = unknown. */
  readonly captured: number;
  /**
   * Parses this medium's part of a catalog and returns a function that applies it. Throws a
   * CatalogError.
   */
  prepare(catalog: Catalog): () => void;
  /** Subscribes to the catalog's tracks if the host is live; keeps existing subscriptions. */
  follow(): void;
  /** Cancels all subscriptions until `follow` is called. */
  leave(): void;
  /** Discards the catalog, because it or the session ended. */
  clear(): void;
  /** Called after a seek: the following frames are not contiguous with the previous ones. */
  jump(): void;
  /** The recorded counterparts of the received tracks, by track name. */
  recordedTracks(recording: Catalog): ReadonlyMap<string, RecordedTrack>;
  /** The part of a recording that this medium fetches itself; undefined if it has none. */
  part?(recording: Catalog, source: RecordingSource): Part | undefined;
  /** True if nothing has arrived for so long that the publisher counts as silent. `now` is local time in ms. */
  silent(now: number): boolean;
  /** Called every 250 ms. */
  tick(now: number): void;
}
