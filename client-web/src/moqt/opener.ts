/** Decryption of received objects, such as by media/session/encryption.ts. */
import type { Properties, TrackName } from "./message.ts";

/** An object's location and publisher priority. */
export interface Place {
  readonly group: bigint;
  readonly id: bigint;
  readonly priority: number;
}

export interface OpenedObject {
  readonly properties: Properties;
  readonly payload: Uint8Array<ArrayBuffer>;
}

/** Decrypts the objects of one subscription or fetch. */
export interface ObjectOpener {
  /** Returns the object's properties and payload; undefined if the object is refused. */
  open(place: Place, properties: Properties, payload: Uint8Array<ArrayBuffer>): Promise<OpenedObject | undefined>;
}

/** Decrypts a session's objects. */
export interface Opener {
  /** `properties` are the track's. Returns undefined if the track is not encrypted. */
  openTrack(track: TrackName, properties: Promise<Properties>): ObjectOpener | undefined;
}

/** Maximum growth of an object's payload by encryption, with properties of up to 64 KiB, bytes. */
export const MAX_SEALING = 65536 + 64;
