/** All messages between the page and the network worker. */
import type { FromPoints, ToPoints } from "./points/messages.ts";
import type { FromSession, ToSession, WatchOptions } from "./session/messages.ts";
import type { FromSounds, ToSounds } from "./sound/messages.ts";
import type { FromTiles, ToTiles } from "./tiles/messages.ts";

export interface Start extends WatchOptions {
  readonly type: "start";
  /** Ports to the point-cloud decode workers. */
  readonly decoders: readonly MessagePort[];
}

/** Asks the page to start a video decode worker and pass it this port. */
export interface OpenVideo {
  readonly type: "openVideo";
  readonly port: MessagePort;
}

export type ToNetwork = Start | ToSession | ToPoints | ToTiles | ToSounds;
export type FromNetwork = FromSession | FromPoints | FromTiles | FromSounds | OpenVideo;
