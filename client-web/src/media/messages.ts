/** All that the page and the network worker say to each other. */
import type { FromPoints, ToPoints } from "./points/messages.ts";
import type { FromSession, ToSession, Watched } from "./session/messages.ts";
import type { FromTiles, ToTiles } from "./tiles/messages.ts";

export interface Start extends Watched {
  readonly type: "start";
  /** One a worker that decodes points. */
  readonly decoders: readonly MessagePort[];
}

/** A sphere of video is to be decoded: the page makes the worker, and gives it this port. */
export interface OpenVideo {
  readonly type: "openVideo";
  readonly port: MessagePort;
}

export type ToNetwork = Start | ToSession | ToPoints | ToTiles;
export type FromNetwork = FromSession | FromPoints | FromTiles | OpenVideo;
