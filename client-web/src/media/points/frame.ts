/** Decodes point-cloud frames to words for the GPU. Knows no network and no scene. */
import { FrameError, parseHeader, sameFrame, share, type Header } from "./header.ts";
import { formOf, layouts, wordsPerPoint, type Form, type Kernel } from "./layout.ts";
import type { Zstd } from "./zstd.ts";

/** What a decoder takes: its own limits, below the format's. */
export interface Limits {
  /** Most points of a frame, of all its descriptions. */
  readonly maxPoints: number;
  /** Pixels of the grid that a frame on one must have; undefined = any. */
  readonly width?: number;
  readonly height?: number;
}

/** A decoded frame, whatever its layout was. */
export interface Frame {
  /** The first object's; `points` counts all objects. */
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

  /** wasm: the compiled kernel, planes.wasm. */
  static async create(wasm: BufferSource, zstd: Zstd): Promise<FrameDecoder> {
    const { instance } = await WebAssembly.instantiate(wasm, { env: { abort: () => {} } });
    return new FrameDecoder(instance.exports, zstd);
  }

  /** Decodes any of the descriptions of one frame, in any order. Throws a FrameError. */
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
      if (!layouts[h.layout].undo(this.#kernel, h, share(h), { raw, length: planes.length, row, out: at })) throw new FrameError("planes", `not those of ${h.points} points`);
      at += 4 * size * h.points;
    });
    return { header: first, points, form, words: new Uint32Array(this.#kernel.memory.buffer, out, size * points) };
  }
}
