/** Zstandard (RFC 8878) in wasm, held to exactly one frame. */
import { ZSTDDecoder } from "zstddec";
import { FrameError } from "./header.ts";

const bad = (detail: string): never => {
  throw new FrameError("zstd", detail);
};

/** Length in bytes of the zstd frame that b begins with (§3.1.1), found without decoding it. */
export function frameLength(b: Uint8Array): number {
  if (b.length < 6 || b[0] !== 0x28 || b[1] !== 0xb5 || b[2] !== 0x2f || b[3] !== 0xfd) bad("no zstd frame");
  const descriptor = b[4]!;
  if (descriptor & 0x08) bad("reserved bit");
  const single = (descriptor & 0x20) !== 0;
  const sizeFlag = descriptor >> 6;
  const dictionary = [0, 1, 2, 4][descriptor & 3]!;
  let at = 5 + (single ? 0 : 1) + dictionary + (sizeFlag === 0 ? (single ? 1 : 0) : 1 << sizeFlag);
  for (;;) {
    if (at + 3 > b.length) bad("cut off");
    const header = b[at]! | (b[at + 1]! << 8) | (b[at + 2]! << 16);
    const type = (header >> 1) & 3;
    if (type === 3) bad("reserved block type");
    at += 3 + (type === 1 ? 1 : header >> 3);
    if (at > b.length) bad("cut off");
    if (header & 1) break;
  }
  if (descriptor & 0x04) at += 4; // checksum
  if (at > b.length) bad("cut off");
  return at;
}

export class Zstd {
  readonly #decoder = new ZSTDDecoder();

  private constructor() {}

  static async create(): Promise<Zstd> {
    const z = new Zstd();
    await z.#decoder.init();
    return z;
  }

  /** Decodes a body that is one zstd frame of exactly `length` bytes of content. */
  decode(body: Uint8Array, length: number): Uint8Array {
    const n = frameLength(body);
    if (n !== body.length) bad(`${body.length - n} bytes after the frame`);
    let raw: Uint8Array;
    try {
      // One byte more than is wanted, so that content of none or too many is told from damage.
      raw = this.#decoder.decode(body, length + 1);
    } catch (e) {
      return bad(e instanceof Error ? e.message : String(e));
    }
    if (raw.length === 0 && length > 0) bad("damaged");
    if (raw.length !== length) throw new FrameError("raw length", `${length}, but the zstd frame yields ${raw.length} bytes`);
    return raw;
  }
}
