/** Decodes the H.264 pictures of layout W with WebCodecs. */
import { FrameError } from "./header.ts";
import type { PlanesFormat } from "./video.ts";

const NAL_SLICE = 1;
const NAL_IDR = 5;
const NAL_SPS = 7;
/** Time after which a decoder counts as stuck, ms. */
const STUCK = 10_000;
/** Constrained baseline, level 3.1. */
const BASELINE = "avc1.42c01f";

/**
 * The hardware acceleration to request: none if possible, since the pictures are read back to main memory.
 * Undefined if the browser cannot decode H.264.
 */
export async function h264Acceleration(): Promise<HardwareAcceleration | undefined> {
  if (typeof VideoDecoder === "undefined") return undefined;
  for (const hardwareAcceleration of ["prefer-software", "no-preference"] as const) {
    const size = { codedWidth: 640, codedHeight: 576 };
    const config = { codec: BASELINE, ...size, optimizeForLatency: true, hardwareAcceleration };
    const { supported } = await VideoDecoder.isConfigSupported(config).catch(() => ({ supported: false }));
    if (supported) return hardwareAcceleration;
  }
  return undefined;
}

/** The codec string of a key frame's access unit in the byte stream format. Throws a FrameError. */
export function codecOf(unit: Uint8Array): string {
  let codec: string | undefined;
  let slice: number | undefined; // type of the first
  for (let i = 0; i + 3 < unit.length && slice === undefined; i++) {
    if (unit[i] !== 0 || unit[i + 1] !== 0 || unit[i + 2] !== 1) continue;
    const type = unit[i + 3]! & 0x1f;
    if (type >= NAL_SLICE && type <= NAL_IDR) slice = type;
    if (type === NAL_SPS && i + 6 < unit.length)
      codec = `avc1.${[4, 5, 6].map((k) => unit[i + k]!.toString(16).padStart(2, "0")).join("")}`;
  }
  if (slice !== NAL_IDR) throw bad("a key frame without an IDR picture");
  if (codec === undefined) throw bad("a key frame without its sequence parameters");
  return codec;
}

const bad = (detail: string): FrameError => new FrameError("picture", detail);

interface Expected {
  readonly timestamp: number;
  readonly resolve: (picture: VideoFrame) => void;
  readonly reject: (why: Error) => void;
}

/** Decodes one H.264 stream whose access units yield one picture each, without delay. */
export class PictureDecoder {
  #decoder: VideoDecoder | undefined;
  #configured = "";
  #timestamp = 0;
  readonly #expected: Expected[] = [];

  constructor(
    private readonly width: number,
    private readonly height: number,
    private readonly acceleration: HardwareAcceleration,
  ) {}

  /**
   * Decodes an access unit to a picture, which the caller closes. Rejects with a FrameError, as do all later calls
   * until a key frame.
   */
  async decode(unit: Uint8Array<ArrayBuffer>, key: boolean): Promise<VideoFrame> {
    if (key) this.#configure(codecOf(unit));
    const decoder = this.#decoder;
    if (!decoder) throw bad("the decoder waits for a key frame");
    const timestamp = this.#timestamp++;
    const picture = new Promise<VideoFrame>((resolve, reject) => this.#expected.push({ timestamp, resolve, reject }));
    const stuck = setTimeout(() => decoder === this.#decoder && this.#fail(`no picture in ${STUCK} ms`), STUCK);
    try {
      decoder.decode(new EncodedVideoChunk({ type: key ? "key" : "delta", timestamp, data: unit }));
    } catch (e) {
      this.#fail(String(e));
    }
    return picture.finally(() => clearTimeout(stuck));
  }

  #configure(codec: string): void {
    if (this.#decoder && this.#configured === codec) return;
    this.close();
    const decoder = new VideoDecoder({
      output: (picture) => this.#take(decoder, picture),
      error: (e) => decoder === this.#decoder && this.#fail(e.message),
    });
    decoder.configure({
      codec,
      codedWidth: this.width,
      codedHeight: this.height,
      optimizeForLatency: true,
      hardwareAcceleration: this.acceleration,
    });
    this.#decoder = decoder;
    this.#configured = codec;
  }

  #take(decoder: VideoDecoder, picture: VideoFrame): void {
    if (decoder !== this.#decoder) return picture.close();
    const next = this.#expected.shift();
    if (next?.timestamp === picture.timestamp) return next.resolve(picture);
    picture.close();
    if (next) this.#expected.unshift(next);
    this.#fail("an access unit yields no picture");
  }

  #fail(detail: string): void {
    if (this.#decoder && this.#decoder.state !== "closed") this.#decoder.close();
    this.#decoder = undefined;
    for (const e of this.#expected.splice(0)) e.reject(bad(detail));
  }

  close(): void {
    this.#fail("closed");
  }
}

/** Copies a picture's planes, without padding, and closes it. Throws a FrameError. */
export async function copyPlanes(
  picture: VideoFrame,
  width: number,
  height: number,
  into: Uint8Array<ArrayBuffer>,
): Promise<PlanesFormat> {
  try {
    const { format, visibleRect: r } = picture;
    if (r?.width !== width || r.height !== height) throw bad(`${r?.width}×${r?.height} pixels, want ${width}×${height}`);
    if (format !== "I420" && format !== "NV12") throw bad(`format ${format}, want I420 or NV12`);
    await picture.copyTo(into);
    return format;
  } finally {
    picture.close();
  }
}
