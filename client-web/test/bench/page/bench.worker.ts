import { FrameDecoder } from "../../../src/media/points/frame.ts";
import kernelUrl from "../../../src/media/points/planes.wasm?url";
import { parseHeader } from "../../../src/media/points/header.ts";
import { Zstd } from "../../../src/media/points/zstd.ts";
import zstdUrl from "../../../src/media/points/zstd.wasm?url";

export interface Result {
  readonly points: number;
  /** Size of the object and of its planes, bytes. */
  readonly bytes: number;
  readonly raw: number;
  /** Median times in ms to decode a frame to words for the GPU, and for zstd alone. */
  readonly decode: number;
  readonly zstd: number;
}

const median = (v: number[]): number => v.sort((a, b) => a - b)[v.length >> 1]!;

onmessage = async (e: MessageEvent<{ bytes: Uint8Array; runs: number }>) => {
  const { bytes, runs } = e.data;
  const load = async (url: string) => (await fetch(new URL(url, location.href))).arrayBuffer();
  const zstd = await Zstd.create(await load(zstdUrl));
  const decoder = await FrameDecoder.create(await load(kernelUrl), zstd);
  const h = parseHeader(bytes);
  // Like the viewer, decode and copy the words to a buffer that can be transferred.
  const out = new Uint32Array(h.points * 3);
  const total: number[] = [];
  const inner: number[] = [];
  for (let i = 0; i < runs; i++) {
    let began = performance.now();
    const f = decoder.decode([bytes], { maxPoints: h.points });
    out.set(f.words);
    total.push(performance.now() - began);
    began = performance.now();
    zstd.decode(bytes.subarray(44), h.rawLength);
    inner.push(performance.now() - began);
  }
  const result: Result = {
    points: h.points,
    bytes: bytes.length,
    raw: h.rawLength,
    decode: median(total),
    zstd: median(inner),
  };
  postMessage(result);
};
