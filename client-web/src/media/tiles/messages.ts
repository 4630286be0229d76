/** Messages about a sphere of video between the page, the network worker and the worker that decodes. */
import type { Sphere } from "./track.ts";
import type { Vec } from "./sphere.ts";

/** The low-resolution sphere, and sound, among the numbers of tiles. */
export const WHOLE = -1;
export const SOUND = -2;

/** From the page to the network worker. */
export type ToTiles =
  /** Where the viewer looks, in the sphere's own coordinates, and what is seen: angles between opposite edges, radians. */
  | { readonly type: "gaze"; readonly gaze: Vec; readonly width: number; readonly height: number }
  /** Whether the user wants to hear the session. */
  | { readonly type: "sound"; readonly on: boolean };

/** When media is due. */
export interface Due {
  readonly type: "due";
  /** Local time at which a frame is due, minus its timestamp, ms. */
  readonly shift: number;
  /** Timestamp at which a recording stands, ms; undefined while time goes on. */
  readonly still: number | undefined;
}

/** The timestamp, ms, that is due at a local time. */
export const mediaTime = ({ shift, still }: Due, now: number): number => still ?? now - shift;

/** After a seek: what comes of earlier runs is not to be shown. */
export interface Drop {
  readonly type: "drop";
  readonly run: number;
}

export interface TileState {
  readonly type: "tiles";
  /** The quality asked for of each tile, −1 where none is. */
  readonly asked: readonly number[];
  /** Subscribed to, changed and cancelled since the start. */
  readonly messages: number;
  /** GoPs of tiles that came whole, and those that were cut off. */
  readonly whole: number;
  readonly cut: number;
  /** Predicted capacity, bytes a second: what is planned with. */
  readonly capacity: number;
}

/** From the network worker to the page. */
export type FromTiles =
  | { readonly type: "sphere"; readonly sphere: Sphere | undefined }
  | Due
  | Drop
  | TileState;

/** From the network worker to the one that decodes. */
export type ToVideo =
  /** same: only which tracks there are has changed. */
  | { readonly type: "sphere"; readonly sphere: Sphere | undefined; readonly same: boolean }
  | Due
  | Drop
  /** A packet of sound; timestamp: UNIX time, µs. */
  | { readonly type: "packet"; readonly run: number; readonly timestamp: number; readonly data: Uint8Array<ArrayBuffer> }
  | {
      readonly type: "chunk";
      readonly run: number;
      readonly tile: number;
      readonly quality: number;
      readonly group: bigint;
      /** Number in its group; 0 can be decoded without any other. */
      readonly id: number;
      /** UNIX time, µs. */
      readonly timestamp: number;
      readonly config: Uint8Array | undefined;
      readonly data: Uint8Array<ArrayBuffer>;
    };

/** From the worker that decodes to the page. */
export type FromVideo =
  | { readonly type: "picture"; readonly run: number; readonly tile: number; readonly quality: number; readonly timestamp: number; readonly frame: VideoFrame }
  | Samples
  | { readonly type: "bad"; readonly tile: number; readonly message: string };

/** Decoded sound. */
export interface Samples {
  readonly type: "samples";
  readonly run: number;
  /** UNIX time of the first, µs. */
  readonly timestamp: number;
  readonly sampleRate: number;
  /** One array a channel. */
  readonly channels: readonly Float32Array<ArrayBuffer>[];
}

/** From the page to the worker that decodes: where its chunks come from. */
export interface PageToVideo {
  readonly network: MessagePort;
}
