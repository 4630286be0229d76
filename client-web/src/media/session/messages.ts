/** What the page and the network worker say to each other about a session, whatever media it carries. */

/** State of the session, as the page reports it. */
export type Phase =
  | "connecting"
  | "no-webtransport"
  | "unreachable"
  | "certificate"
  | "refused"
  | "lost" // the connection broke; it is being tried again
  | "listing" // no session was named: the list is shown
  | "waiting" // connected, but nothing is published yet
  | "live"
  | "silent" // published, but nothing comes
  | "ended";

/** What is watched, and how. */
export interface Watched {
  /** The relay's URL. */
  readonly relay: string;
  /** undefined: list the sessions there are. */
  readonly session: string | undefined;
  /** SHA-256 of the relay's certificate in hex, the only one to be trusted then. */
  readonly certificate: string | undefined;
  /** What authorizes the viewer at the relay. */
  readonly token: string | undefined;
  readonly receipts: boolean;
  /** A quality by name, or "auto". */
  readonly quality: string;
  /** Bits a second that tiles of video may take; Infinity: what the network carries. */
  readonly rate: number;
}

/** What the user does with a recording; seek is a position in ms. */
export type PlaybackAction = "play" | "pause" | "live" | { readonly seek: number };

export type ToSession =
  | { readonly type: "playback"; readonly action: PlaybackAction }
  /** Whether the page is visible. */
  | { readonly type: "seen"; readonly seen: boolean }
  | { readonly type: "stop" };

/** Sent every 250 ms. */
export interface Traffic {
  readonly type: "traffic";
  /** Bytes of media received since the start. */
  readonly bytes: number;
  /** Streams that ended before their object, objects refused, datagrams of no track. */
  readonly cut: number;
  readonly refused: number;
  readonly malformed: number;
  /** Smoothed round-trip time, ms; as the browser or a request tells. */
  readonly rtt: number;
  readonly reconnects: number;
}

export interface ClockState {
  readonly type: "clock";
  /** The relay's clock minus the local one, ms. */
  readonly offset: number;
  /** Bound of the offset's error, ms. */
  readonly error: number;
}

/** A seekable recording that is being replayed. */
export interface PlaybackState {
  readonly type: "playback";
  /** Length of the recording and position in it, ms; 0 where there is no seekable recording. */
  readonly duration: number;
  readonly position: number;
  readonly playing: boolean;
  /** Whether the shared replay is shown, not the recording at the viewer's own pace. */
  readonly live: boolean;
  /** Playback waits for data. */
  readonly waiting: boolean;
}

export type FromSession =
  | { readonly type: "phase"; readonly phase: Phase; readonly detail: string }
  | { readonly type: "sessions"; readonly sessions: readonly string[] }
  | { readonly type: "relay"; readonly implementation: string }
  /** Whether the session is a replayed recording, whose capture times are of the past. */
  | { readonly type: "replayed"; readonly replayed: boolean }
  | PlaybackState
  | Traffic
  | ClockState;
