/** Messages about point clouds between the page, the network worker and the decode workers. */
import type { Form } from "./layout.ts";
import type { PartsCounts } from "./parts.ts";
import type { Subject } from "./subject.ts";
import type { CameraTrack, Transform } from "./track.ts";

/** The page releases a frame and returns its buffer. */
export interface Released {
  readonly type: "released";
  readonly camera: number;
  readonly track: string;
  readonly words: ArrayBuffer;
  /** Local time, in ms, from which the page can use the camera's next frame; undefined if already requested. */
  readonly next: number | undefined;
  /** Sequence number and delay, in ms, of the frame; undefined if it was not drawn. */
  readonly shown: { readonly sequence: number; readonly delay: number } | undefined;
}

/** From the page to the network worker. */
export type ToPoints =
  | Released
  /** A quality name, or "auto". */
  | { readonly type: "quality"; readonly quality: string }
  /** Each camera's share of the picture (viewselect.ts). */
  | { readonly type: "worths"; readonly worths: readonly (readonly [camera: number, worth: number])[] }
  /** Holds live frames back by this many ms, for sound that arrives later. */
  | { readonly type: "postpone"; readonly by: number };

export interface Qualities {
  readonly type: "qualities";
  /** Quality names, best first. */
  readonly names: readonly string[];
  /** The requested quality, or "auto". */
  readonly chosen: string;
  /** Quality received from each camera. */
  readonly received: readonly string[];
}

export type Arrived = readonly [camera: number, frames: number, bytes: number];

/** Sent every 250 ms. */
export interface FrameCounts {
  readonly type: "frames";
  /** Frames per camera, and their bytes, since its track was chosen. */
  readonly arrived: readonly Arrived[];
  /**
   * Frames that arrived, gaps in their sequence numbers, and frames that arrived after a later one.
   */
  readonly received: number;
  readonly lost: number;
  readonly late: number;
  /** Frames that the relay was asked not to send because the page could not draw them. */
  readonly declined: number;
  /** Frames that arrived before the page could use one and were never decoded. */
  readonly skipped: number;
  /** Counters of frames sent in datagrams. */
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
      /** Output buffer to reuse if large enough. */
      readonly words: ArrayBuffer | undefined;
    };

/** From a decode worker to the network worker when a frame could not be decoded. */
export interface Undecoded {
  readonly camera: number;
  readonly words: ArrayBuffer | undefined;
}

/** From the page to a decode worker, with the port on which its frames arrive. */
export interface PageToDecoder {
  readonly network: MessagePort;
}

export interface DecodedFrame {
  readonly type: "frame";
  readonly camera: number;
  readonly track: string;
  readonly sequence: number;
  /** Exposure time, UNIX ms on the relay's clock. */
  readonly captured: number;
  readonly points: number;
  readonly form: Form;
  readonly words: ArrayBuffer;
  readonly bytes: number;
  /** Decoding time, ms. */
  readonly decode: number;
  /** Local times at which the last byte arrived and decoding ended. */
  readonly arrived: number;
  readonly decoded: number;
  /** Located every few frames; undefined otherwise, or without points. */
  readonly subject: Subject | undefined;
  /** Surface patches (viewselect.ts) of every few frames in pixel form. */
  readonly patches: Float32Array<ArrayBuffer> | undefined;
}

/** From a decode worker to the page. */
export type FromDecoder =
  | DecodedFrame
  | {
      readonly type: "rays";
      readonly camera: number;
      readonly track: string;
      readonly table: Float32Array<ArrayBuffer>;
    }
  | { readonly type: "bad"; readonly camera: number; readonly message: string };
