/** Messages about sound between the page, the network worker and the AudioWorklets. */
import type { SoundTrack } from "./track.ts";

/** From the page to the network worker. */
export type ToSounds =
  /** Turns sound on or off. */
  | { readonly type: "sound"; readonly on: boolean }
  /** Gives a track the port of its player, which receives FromTrack messages. */
  | { readonly type: "player"; readonly track: string; readonly port: MessagePort };

/** Sent every 250 ms. */
export interface SoundCounts {
  readonly type: "soundCounts";
  /** Packets decoded. */
  readonly received: number;
  /** Packets decoded from the copy in a later one. */
  readonly repeated: number;
  /** Packets that arrived after their copy or a later packet was decoded. */
  readonly late: number;
  /** Packets that contradict the catalog, cannot be decoded or exceed a limit. */
  readonly refused: number;
  /** A sentence about the last refused packet; "" if none was refused. */
  readonly refusal: string;
}

/** From the network worker to the page. */
export type FromSounds = { readonly type: "sounds"; readonly tracks: readonly SoundTrack[] } | SoundCounts;

/** Decoded sound. */
export interface Block {
  /** UNIX time of the first sample on the session's clock, ms. */
  readonly timestamp: number;
  /** One array per channel. */
  readonly channels: readonly Float32Array<ArrayBuffer>[];
}

/** From the network worker to a track's player. */
export type FromTrack =
  | { readonly type: "block"; readonly block: Block }
  /** Discards all blocks, because the following ones belong to another position. */
  | { readonly type: "flush" };

/** The time at which sound is due. */
export interface Target {
  /** The session's clock minus the local one, ms; undefined for a replay, whose timestamps lie in the past. */
  readonly offset: number | undefined;
  /** Local time of hearing a sample minus its timestamp, ms; undefined selects the minimum for the network's jitter. */
  readonly shift: number | undefined;
  /**
   * A lower shift is raised to that minimum, but not over this, ms; undefined = not limited. If it is greater than
   * `shift`, more is allowed where over a tenth of the packets would be concealed.
   */
  readonly latest: number | undefined;
  /** True while playback is paused. */
  readonly still: boolean;
}

/** Parameters of a player. */
export interface PlayerOptions {
  readonly channels: number;
}

/** From the page to a player. */
export type ToPlayer =
  /** `base` is the local time at which time 0 of the AudioContext is heard, ms. */
  | { readonly type: "clock"; readonly base: number }
  | ({ readonly type: "target" } & Target)
  | { readonly type: "source"; readonly port: MessagePort }
  | { readonly type: "close" };

/** From a player to the page, every 250 ms of sound. */
export interface PlayerState {
  /** Local time at which the current sound is heard minus its timestamp, ms; undefined in silence. */
  readonly shift: number | undefined;
  /** Minimum shift for the network's jitter, ms; undefined before the first block. */
  readonly needed: number | undefined;
  /** Sound ready to play, ms. */
  readonly buffered: number;
  /** Packets played. */
  readonly played: number;
  /** Sound concealed since the start, ms. */
  readonly concealed: number;
  /** Time inserted or removed by stretching, ms. */
  readonly stretched: number;
  /** Blocks that came too late. */
  readonly late: number;
  /** Loudness, 0 to 1. */
  readonly level: number;
}
