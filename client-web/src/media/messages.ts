/** All that the page and the network worker say to each other. */
import type { FromPoints, ToPoints } from "./points/messages.ts";
import type { FromSession, ToSession, Watched } from "./session/messages.ts";

export interface Start extends Watched {
  readonly type: "start";
  /** One a worker that decodes points. */
  readonly decoders: readonly MessagePort[];
}

export type ToNetwork = Start | ToSession | ToPoints;
export type FromNetwork = FromSession | FromPoints;
