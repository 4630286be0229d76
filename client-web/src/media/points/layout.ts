/**
 * The layouts of a point-cloud frame (docs/spec/point-cloud-frame.md). Only this file and
 * kernel/planes.ts distinguish them; the rest of the viewer sees points in one of two forms.
 */
import type { Header, Share } from "./header.ts";

/** The compiled kernel. */
export interface Kernel {
  grid(
    raw: number,
    length: number,
    points: number,
    w: number,
    h: number,
    step: number,
    dx: number,
    dy: number,
    row: number,
    out: number,
  ): number;
  cloud(raw: number, length: number, points: number, out: number): number;
  records(raw: number, points: number, out: number): void;
  updateMap(
    raw: number,
    length: number,
    points: number,
    key: boolean,
    w: number,
    h: number,
    map: number,
    changed: number,
    valid: number,
  ): number;
  points(
    map: number,
    w: number,
    h: number,
    levels: number,
    depth: number,
    luma: number,
    stride: number,
    cb: number,
    cr: number,
    chromaStep: number,
    chromaStride: number,
    out: number,
  ): void;
}

/**
 * The encoding of positions in a decoded frame. "pixels" are grid positions with a depth, to be
 * multiplied by the pixel's ray; "coordinates" are in millimetres.
 */
export type Form = "pixels" | "coordinates";

/** 32-bit words per point in each form (kernel/planes.ts). */
export const wordsPerPoint: Readonly<Record<Form, number>> = { pixels: 2, coordinates: 3 };

/** Addresses in the kernel's memory: an object's planes, scratch space and the output. */
export interface Addresses {
  readonly raw: number;
  readonly length: number;
  readonly row: number;
  readonly out: number;
}

interface LayoutOf {
  /** Layout and codec in the frame header. */
  readonly code: number;
  readonly codec: number;
  readonly form: Form;
  /** Numbers of descriptions allowed. */
  readonly descriptions: readonly number[];
  /** Minimum and maximum size, in bytes, of the planes for n points on this many pixels. */
  rawBounds(n: number, pixels: number): readonly [number, number];
  /**
   * Decodes an object's planes to words; false if they are inconsistent with its number of points. Absent if a frame
   * needs earlier ones (video.ts).
   */
  decode?(kernel: Kernel, h: Header, s: Share, at: Addresses): boolean;
}

const packed = (n: number): number => (n + 1) >>> 1;

export type Layout = "A" | "B" | "C" | "W";

export const layouts: Readonly<Record<Layout, LayoutOf>> = {
  A: {
    code: 1,
    codec: 1,
    form: "pixels",
    descriptions: [1, 4],
    rawBounds: (n, pixels) => {
      const gaps = Math.floor(pixels / 255);
      return [gaps + 2 * packed(n) + n, pixels + gaps + 1 + 2 * packed(n) + 10 * n];
    },
    decode: (k, h, s, { raw, length, row, out }) =>
      !!k.grid(raw, length, h.points, s.width, s.height, s.step, s.dx, s.dy, row, out),
  },
  B: {
    code: 2,
    codec: 1,
    form: "coordinates",
    descriptions: [1, 4],
    rawBounds: (n) => [4 * packed(n) + n, 4 * packed(n) + 16 * n],
    decode: (k, h, _, { raw, length, out }) => !!k.cloud(raw, length, h.points, out),
  },
  C: {
    code: 3,
    codec: 1,
    form: "coordinates",
    descriptions: [1, 4],
    rawBounds: (n) => [9 * n, 9 * n],
    decode: (k, h, _, { raw, out }) => (k.records(raw, h.points, out), true),
  },
  W: {
    code: 4,
    codec: 2,
    form: "pixels",
    descriptions: [1],
    rawBounds: (_, pixels) => [1, 3 * pixels + 1],
  },
};

export const formOf = (layout: Layout): Form => layouts[layout].form;

/** True if each object needs the earlier ones of its group. */
export const isChained = (layout: Layout): boolean => layouts[layout].decode === undefined;

export function isLayout(v: unknown): v is Layout {
  return typeof v === "string" && Object.hasOwn(layouts, v);
}

export function layoutOf(code: number): Layout | undefined {
  return (Object.keys(layouts) as Layout[]).find((l) => layouts[l].code === code);
}
