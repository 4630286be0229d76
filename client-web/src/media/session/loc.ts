/** Properties of media objects (draft-ietf-moq-loc-04). */
import type { Properties } from "../../moqt/message.ts";

/** avcC of a frame and its successors. */
export const VIDEO_CONFIG = 0x0d;
const TIMESTAMP = 0x10;
/** Up to LOC-03, as in earlier recordings. */
const TIMESTAMP_03 = 0x0a;

/** Units of the timestamp per second. */
const TIMESCALE = 0x08;

/** Capture time of an object, UNIX µs; undefined if it has none, or one in other units. */
export function timestampOf({ other }: Properties): bigint | undefined {
  if (other?.has(TIMESCALE)) return undefined;
  const stamp = other?.get(TIMESTAMP) ?? other?.get(TIMESTAMP_03);
  return typeof stamp === "bigint" ? stamp : undefined;
}
