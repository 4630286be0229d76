/** Decodes layout W (docs/spec/video-frame.md) except its H.264 pictures. Independent of network and WebCodecs. */
import type { Frame, Limits } from "./frame.ts";
import { FrameError, HEADER_LENGTH, parseHeader, type Header } from "./header.ts";
import type { Kernel } from "./layout.ts";
import { levelDepths, LEVELS, type Quantizer } from "./levels.ts";
import type { Zstd } from "./zstd.ts";

const PARAMETERS_LENGTH = 16;
const INDEX = HEADER_LENGTH + 6;
const MAX_STEP = 128;
const PAGE = 65536;

/** True if an object of layout W begins a group. */
export function isKey(object: Uint8Array): boolean {
  return object[INDEX] === 0 && object[INDEX + 1] === 0;
}

/** An object's parameters and parts. */
export interface VideoObject {
  readonly header: Header;
  readonly quantizer: Quantizer;
  readonly index: number;
  readonly map: Uint8Array<ArrayBuffer>;
  /** H.264 access units in the byte stream format. */
  readonly depth: Uint8Array<ArrayBuffer>;
  readonly color: Uint8Array<ArrayBuffer>;
}

/** Splits an object. Throws a FrameError. */
export function parseVideoObject(b: Uint8Array<ArrayBuffer>): VideoObject {
  const bad = (part: string, detail: string): never => {
    throw new FrameError(part, detail);
  };
  const start = HEADER_LENGTH + PARAMETERS_LENGTH;
  if (b.length < start) bad("length", `${b.length} bytes, header and parameters have ${start}`);
  const header = parseHeader(b, true);
  const v = new DataView(b.buffer, b.byteOffset, b.length);
  const quantizer = { sigma0: v.getUint16(44, true), sigma2: v.getUint16(46, true), step: v.getUint8(48) };
  if (quantizer.sigma0 === 0) bad("parameters", "sigma0 is 0");
  if (quantizer.step === 0 || quantizer.step > MAX_STEP) bad("parameters", `step is ${quantizer.step}`);
  if (v.getUint8(49) !== 0) bad("parameters", "the reserved byte is not 0");
  const depth = start + v.getUint32(52, true);
  const color = depth + v.getUint32(56, true);
  if (color > b.length) bad("length", `${b.length} bytes, map and depth end at ${color}`);
  return {
    header,
    quantizer,
    index: v.getUint16(INDEX, true),
    map: b.subarray(start, depth),
    depth: b.subarray(depth, color),
    color: b.subarray(color),
  };
}

/** Pictures' formats, named as in WebCodecs. */
export type PlanesFormat = "I420" | "NV12";

/** Addresses in the track's memory. */
interface Places {
  readonly map: number;
  readonly changed: number;
  readonly raw: number;
  readonly depth: number;
  readonly color: number;
  readonly levels: number;
  readonly out: number;
  readonly end: number;
}

/** Decodes one track's objects. Each needs the earlier ones of its group. */
export class VideoFrames {
  /** Size of the pictures. */
  readonly width: number;
  readonly height: number;
  readonly #at: Places;
  #object: VideoObject | undefined; // the newest; undefined until a key frame arrives
  #quantizer = "";

  private constructor(
    private readonly limits: Required<Limits>,
    private readonly zstd: Zstd,
    private readonly memory: WebAssembly.Memory,
    private readonly kernel: Kernel,
    at: Places,
  ) {
    this.#at = at;
    this.width = even(limits.width);
    this.height = even(limits.height);
  }

  /** `wasm` is the compiled kernel, planes.wasm. The memory's size is fixed, so views of it stay valid. */
  static async create(wasm: BufferSource, zstd: Zstd, limits: Required<Limits>): Promise<VideoFrames> {
    const at = places(limits);
    const memory = new WebAssembly.Memory({ initial: Math.ceil(at.end / PAGE) });
    const { instance } = await WebAssembly.instantiate(wasm, { env: { memory, abort: () => {} } });
    return new VideoFrames(limits, zstd, memory, instance.exports as unknown as Kernel, at);
  }

  /** Refuses objects until the next key frame. */
  reset(): void {
    this.#object = undefined;
  }

  /** Adds the group's next object and decodes its map. After a FrameError only a key frame is accepted. */
  add(object: Uint8Array<ArrayBuffer>): VideoObject {
    const before = this.#object;
    this.#object = undefined;
    const o = parseVideoObject(object);
    const { header: h, index } = o;
    if (h.width !== this.limits.width || h.height !== this.limits.height)
      throw new FrameError("width", `${h.width}×${h.height}, the track has ${this.limits.width}×${this.limits.height}`);
    if (h.points > this.limits.maxPoints)
      throw new FrameError("points", `${h.points}, the track has at most ${this.limits.maxPoints}`);
    if (index > 0) {
      if (!before) throw new FrameError("index", `${index} without a key frame`);
      if (!sameGroup(before, o)) throw new FrameError("parameters", "changed within the group");
      if (index !== before.index + 1) throw new FrameError("index", `${index} after ${before.index}`);
    }
    const { raw, map, changed } = this.#at;
    const planes = this.#decompress(o);
    new Uint8Array(this.memory.buffer, raw, planes.length).set(planes);
    const valid = before?.header.points ?? 0;
    if (!this.kernel.updateMap(raw, planes.length, h.points, index === 0, h.width, h.height, map, changed, valid))
      throw new FrameError("planes", `inconsistent with ${h.points} points`);
    this.#object = o;
    return o;
  }

  #decompress(o: VideoObject): Uint8Array {
    try {
      return this.zstd.decode(o.map, o.header.rawLength);
    } catch (e) {
      throw e instanceof FrameError ? new FrameError("zstd", e.message) : e;
    }
  }

  /** Destination of the depth picture's planes, without padding. */
  get depth(): Uint8Array<ArrayBuffer> {
    return new Uint8Array(this.memory.buffer, this.#at.depth, pictureLength(this.width, this.height));
  }

  /** Destination of the color picture's planes. */
  get color(): Uint8Array<ArrayBuffer> {
    return new Uint8Array(this.memory.buffer, this.#at.color, pictureLength(this.width, this.height));
  }

  /** Converts the newest object, whose pictures are in `depth` and `color`. The words are valid until the next call. */
  frame(format: PlanesFormat): Frame {
    const o = this.#object;
    if (!o) throw new FrameError("index", "no object");
    const { map, levels, depth, color, out } = this.#at;
    const quantizer = JSON.stringify(o.quantizer);
    if (quantizer !== this.#quantizer) {
      new Uint16Array(this.memory.buffer, levels, LEVELS).set(levelDepths(o.quantizer));
      this.#quantizer = quantizer;
    }
    const { width, height, points } = o.header;
    const cb = color + this.width * this.height;
    const [cr, step] = format === "NV12" ? [cb + 1, 2] : [cb + (this.width * this.height) / 4, 1];
    this.kernel.points(
      map, width, height, levels, depth, color, this.width, cb, cr, step, (step * this.width) / 2, out,
    );
    return { header: o.header, points, form: "pixels", words: new Uint32Array(this.memory.buffer, out, 2 * points) };
  }
}

const even = (n: number): number => n + (n & 1);
const pictureLength = (width: number, height: number): number => (width * height * 3) / 2;

function sameGroup(a: VideoObject, b: VideoObject): boolean {
  const constants = ({ header, quantizer }: VideoObject) =>
    [quantizer.sigma0, quantizer.sigma2, quantizer.step, header.camera, header.width, header.height].join();
  return constants(a) === constants(b);
}

function places({ width, height, maxPoints }: Required<Limits>): Places {
  let end = 0;
  const reserve = (bytes: number): number => {
    const at = end;
    end += (bytes + 7) & ~7;
    return at;
  };
  const pixels = width * height;
  const picture = pictureLength(even(width), even(height));
  const map = reserve(width + pixels) + width; // a row of zeros precedes the map
  return {
    map,
    changed: reserve(width),
    raw: reserve(3 * pixels + 1),
    depth: reserve(picture),
    color: reserve(picture),
    levels: reserve(2 * LEVELS),
    out: reserve(8 * Math.min(maxPoints, pixels)),
    end,
  };
}
