/**
 * Decodes frames off the page's thread, those alone that the page asks for: the network worker keeps the
 * newest meanwhile, so that no time is spent on what cannot be drawn. Buffers go round: the page returns
 * what it has uploaded.
 */
import type { Decoded, FromDecoder, PageToDecoder, ToDecoder } from "../live/protocol.ts";
import { localTime } from "../live/clock.ts";
import type { CameraTrack } from "../live/catalog.ts";
import { FrameDecoder } from "./frame.ts";
import kernelUrl from "./planes.wasm?url";
import { rayTable } from "./rays.ts";
import { subject } from "./subject.ts";
import { Zstd } from "./zstd.ts";
import zstdUrl from "./zstd.wasm?url";

/** Buffers kept of a camera: the page may hold a frame and ask for a fresher one. */
const BUFFERS = 2;

interface Camera {
  readonly track: CameraTrack;
  readonly rays: Float32Array | undefined;
  readonly port: MessagePort;
  readonly free: ArrayBuffer[];
  /** Frames the page asked for and was not sent yet. */
  wanted: number;
  /** The network worker waits for word that the next frame may come. */
  owed: boolean;
}

const cameras = new Map<number, Camera>();
const send = (m: FromDecoder, transfer: Transferable[] = []): void => postMessage(m, { transfer });

function setup(track: CameraTrack, port: MessagePort): void {
  let rays: Float32Array<ArrayBuffer> | undefined;
  if (track.layout === "A") {
    rays = rayTable(track.grid);
    send({ type: "rays", camera: track.camera, track: track.track, table: rays });
  }
  cameras.set(track.camera, { track, rays, port, free: [], wanted: 1, owed: false });
}

function decode(decoder: FrameDecoder, m: Extract<ToDecoder, { type: "frame" }>): void {
  const c = cameras.get(m.camera);
  if (!c) return;
  const began = performance.now();
  const { grid, maxPoints } = c.track;
  const f = decoder.decode(m.objects, c.track.layout === "A" ? { maxPoints, width: grid.width, height: grid.height } : { maxPoints });
  if (f.header.camera !== m.camera || f.header.layout !== c.track.layout) {
    throw new Error(`a frame of camera ${f.header.camera}, layout ${f.header.layout} on the track of camera ${m.camera}, layout ${c.track.layout}`);
  }
  let words = c.free.pop();
  if (!words || words.byteLength < f.words.byteLength) words = new ArrayBuffer(Math.max(f.words.byteLength, 1 << 16));
  new Uint32Array(words, 0, f.words.length).set(f.words);
  c.wanted = Math.max(0, c.wanted - 1);
  let bytes = 0;
  for (const o of m.objects) bytes += o.length;
  const decoded = localTime();
  send(
    {
      type: "frame", camera: m.camera, track: c.track.track, sequence: f.header.sequence, captured: Number(f.header.captureTime) / 1000, points: f.points,
      wordsPerPoint: f.wordsPerPoint, words, bytes, decode: performance.now() - began, arrived: m.arrived, decoded,
      subject: subject(f, c.rays, c.track.pose),
    },
    [words],
  );
}

/** Asks for a camera's next frame, once the page has use for it. */
function ask(c: Camera): void {
  if (!c.owed || c.wanted <= 0) return;
  c.owed = false;
  c.port.postMessage({ camera: c.track.camera } satisfies Decoded);
}

function follow(port: MessagePort, ready: Promise<FrameDecoder>): void {
  port.onmessage = async (e: MessageEvent<ToDecoder>) => {
    const m = e.data;
    switch (m.type) {
      case "setup":
        setup(m.camera, port);
        break;
      case "remove":
        cameras.delete(m.camera);
        break;
      case "frame": {
        try {
          decode(await ready, m);
        } catch (error) {
          send({ type: "bad", camera: m.camera, message: error instanceof Error ? error.message : String(error) });
        }
        const c = cameras.get(m.camera);
        if (c) {
          c.owed = true;
          ask(c);
        }
      }
    }
  };
}

addEventListener("message", (e: MessageEvent<PageToDecoder>) => {
  const m = e.data;
  switch (m.type) {
    case "network": {
      const ready = (async () => {
        const [kernel, zstd] = await Promise.all([kernelUrl, zstdUrl].map(async (url) => (await fetch(new URL(url, location.href))).arrayBuffer()));
        return FrameDecoder.create(kernel!, await Zstd.create(zstd!));
      })();
      follow(m.port, ready);
      break;
    }
    case "recycle": {
      const c = cameras.get(m.camera);
      if (c && c.free.length < BUFFERS) c.free.push(m.buffer);
      break;
    }
    case "want": {
      const c = cameras.get(m.camera);
      if (!c) return;
      c.wanted = Math.min(c.wanted + 1, BUFFERS);
      ask(c);
    }
  }
});
