/** What the page and the network worker say to each other about a session, whatever media it carries. */

/** Where the session stands, in words for a person. */
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
  readonly receipts: boolean;
  /** A quality by name, or "auto". */
  readonly quality: string;
  /** Bits a second that tiles of video may take; Infinity: what the network carries. */
  readonly rate: number;
}

/** What a person does with a recording: seek names a place in it, ms. */
export type PlaybackAction = "play" | "pause" | "live" | { readonly seek: number };

export type ToSession =
  | { readonly type: "playback"; readonly action: PlaybackAction }
  /** Whether anybody can see the page: in a tab behind others it has use for nothing. */
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
  /** Relay's clock less the local one, ms. */
  readonly offset: number;
  /** Bound of the offset's error, ms. */
  readonly error: number;
}

/** A recording that is replayed, in which the viewer can move about. */
export interface PlaybackState {
  readonly type: "playback";
  /** Length of the recording and place in it, ms; a duration of 0: there is none to move about in. */
  readonly duration: number;
  readonly position: number;
  readonly playing: boolean;
  /** Whether the replay is watched that all see, and not the recording at the viewer's own pace. */
  readonly live: boolean;
  /** What is due has not arrived. */
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
