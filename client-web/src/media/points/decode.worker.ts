/**
 * Decodes frames off the page's thread. The network worker sends only frames that the page can
 * draw. Buffers travel with the frames and are reused.
 */
import { localTime } from "../session/clock.ts";
import { FrameDecoder } from "./frame.ts";
import { formOf } from "./layout.ts";
import type { FromDecoder, PageToDecoder, ToDecoder, Undecoded } from "./messages.ts";
import kernelUrl from "./planes.wasm?url";
import { rayTable } from "./rays.ts";
import { subject } from "./subject.ts";
import { samePose, type CameraTrack, type Transform } from "./track.ts";
import { Zstd } from "./zstd.ts";
import zstdUrl from "./zstd.wasm?url";

/** Interval at which a camera's subject is located, ms. */
const LOCATE_INTERVAL = 250;

interface Camera {
  readonly track: CameraTrack;
  readonly rays: Float32Array | undefined;
  /** The current pose; `track.pose` is the catalog's. */
  pose: Transform;
  /** Local time at which the subject was last located. */
  located: number;
}

const cameras = new Map<number, Camera>();
const send = (m: FromDecoder, transfer: Transferable[] = []): void => postMessage(m, { transfer });

function setup(track: CameraTrack): void {
  let rays: Float32Array<ArrayBuffer> | undefined;
  if (formOf(track.layout) === "pixels") {
    rays = rayTable(track.grid);
    send({ type: "rays", camera: track.camera, track: track.track, table: rays });
  }
  cameras.set(track.camera, { track, rays, pose: track.pose, located: 0 });
}

function move(camera: number, pose: Transform): void {
  const c = cameras.get(camera);
  if (!c || samePose(c.pose, pose)) return;
  c.pose = pose;
  c.located = 0; // locate the subject immediately, since the page needs it to frame the view
}

function decode(decoder: FrameDecoder, m: Extract<ToDecoder, { type: "frame" }>): void {
  const c = cameras.get(m.camera);
  if (!c) return;
  const began = performance.now();
  const { grid, maxPoints } = c.track;
  const f = decoder.decode(m.objects, { maxPoints, width: grid.width, height: grid.height });
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
    },
    [words],
  );
}

function follow(port: MessagePort, ready: Promise<FrameDecoder>): void {
  port.onmessage = async (e: MessageEvent<ToDecoder>) => {
    const m = e.data;
    switch (m.type) {
      case "setup":
        setup(m.camera);
        break;
      case "remove":
        cameras.delete(m.camera);
        break;
      case "pose":
        move(m.camera, m.pose);
        break;
      case "frame": {
        try {
          decode(await ready, m);
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
    const [kernel, zstd] = await Promise.all(
      [kernelUrl, zstdUrl].map(async (url) => (await fetch(new URL(url, location.href))).arrayBuffer()),
    );
    return FrameDecoder.create(kernel!, await Zstd.create(zstd!));
  })();
  follow(e.data.network, ready);
});
