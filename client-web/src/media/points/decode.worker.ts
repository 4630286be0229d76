/**
 * Decodes frames off the page's thread. The network worker sends only frames that the page can
 * draw. Buffers travel with the frames and are reused.
 */
import { localTime } from "../session/clock.ts";
import { FrameDecoder, type Frame } from "./frame.ts";
import { formOf, isChained } from "./layout.ts";
import type { FromDecoder, PageToDecoder, ToDecoder, Undecoded } from "./messages.ts";
import { h264Acceleration } from "./pictures.ts";
import kernelUrl from "./planes.wasm?url";
import { rayTable } from "./rays.ts";
import { subject } from "./subject.ts";
import { samePose, type CameraTrack, type Transform } from "./track.ts";
import { VideoFrames } from "./video.ts";
import { VideoTrack } from "./videotrack.ts";
import { patches } from "./viewselect.ts";
import { Zstd } from "./zstd.ts";
import zstdUrl from "./zstd.wasm?url";

/** Interval at which a camera's subject is located, ms. */
const LOCATE_INTERVAL = 250;

/** The compiled decoders, and the frame decoder, which all cameras share. */
interface Decoders {
  readonly kernel: ArrayBuffer;
  readonly zstd: Zstd;
  readonly frames: FrameDecoder;
}

interface Camera {
  readonly track: CameraTrack;
  /** Set if the track's objects are chained. */
  readonly video: Promise<VideoTrack> | undefined;
  readonly rays: Float32Array | undefined;
  /** The current pose; `track.pose` is the catalog's. */
  pose: Transform;
  /** Local time at which the subject was last located. */
  located: number;
}

const cameras = new Map<number, Camera>();
const send = (m: FromDecoder, transfer: Transferable[] = []): void => postMessage(m, { transfer });

function setup(track: CameraTrack, ready: Promise<Decoders>): void {
  let rays: Float32Array<ArrayBuffer> | undefined;
  if (formOf(track.layout) === "pixels") {
    rays = rayTable(track.grid);
    send({ type: "rays", camera: track.camera, track: track.track, table: rays });
  }
  const video = isChained(track.layout) ? openVideo(track, ready) : undefined;
  video?.catch(() => {}); // reported with each frame
  cameras.set(track.camera, { track, video, rays, pose: track.pose, located: 0 });
}

async function openVideo(track: CameraTrack, ready: Promise<Decoders>): Promise<VideoTrack> {
  const [{ kernel, zstd }, acceleration] = await Promise.all([ready, h264Acceleration()]);
  if (!acceleration) throw new Error("this browser decodes no H.264");
  return new VideoTrack(await VideoFrames.create(kernel, zstd, limits(track)), acceleration);
}

function limits({ grid, maxPoints }: CameraTrack): { width: number; height: number; maxPoints: number } {
  return { maxPoints, width: grid.width, height: grid.height };
}

function remove(camera: number): void {
  cameras.get(camera)?.video?.then((v) => v.close(), () => {});
  cameras.delete(camera);
}

function move(camera: number, pose: Transform): void {
  const c = cameras.get(camera);
  if (!c || samePose(c.pose, pose)) return;
  c.pose = pose;
  c.located = 0; // locate the subject immediately, since the page needs it to frame the view
}

async function decode(ready: Promise<Decoders>, m: Extract<ToDecoder, { type: "frame" }>): Promise<void> {
  const c = cameras.get(m.camera);
  if (!c) return;
  const { frames } = await ready;
  let began: number;
  let f: Frame;
  try {
    const video = await c.video;
    began = performance.now();
    f = video ? await video.decode(m.objects) : frames.decode(m.objects, limits(c.track));
  } catch (e) {
    if (cameras.get(m.camera) !== c) return; // closed meanwhile
    throw e;
  }
  if (cameras.get(m.camera) !== c) return;
  if (f.header.camera !== m.camera || f.header.layout !== c.track.layout) {
    throw new Error(
      `frame of camera ${f.header.camera}, layout ${f.header.layout} ` +
        `on the track of camera ${m.camera}, layout ${c.track.layout}`,
    );
  }
  let { words } = m;
  if (!words || words.byteLength < f.words.byteLength) words = new ArrayBuffer(Math.max(f.words.byteLength, 1 << 16));
  new Uint32Array(words, 0, f.words.length).set(f.words);
  let bytes = 0;
  for (const o of m.objects) bytes += o.length;
  const decoded = localTime();
  const locate = decoded - c.located >= LOCATE_INTERVAL;
  if (locate) c.located = decoded;
  send(
    {
      type: "frame",
      camera: m.camera,
      track: c.track.track,
      sequence: f.header.sequence,
      captured: Number(f.header.captureTime) / 1000,
      points: f.points,
      form: f.form,
      words,
      bytes,
      decode: performance.now() - began,
      arrived: m.arrived,
      decoded,
      subject: locate ? subject(f, c.rays, c.pose) : undefined,
      patches: locate && c.rays ? patches(f, c.rays, c.pose) : undefined,
    },
    [words],
  );
}

function follow(port: MessagePort, ready: Promise<Decoders>): void {
  port.onmessage = async (e: MessageEvent<ToDecoder>) => {
    const m = e.data;
    switch (m.type) {
      case "setup":
        setup(m.camera, ready);
        break;
      case "remove":
        remove(m.camera);
        break;
      case "pose":
        move(m.camera, m.pose);
        break;
      case "frame": {
        try {
          await decode(ready, m);
        } catch (error) {
          send({ type: "bad", camera: m.camera, message: error instanceof Error ? error.message : String(error) });
          const words = m.words?.byteLength ? m.words : undefined;
          port.postMessage({ camera: m.camera, words } satisfies Undecoded, words ? [words] : []);
        }
      }
    }
  };
}

addEventListener("message", (e: MessageEvent<PageToDecoder>) => {
  const ready = (async () => {
    const [kernel, wasm] = await Promise.all(
      [kernelUrl, zstdUrl].map(async (url) => (await fetch(new URL(url, location.href))).arrayBuffer()),
    );
    const zstd = await Zstd.create(wasm!);
    return { kernel: kernel!, zstd, frames: await FrameDecoder.create(kernel!, zstd) };
  })();
  follow(e.data.network, ready);
});
