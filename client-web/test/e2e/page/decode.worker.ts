import { FrameError } from "../../../src/media/points/header.ts";
import { h264Acceleration } from "../../../src/media/points/pictures.ts";
import kernelUrl from "../../../src/media/points/planes.wasm?url";
import { VideoFrames } from "../../../src/media/points/video.ts";
import { VideoTrack } from "../../../src/media/points/videotrack.ts";
import { Zstd } from "../../../src/media/points/zstd.ts";
import zstdUrl from "../../../src/media/points/zstd.wasm?url";

export interface Decoded {
  /** Words of each frame, in base64. */
  readonly frames: string[];
  /** Time to decode each, ms. */
  readonly times: number[];
  /** Name of the invalid field that ended decoding. */
  error?: string;
}

interface Task {
  readonly objects: readonly Uint8Array<ArrayBuffer>[];
  readonly width: number;
  readonly height: number;
}

const base64 = (b: Uint8Array): string => {
  let text = "";
  for (let i = 0; i < b.length; i += 1 << 14) text += String.fromCharCode(...b.subarray(i, i + (1 << 14)));
  return btoa(text);
};

async function decode({ objects, width, height }: Task): Promise<Decoded> {
  const load = async (url: string) => (await fetch(new URL(url, location.href))).arrayBuffer();
  const zstd = await Zstd.create(await load(zstdUrl));
  const acceleration = await h264Acceleration();
  if (!acceleration) throw new Error("this browser decodes no H.264");
  const limits = { width, height, maxPoints: width * height };
  const track = new VideoTrack(await VideoFrames.create(await load(kernelUrl), zstd, limits), acceleration);
  const decoded: Decoded = { frames: [], times: [] };
  const out = new Uint32Array(2 * limits.maxPoints);
  for (const object of objects) {
    const began = performance.now();
    try {
      const { words } = await track.decode([object]);
      out.set(words); // as the viewer does
      decoded.times.push(performance.now() - began);
      decoded.frames.push(base64(new Uint8Array(out.buffer, 0, words.byteLength)));
    } catch (e) {
      if (!(e instanceof FrameError)) throw e;
      decoded.error = e.part;
      break;
    }
  }
  track.close();
  return decoded;
}

onmessage = async (e: MessageEvent<Task>) => postMessage(await decode(e.data));
