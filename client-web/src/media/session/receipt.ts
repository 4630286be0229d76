/** Receipts, which report displayed frames to the publisher. internal/qoe defines the layout. */

/**
 * Size in bytes. With its header, the datagram has 200 to 240 bytes, so the packet's size
 * distinguishes it from an acknowledgement.
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
