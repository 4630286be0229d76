/** Decodes point-cloud frames into 32-bit words for the GPU. Independent of network and scene. */
import { FrameError, parseHeader, sameFrame, share, type Header } from "./header.ts";
import { formOf, layouts, wordsPerPoint, type Form, type Kernel } from "./layout.ts";
import { HeapBuffer, type Zstd } from "./zstd.ts";

/** Limits of one track, which are tighter than the format's limits. */
export interface Limits {
  /** Maximum number of points in a frame, over all descriptions. */
  readonly maxPoints: number;
  /** Grid size that frames in pixel form must have; undefined allows any. */
  readonly width?: number;
  readonly height?: number;
}

/** A decoded frame of any layout. */
export interface Frame {
  /** Header of the first object; `points` counts all objects. */
  readonly header: Header;
  readonly points: number;
  readonly form: Form;
  /** View of the decoder's memory, valid until the next call. Copy it before transferring it. */
  readonly words: Uint32Array;
}

export class FrameDecoder {
  readonly #kernel: Kernel;
  readonly #words: HeapBuffer;
  readonly #row: HeapBuffer;

  private constructor(
    kernel: WebAssembly.Exports,
    private readonly zstd: Zstd,
  ) {
    this.#kernel = kernel as unknown as Kernel;
    this.#words = new HeapBuffer(zstd.heap);
    this.#row = new HeapBuffer(zstd.heap);
  }

  /** `wasm` is the compiled kernel, planes.wasm. */
  static async create(wasm: BufferSource, zstd: Zstd): Promise<FrameDecoder> {
    const { instance } = await WebAssembly.instantiate(wasm, { env: { memory: zstd.heap.memory, abort: () => {} } });
    return new FrameDecoder(instance.exports, zstd);
  }

  /** Decodes some or all descriptions of one frame, in any order. Throws a FrameError. */
  decode(objects: readonly Uint8Array[], limits: Limits): Frame {
    const headers = objects.map((o) => parseHeader(o));
    const first = headers[0];
    if (!first) throw new FrameError("length", "no object");
    let points = 0;
    let seen = 0;
    for (const h of headers) {
      if (!sameFrame(first, h)) throw new FrameError("mismatch", "objects of different frames");
      if (seen & (1 << h.description)) throw new FrameError("description", `${h.description} is given twice`);
      seen |= 1 << h.description;
      points += h.points;
    }
    if (points > limits.maxPoints)
      throw new FrameError("points", `${points}, the track has at most ${limits.maxPoints}`);
    if (
      formOf(first.layout) === "pixels" &&
      limits.width !== undefined &&
      (first.width !== limits.width || first.height !== limits.height)
    ) {
      throw new FrameError("width", `${first.width}×${first.height}, the track has ${limits.width}×${limits.height}`);
    }
    const form = formOf(first.layout);
    const size = wordsPerPoint[form];
    const words = this.#words.reserve(4 * size * points);
    const row = this.#row.reserve(20 * first.width);
    let out = words;
    headers.forEach((h, i) => {
      const planes = this.zstd.decode(objects[i]!.subarray(44), h.rawLength);
      if (
        !layouts[h.layout].decode!(this.#kernel, h, share(h), {
          raw: planes.byteOffset,
          length: planes.length,
          row,
          out,
        })
      ) {
        throw new FrameError("planes", `inconsistent with ${h.points} points`);
      }
      out += 4 * size * h.points;
    });
    return { header: first, points, form, words: new Uint32Array(this.zstd.heap.memory.buffer, words, size * points) };
  }
}
