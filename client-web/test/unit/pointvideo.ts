/** The vectors of layout W, and frames in their form. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Frame } from "../../src/media/points/frame.ts";

const testdata = new URL("../../../internal/pointvideo/testdata/", import.meta.url);
export const read = (name: string): Uint8Array<ArrayBuffer> => new Uint8Array(readFileSync(new URL(name, testdata)));

export interface FrameVector {
  readonly object: string;
  readonly index: number;
  readonly sequence: number;
  readonly points: number;
  readonly depth: string;
  readonly color: string;
}

export interface ValidVector {
  readonly name: string;
  readonly width: number;
  readonly height: number;
  readonly frames: readonly FrameVector[];
}

export interface InvalidVector {
  readonly name: string;
  readonly objects: readonly string[];
  readonly error: string;
}

export const vectors = JSON.parse(new TextDecoder().decode(read("manifest.json"))) as {
  readonly valid: readonly ValidVector[];
  readonly invalid: readonly InvalidVector[];
};

const digest = (b: Uint8Array): string => createHash("sha256").update(b).digest("hex");

/** Digests of a frame's depth and color planes. */
export function digests({ width, height, words }: { width: number; height: number; words: Uint32Array }) {
  const depth = new Uint8Array(2 * width * height);
  const color = new Uint8Array(3 * width * height);
  for (let k = 0; k < words.length; k += 2) {
    const [a, b] = [words[k]!, words[k + 1]!];
    const i = ((a >>> 12) & 0xfff) * width + (a & 0xfff);
    depth.set([b, b >>> 8], 2 * i);
    color.set([a >>> 24, b >>> 16, b >>> 24], 3 * i);
  }
  return { depth: digest(depth), color: digest(color) };
}

export const digestsOf = (f: Frame) => digests({ width: f.header.width, height: f.header.height, words: f.words });
