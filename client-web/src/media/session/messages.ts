/** Messages about a session between the page and the network worker, independent of the media. */
import type { TransportChoice } from "../../moqt/index.ts";
import type { EncryptionCounters } from "./encryption.ts";

/** State of the session as the page displays it. */
export type Phase =
  | "connecting"
  | "no-webtransport"
  | "unreachable"
  | "certificate"
  | "refused"
  | "lost" // the connection broke; reconnecting
  | "listing" // no session in the link; the list is shown
  | "waiting" // connected, but nothing is published yet
  | "unplayable" // published, but this browser cannot play it
  | "encrypted" // published, but the viewer lacks the key
  | "foreign" // published, but by a program whose media the viewer does not know
  | "graphics" // the browser has taken the GPU away from the page
  | "live"
  | "silent" // published, but no media arrive
  | "ended";

/** Why a session is over TCP: this browser, the network, or the link. */
export type TCPReason = "browser" | "network" | "link";

/** The session to watch, and options from the link. */
export interface WatchOptions {
  /** The relay's URL. */
  readonly relay: string;
  /** undefined: list the relay's sessions. */
  readonly session: string | undefined;
  /** SHA-256 of the relay's certificate in hex. If set, no other certificate is trusted. */
  readonly certificate: string | undefined;
  /** Token that authorizes the viewer. */
  readonly token: string | undefined;
  /** Keys of an encrypted session, from the link (docs/encrypt-a-session.md). */
  readonly keys: string | undefined;
  readonly receipts: boolean;
  /** Quality name, or "auto". */
  readonly quality: string;
  /** "auto", "quic" or "tcp". */
  readonly transport: TransportChoice;
  /** Maximum rate of video tiles in bits per second. If Infinity, only the network limits it. */
  readonly rate: number;
}

/** User action on a recording; `seek` is a position in ms. */
export type PlaybackAction = "play" | "pause" | "live" | { readonly seek: number };

export type ToSession =
  | { readonly type: "playback"; readonly action: PlaybackAction }
  /** Page visibility. */
  | { readonly type: "seen"; readonly seen: boolean }
  | { readonly type: "stop" };

/** Sent every 250 ms. */
export interface Traffic {
  readonly type: "traffic";
  /** Bytes of media received since the start. */
  readonly bytes: number;
  /** Streams that ended inside an object, refused objects and datagrams of unknown tracks. */
  readonly cut: number;
  readonly refused: number;
  readonly malformed: number;
  /** Smoothed round-trip time, ms, from the browser or from request times. */
  readonly rtt: number;
  readonly reconnects: number;
  /** Objects of an encrypted session: opened, and refused by reason; undefined without keys. */
  readonly encryption: EncryptionCounters | undefined;
}

export interface ClockState {
  readonly type: "clock";
  /** The relay's clock minus the local one, ms. */
  readonly offset: number;
  /** Bound on the offset's error, ms. */
  readonly error: number;
}

/** A seekable recording being replayed. */
export interface PlaybackState {
  readonly type: "playback";
  /** Duration and current position, ms; 0 without a seekable recording. */
  readonly duration: number;
  readonly position: number;
  readonly playing: boolean;
  /**
   * True while the shared replay is shown, false while this viewer plays the recording on its own.
   */
  readonly live: boolean;
  /** Playback waits for data. */
  readonly waiting: boolean;
}

export type FromSession =
  | { readonly type: "phase"; readonly phase: Phase; readonly detail: string }
  | { readonly type: "sessions"; readonly sessions: readonly string[] }
  /** A session opened; `tcp` is the reason why it is over TCP. */
  | { readonly type: "relay"; readonly implementation: string; readonly tcp: TCPReason | undefined }
  /** True for a replayed recording, whose capture times lie in the past. */
  | { readonly type: "replayed"; readonly replayed: boolean }
  | PlaybackState
  | Traffic
  | ClockState;
