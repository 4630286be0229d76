/** The seam between a session and the media it carries. */
import type { Session, TrackName } from "../../moqt/index.ts";
import type { Catalog, Timeline } from "./catalog.ts";

/** What a medium may know of its session. */
export interface Host {
  /** The session at the relay; undefined while there is none. */
  readonly session: Session | undefined;
  /** Whether what is published is to be received: somebody watches, and not the recording at a pace of their own. */
  readonly live: boolean;
  /** Whether the session is a recording that is replayed, whose frames begin anew. */
  readonly loops: boolean;
  /** Smoothed round-trip time, ms. */
  readonly rtt: number;
  /** The relay's clock less the local one, ms; 0 as long as that is unknown. */
  readonly offset: number;
  /** Full name of a track of the session. */
  track(name: string): TrackName;
  /** Payload has arrived. */
  received(bytes: number): void;
  /** A frame was shown; delay in ms. */
  shown(camera: number, sequence: number, delay: number): void;
  /** The tracks that are received are others than before. */
  changed(): void;
}

/** A recorded track that a medium plays. */
export interface Reel {
  readonly timeline: Timeline;
  readonly maxObject: number;
  show(objects: Uint8Array<ArrayBuffer>[]): void;
  /** Takes what came when something later was due. */
  skip(objects: Uint8Array<ArrayBuffer>[]): void;
}

/** One kind of media, as the network worker has it. */
export interface Medium {
  /** Whether the catalog has anything of it. */
  readonly present: boolean;
  /** UNIX time on the relay's clock at which what is shown was captured, ms; 0 = unknown. */
  readonly captured: number;
  /** Reads its part of a catalog and returns what puts that into effect. Throws a CatalogError. */
  prepare(catalog: Catalog): () => void;
  /** Receives what the catalog lists, as far as the host is live and it is not received already. */
  follow(): void;
  /** Receives nothing from now on, until it follows again. */
  leave(): void;
  /** The session is over, or its catalog: forgets all that was listed. */
  clear(): void;
  /** What comes now has nothing to do with what came before: somebody has moved in the recording. */
  jump(): void;
  /** What of a recording's catalog can be played in place of what is received, by track name. */
  reels(recording: Catalog): ReadonlyMap<string, Reel>;
  /** Whether what is published has stayed away for so long that a person should know; local time, ms. */
  silent(now: number): boolean;
  /** Called every 250 ms. */
  tick(now: number): void;
}
