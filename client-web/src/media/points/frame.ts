/** Decodes point-cloud frames into 32-bit words for the GPU. Independent of network and scene. */
import { FrameError, parseHeader, sameFrame, share, type Header } from "./header.ts";
import { formOf, layouts, wordsPerPoint, type Form, type Kernel } from "./layout.ts";
import type { Zstd } from "./zstd.ts";

/** Limits of one track, tighter than the format's. */
export interface Limits {
  /** Maximum number of points in a frame, over all descriptions. */
  readonly maxPoints: number;
  /** Grid size that frames in pixel form must have; undefined = any. */
  readonly width?: number;
  readonly height?: number;
}

/** A decoded frame of any layout. */
export interface Frame {
  /** Header of the first object; `points` counts all objects. */
  readonly header: Header;
  readonly points: number;
  readonly form: Form;
  /** View of the decoder's memory, valid until the next call. */
  readonly words: Uint32Array;
}

const align = (n: number): number => (n + 15) & ~15;

export class FrameDecoder {
  readonly #kernel: Kernel;

  private constructor(
    kernel: WebAssembly.Exports,
    private readonly zstd: Zstd,
  ) {
    this.#kernel = kernel as unknown as Kernel;
  }

  /** wasm: planes.wasm, the compiled kernel. */
  static async create(wasm: BufferSource, zstd: Zstd): Promise<FrameDecoder> {
    const { instance } = await WebAssembly.instantiate(wasm, { env: { abort: () => {} } });
    return new FrameDecoder(instance.exports, zstd);
  }

  /** Decodes some or all descriptions of one frame, in any order. Throws a FrameError. */
  decode(objects: readonly Uint8Array[], limits: Limits): Frame {
    const headers = objects.map(parseHeader);
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
    if (points > limits.maxPoints) throw new FrameError("points", `${points}, the track has at most ${limits.maxPoints}`);
    if (formOf(first.layout) === "pixels" && limits.width !== undefined && (first.width !== limits.width || first.height !== limits.height)) {
      throw new FrameError("width", `${first.width}×${first.height}, the track has ${limits.width}×${limits.height}`);
    }
    const form = formOf(first.layout);
    const size = wordsPerPoint[form];
    const out = align(this.#kernel.base());
    const row = align(out + 4 * size * points);
    const raw = align(row + 20 * first.width);
    let at = out;
    headers.forEach((h, i) => {
      const planes = this.zstd.decode(objects[i]!.subarray(44), h.rawLength);
      if (!this.#kernel.reserve(raw + planes.length + 16)) throw new FrameError("points", `no memory for ${points}`);
      new Uint8Array(this.#kernel.memory.buffer, raw, planes.length).set(planes);
      if (!layouts[h.layout].decode(this.#kernel, h, share(h), { raw, length: planes.length, row, out: at })) {
      throw new FrameError("planes", `inconsistent with ${h.points} points`);
      }
      at += 4 * size * h.points;
    });
    return { header: first, points, form, words: new Uint32Array(this.#kernel.memory.buffer, out, size * points) };
  }
}
