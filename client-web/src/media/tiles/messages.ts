/** Messages about 360° video between the page, the network worker and the video decode worker. */
import type { Sphere } from "./track.ts";
import type { Vec } from "./sphere.ts";

/** Pseudo tile number of the base sphere. */
export const BASE = -1;

/** From the page to the network worker. */
export type ToTiles =
  /** Gaze in sphere coordinates, and field of view as the angles between opposite edges, radians. */
  | { readonly type: "gaze"; readonly gaze: Vec; readonly width: number; readonly height: number }
  /** Number of tiles that the GPU can show at a time. */
  | { readonly type: "fit"; readonly tiles: number };

/** The playout clock. */
export interface Due {
  readonly type: "due";
  /** Local playout time of a frame minus its timestamp, ms. */
  readonly shift: number;
  /** Timestamp at which a recording is paused, ms; undefined while playing. */
  readonly still: number | undefined;
}

/** Returns the timestamp that is due at a local time, ms. */
export const mediaTime = ({ shift, still }: Due, now: number): number => still ?? now - shift;

/** After a seek, frames of earlier runs must not be shown. */
export interface Drop {
  readonly type: "drop";
  readonly run: number;
}

export interface TileState {
  readonly type: "tiles";
  /** Requested quality per tile; −1 = not requested. */
  readonly asked: readonly number[];
  /** Requests that subscribed to, changed or cancelled tiles since the start. */
  readonly messages: number;
  /** Tile GoPs received in full. */
  readonly complete: number;
  /** Tile GoPs that ended early. */
  readonly cut: number;
  /** Predicted capacity used for planning, bytes per second. */
  readonly capacity: number;
}

/** From the network worker to the page. */
export type FromTiles =
  | { readonly type: "sphere"; readonly sphere: Sphere | undefined }
  | Due
  | Drop
  | TileState;

/** From the network worker to the video decode worker. */
export type ToVideo =
  /** `same` is true if only the sphere's list of tracks changed. */
  | { readonly type: "sphere"; readonly sphere: Sphere | undefined; readonly same: boolean }
  | Due
  | Drop
  /** Releases the decoder of a tile that is out of view. */
  | { readonly type: "release"; readonly tile: number }
  | Chunk;

/** A frame of a tile or the base sphere. */
export interface Chunk {
  readonly type: "chunk";
  readonly run: number;
  readonly tile: number;
  readonly quality: number;
  readonly group: bigint;
  /** Index in its group; 0 is a key frame. */
  readonly id: number;
  /** UNIX time, µs. */
  readonly timestamp: number;
  readonly config: Uint8Array | undefined;
  readonly data: Uint8Array<ArrayBuffer>;
}

/** From the video decode worker to the page. */
export type FromVideo =
  | {
      readonly type: "picture";
      readonly run: number;
      readonly tile: number;
      readonly quality: number;
      readonly timestamp: number;
      readonly frame: VideoFrame;
    }
  | { readonly type: "bad"; readonly tile: number; readonly message: string };

/**
 * From the page to the video decode worker, with the port on which its chunks arrive and on which it reports how many
 * tiles it can decode at a time.
 */
export interface PageToVideo {
  readonly network: MessagePort;
}
