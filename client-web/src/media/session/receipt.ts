/**
 * Receipts, which report displayed frames to the publisher. The layout is defined in internal/qoe.
 */

/**
 * Bytes. With the datagram header 200–240, so that a packet's size distinguishes it from an
 * acknowledgement.
 */
export const RECEIPT_SIZE = 200;

/** delay: frame delay in ms. */
export function encodeReceipt(camera: number, sequence: number, delay: number): Uint8Array<ArrayBuffer> {
  const b = new Uint8Array(RECEIPT_SIZE);
  const v = new DataView(b.buffer);
  b[0] = 1;
  v.setUint16(2, camera, true);
  v.setUint32(4, sequence, true);
  v.setInt32(8, Math.max(-0x80000000, Math.min(0x7fffffff, Math.round(delay * 1000))), true);
  return b;
}
