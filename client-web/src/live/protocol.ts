/** Messages between the page, the network worker and the decode workers. */
import type { Subject } from "../decode/subject.ts";
import type { CameraTrack, Transform } from "./catalog.ts";

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
  | "silent" // published, but no frames come
  | "ended";

export interface Start {
  readonly type: "start";
  readonly relay: string;
  readonly session: string | undefined;
  readonly certificate: string | undefined;
  readonly receipts: boolean;
  readonly quality: string;
  /** One a decode worker. */
  readonly decoders: readonly MessagePort[];
}

/** The page is done with a frame, whose buffer comes back. */
export interface Spent {
  readonly type: "spent";
  readonly camera: number;
  readonly track: string;
  readonly words: ArrayBuffer;
  /** Local time from which the camera's next frame is of use, ms; undefined where one was asked for already. */
  readonly next: number | undefined;
  /** Of a frame that was drawn: its number, and the frame delay in ms. */
  readonly shown: { readonly sequence: number; readonly delay: number } | undefined;
}

/** What a person does with a recording: seek names a place in it, ms. */
export type PlaybackAction = "play" | "pause" | "live" | { readonly seek: number };

export type ToNetwork =
  | Start
  | Spent
  | { readonly type: "playback"; readonly action: PlaybackAction }
  /** A quality by name, or "auto". */
  | { readonly type: "quality"; readonly quality: string }
  /** Whether the page can be seen at all: in a tab behind others it has use for no frame. */
  | { readonly type: "seen"; readonly seen: boolean }
  | { readonly type: "stop" };

export interface Traffic {
  readonly type: "traffic";
  /** Bytes of media received since the start. */
  readonly bytes: number;
  /** Each camera's frames since its track was chosen. */
  readonly arrived: readonly (readonly [camera: number, frames: number])[];
  /** Frames that arrived, gaps in their sequence numbers, and those that came after a later one. */
  readonly received: number;
  readonly lost: number;
  readonly late: number;
  /** Frames that the relay was asked not to send, as the page would not draw them. */
  readonly declined: number;
  /** Frames that arrived, but before the page had use for one, and were never decoded. */
  readonly skipped: number;
  /** Streams that ended before their object, objects refused, datagrams of no track. */
  readonly cut: number;
  readonly refused: number;
  readonly malformed: number;
  /** Least and smoothed round-trip time, ms; as the browser or a request tells. */
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

export interface Qualities {
  readonly type: "qualities";
  /** Names, the best first. */
  readonly names: readonly string[];
  /** What is asked for: a name, or "auto". */
  readonly chosen: string;
  /** What is received, by camera. */
  readonly received: readonly string[];
}

export type FromNetwork =
  | { readonly type: "phase"; readonly phase: Phase; readonly detail: string }
  | { readonly type: "cameras"; readonly cameras: readonly CameraTrack[] }
  | { readonly type: "pose"; readonly camera: number; readonly pose: Transform }
  | { readonly type: "sessions"; readonly sessions: readonly string[] }
  | { readonly type: "relay"; readonly implementation: string }
  /** Whether the session is a replayed recording, whose capture times are of the past. */
  | { readonly type: "replayed"; readonly replayed: boolean }
  | PlaybackState
  | Qualities
  | Traffic
  | ClockState;

/** From the network worker to a decode worker, over its port. */
export type ToDecoder =
  | { readonly type: "setup"; readonly camera: CameraTrack }
  | { readonly type: "remove"; readonly camera: number }
  | {
      readonly type: "frame";
      readonly camera: number;
      readonly objects: Uint8Array<ArrayBuffer>[];
      readonly arrived: number;
      /** Room for the words, where it is large enough. */
      readonly words: ArrayBuffer | undefined;
    };

/** From a decode worker to the network worker: a frame could not be decoded. */
export interface Undecoded {
  readonly camera: number;
  readonly words: ArrayBuffer | undefined;
}

/** From the page to a decode worker: where its frames come from. */
export interface PageToDecoder {
  readonly network: MessagePort;
}

export interface DecodedFrame {
  readonly type: "frame";
  readonly camera: number;
  readonly track: string;
  readonly sequence: number;
  /** UNIX time of the exposure on the relay's clock, ms. */
  readonly captured: number;
  readonly points: number;
  readonly wordsPerPoint: number;
  readonly words: ArrayBuffer;
  readonly bytes: number;
  /** Time taken to decode, ms. */
  readonly decode: number;
  /** Local times: last byte here, decoded. */
  readonly arrived: number;
  readonly decoded: number;
  /** Not of every frame; undefined without points. */
  readonly subject: Subject | undefined;
}

export type FromDecoder =
  | DecodedFrame
  | { readonly type: "rays"; readonly camera: number; readonly track: string; readonly table: Float32Array<ArrayBuffer> }
  | { readonly type: "bad"; readonly camera: number; readonly message: string };
