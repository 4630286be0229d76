/**
 * Zstandard decoder (RFC 8878), based on the wasm binary of zstddec (kernel/zstd.mjs). Accepts
 * exactly one frame.
 */
import { FrameError } from "./header.ts";

const bad = (detail: string): never => {
  throw new FrameError("zstd", detail);
};

/** Length in bytes of the zstd frame at the start of b (§3.1.1), from its block headers. */
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

/** The allocator of the decoder's memory. */
export interface Heap {
  readonly memory: WebAssembly.Memory;
  malloc(size: number): number;
  free(at: number): void;
}

interface Exports extends Heap {
  /** Returns the bytes written, or a negative error code. */
  ZSTD_decompress(dst: number, capacity: number, src: number, length: number): number;
}

/** ZSTD_error_dstSize_tooSmall. */
const TOO_SMALL = -70;
/** Readable bytes after the content, for vector loads. */
const SLACK = 16;

/** A buffer in the decoder's memory, reused between frames. */
export class HeapBuffer {
  at = 0;
  #size = 0;

  constructor(private readonly heap: Heap) {}

  /** Returns the address of at least n bytes. Earlier contents are lost. */
  reserve(n: number): number {
    if (n <= this.#size) return this.at;
    if (this.at) this.heap.free(this.at);
    this.#size = 0;
    this.at = this.heap.malloc(n);
    if (this.at === 0) throw new FrameError("raw length", `no memory for ${n} bytes`);
    this.#size = n;
    return this.at;
  }
}

export class Zstd {
  readonly #wasm: Exports;
  readonly #body: HeapBuffer;
  readonly #planes: HeapBuffer;

  private constructor(wasm: Exports) {
    this.#wasm = wasm;
    this.#body = new HeapBuffer(wasm);
    this.#planes = new HeapBuffer(wasm);
  }

  get heap(): Heap {
    return this.#wasm;
  }

  /** wasm: zstd.wasm. */
  static async create(wasm: BufferSource): Promise<Zstd> {
    const { instance } = await WebAssembly.instantiate(wasm, { env: { emscripten_notify_memory_growth: () => {} } });
    return new Zstd(instance.exports as unknown as Exports);
  }

  /**
   * Decompresses `body`, a single zstd frame with exactly `length` bytes of content. The result is
   * valid until the next call.
   */
  decode(body: Uint8Array, length: number): Uint8Array {
    const n = frameLength(body);
    if (n !== body.length) bad(`${body.length - n} bytes after the frame`);
    const src = this.#body.reserve(body.length);
    const dst = this.#planes.reserve(length + SLACK);
    new Uint8Array(this.#wasm.memory.buffer, src, body.length).set(body);
    const got = this.#wasm.ZSTD_decompress(dst, length, src, body.length) | 0;
    if (got < 0 && got !== TOO_SMALL) bad(`damaged (error ${-got})`);
    if (got !== length)
      throw new FrameError("raw length", `${length}, but the zstd frame yields ${got < 0 ? "more" : got}`);
    return new Uint8Array(this.#wasm.memory.buffer, dst, length);
  }
}
