/** Decodes frames off the page's thread. Buffers go round: the page returns what it has uploaded. */
import type { Decoded, FromDecoder, PageToDecoder, ToDecoder } from "../live/protocol.ts";
import { localTime } from "../live/clock.ts";
import type { CameraTrack } from "../live/catalog.ts";
import { FrameDecoder } from "./frame.ts";
import { rayTable } from "./rays.ts";
import { subject } from "./subject.ts";
import { Zstd } from "./zstd.ts";

/** Frames of a camera that may be out at the page. A page that stalls gets no more than these, and then live ones. */
const BUFFERS = 3;

interface Camera {
  readonly track: CameraTrack;
  readonly rays: Float32Array | undefined;
  readonly free: ArrayBuffer[];
  out: number;
}

const cameras = new Map<number, Camera>();
const send = (m: FromDecoder, transfer: Transferable[] = []): void => postMessage(m, { transfer });

function setup(track: CameraTrack): void {
  let rays: Float32Array<ArrayBuffer> | undefined;
  if (track.layout === "A") {
    rays = rayTable(track.grid);
    send({ type: "rays", camera: track.camera, table: rays });
  }
  cameras.set(track.camera, { track, rays, free: [], out: 0 });
}

function decode(decoder: FrameDecoder, m: Extract<ToDecoder, { type: "frame" }>): void {
  const c = cameras.get(m.camera);
  if (!c) return;
  if (c.out >= BUFFERS) {
    send({ type: "dropped", camera: m.camera });
    return;
  }
  const began = performance.now();
  const { grid, maxPoints } = c.track;
  const f = decoder.decode(m.objects, c.track.layout === "A" ? { maxPoints, width: grid.width, height: grid.height } : { maxPoints });
  if (f.header.camera !== m.camera || f.header.layout !== c.track.layout) {
    throw new Error(`a frame of camera ${f.header.camera}, layout ${f.header.layout} on the track of camera ${m.camera}, layout ${c.track.layout}`);
  }
  let words = c.free.pop();
  if (!words || words.byteLength < f.words.byteLength) words = new ArrayBuffer(Math.max(f.words.byteLength, 1 << 16));
  new Uint32Array(words, 0, f.words.length).set(f.words);
  c.out++;
  let bytes = 0;
  for (const o of m.objects) bytes += o.length;
  const decoded = localTime();
  send(
    {
      type: "frame", camera: m.camera, sequence: f.header.sequence, captured: Number(f.header.captureTime) / 1000, points: f.points,
      wordsPerPoint: f.wordsPerPoint, words, bytes, decode: performance.now() - began, arrived: m.arrived, decoded,
      subject: subject(f, c.rays),
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
      case "frame":
        try {
          decode(await ready, m);
        } catch (error) {
          send({ type: "bad", camera: m.camera, message: error instanceof Error ? error.message : String(error) });
        }
        port.postMessage({ camera: m.camera } satisfies Decoded);
    }
  };
}

addEventListener("message", (e: MessageEvent<PageToDecoder>) => {
  const m = e.data;
  switch (m.type) {
    case "network": {
      const ready = (async () => {
        const wasm = await (await fetch(m.wasm)).arrayBuffer();
        return FrameDecoder.create(wasm, await Zstd.create());
      })();
      follow(m.port, ready);
      break;
    }
    case "recycle": {
      const c = cameras.get(m.camera);
      if (!c) return;
      c.out = Math.max(0, c.out - 1);
      if (c.free.length < BUFFERS) c.free.push(m.buffer);
    }
  }
});
