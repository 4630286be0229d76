/** Messages about point clouds between the page, the network worker and the decode workers. */
import type { Form } from "./layout.ts";
import type { PartsCounts } from "./parts.ts";
import type { Subject } from "./subject.ts";
import type { CameraTrack, Transform } from "./track.ts";

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

/** From the page to the network worker. */
export type ToPoints =
  | Spent
  /** A quality by name, or "auto". */
  | { readonly type: "quality"; readonly quality: string };

export interface Qualities {
  readonly type: "qualities";
  /** Names, the best first. */
  readonly names: readonly string[];
  /** What is asked for: a name, or "auto". */
  readonly chosen: string;
  /** What is received, by camera. */
  readonly received: readonly string[];
}

/** Sent every 250 ms. */
export interface FrameCounts {
  readonly type: "frames";
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
  /** Of frames in datagrams. */
  readonly parts: PartsCounts;
}

/** From the network worker to the page. */
export type FromPoints =
  | { readonly type: "cameras"; readonly cameras: readonly CameraTrack[] }
  | { readonly type: "pose"; readonly camera: number; readonly pose: Transform }
  | Qualities
  | FrameCounts;

/** From the network worker to a decode worker, over its port. */
export type ToDecoder =
  | { readonly type: "setup"; readonly camera: CameraTrack }
  | { readonly type: "remove"; readonly camera: number }
  | { readonly type: "pose"; readonly camera: number; readonly pose: Transform }
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
  readonly form: Form;
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

/** From a decode worker to the page. */
export type FromDecoder =
  | DecodedFrame
  | { readonly type: "rays"; readonly camera: number; readonly track: string; readonly table: Float32Array<ArrayBuffer> }
  | { readonly type: "bad"; readonly camera: number; readonly message: string };
