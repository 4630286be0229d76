/** Decodes a track of layout W: its map, its two H.264 streams, and the points they describe. */
import type { Frame } from "./frame.ts";
import { copyPlanes, PictureDecoder } from "./pictures.ts";
import type { PlanesFormat, VideoFrames } from "./video.ts";

export class VideoTrack {
  readonly #depth: PictureDecoder;
  readonly #color: PictureDecoder;

  constructor(
    private readonly frames: VideoFrames,
    acceleration: HardwareAcceleration,
  ) {
    this.#depth = new PictureDecoder(frames.width, frames.height, acceleration);
    this.#color = new PictureDecoder(frames.width, frames.height, acceleration);
  }

  /**
   * Decodes successive objects and returns the last one's frame, whose words are valid until the next call. Rejects
   * with a FrameError, as do all later calls until the next key frame.
   */
  async decode(objects: readonly Uint8Array<ArrayBuffer>[]): Promise<Frame> {
    try {
      let pictures: readonly Promise<VideoFrame>[] = [];
      for (const object of objects) {
        for (const p of pictures) p.then((picture) => picture.close(), () => {});
        pictures = this.#begin(object);
      }
      return this.frames.frame(await this.#copy(pictures));
    } catch (e) {
      this.frames.reset();
      throw e;
    }
  }

  /** Decodes an object's map and starts to decode its pictures, depth and color. */
  #begin(object: Uint8Array<ArrayBuffer>): readonly Promise<VideoFrame>[] {
    const { depth, color, index } = this.frames.add(object);
    return [this.#depth.decode(depth, index === 0), this.#color.decode(color, index === 0)];
  }

  /** Copies the pictures to the frame decoder and returns the color picture's format. */
  async #copy(pictures: readonly Promise<VideoFrame>[]): Promise<PlanesFormat> {
    const { width, height, depth, color } = this.frames;
    const copied = await Promise.allSettled(
      [depth, color].map(async (into, i) => copyPlanes(await pictures[i]!, width, height, into)),
    );
    for (const c of copied) if (c.status === "rejected") throw c.reason;
    return (copied[1] as PromiseFulfilledResult<PlanesFormat>).value;
  }

  close(): void {
    this.#depth.close();
    this.#color.close();
  }
}
