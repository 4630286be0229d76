/** The header of a point-cloud frame object (docs/spec/point-cloud-frame.md). */

import { formOf, isChained, layoutOf, layouts, type Layout } from "./layout.ts";

/**
 * An object that violates the format; `part` is the specification's name for the offending field.
 */
export class FrameError extends Error {
  constructor(
    readonly part: string,
    detail: string,
  ) {
    super(`point-cloud frame: ${part}: ${detail}`);
    this.name = "FrameError";
  }
}

export interface Header {
  readonly layout: Layout;
  /** Frame number, equal in all descriptions of a frame. */
  readonly sequence: number;
  /** The sensor's own clock, µs. */
  readonly deviceTime: bigint;
  /** Middle of the exposure on the relay's clock, UNIX µs. */
  readonly captureTime: bigint;
  readonly camera: number;
  readonly description: number;
  readonly descriptions: number;
  /** Size of the complete grid in pixels, or 0 if points are not grid pixels. */
  readonly width: number;
  readonly height: number;
  readonly points: number;
  /** Uncompressed size of the planes, bytes. */
  readonly rawLength: number;
}

export const HEADER_LENGTH = 44;
/** Offset of the description index. */
export const DESCRIPTION = 30;
const MAX_SIDE = 4096;

/** The part of the grid that one description covers: pixel (i, j) is pixel (step·i + dx, step·j + dy) of the frame. */
export interface Share {
  readonly step: number;
  readonly dx: number;
  readonly dy: number;
  readonly width: number;
  readonly height: number;
}

export function share(h: Header): Share {
  if (h.descriptions === 1) return { step: 1, dx: 0, dy: 0, width: h.width, height: h.height };
  const dx = h.description & 1;
  const dy = h.description >> 1;
  return { step: 2, dx, dy, width: (h.width - dx + 1) >> 1, height: (h.height - dy + 1) >> 1 };
}

/** Reads a header. `chained` selects the accepted layouts: the chained ones, or the others. */
export function parseHeader(b: Uint8Array, chained = false): Header {
  const bad = (part: string, detail: string): never => {
    throw new FrameError(part, detail);
  };
  if (b.length < HEADER_LENGTH) bad("length", `${b.length} bytes, the header has ${HEADER_LENGTH}`);
  const v = new DataView(b.buffer, b.byteOffset, b.length);
  if (v.getUint32(0) !== 0x48435046) bad("magic", "not HCPF");
  if (v.getUint8(4) !== 1) bad("version", `${v.getUint8(4)}, only 1 is known`);
  const layout = layoutOf(v.getUint8(5)) ?? bad("layout", `${v.getUint8(5)} is none`);
  if (isChained(layout) !== chained) bad("layout", `${layout} is not expected`);
  const { codec, descriptions, rawBounds } = layouts[layout];
  if (v.getUint8(6) !== codec) bad("codec", `${v.getUint8(6)}, layout ${layout} has ${codec}`);
  if (v.getUint8(7) !== 0) bad("flags", `${v.getUint8(7)} is reserved`);
  const h: Header = {
    layout,
    sequence: v.getUint32(8, true),
    deviceTime: v.getBigUint64(12, true),
    captureTime: v.getBigUint64(20, true),
    camera: v.getUint16(28, true),
    description: v.getUint8(30),
    descriptions: v.getUint8(31),
    width: v.getUint16(32, true),
    height: v.getUint16(34, true),
    points: v.getUint32(36, true),
    rawLength: v.getUint32(40, true),
  };
  if (!descriptions.includes(h.descriptions))
    bad("descriptions", `${h.descriptions} is not ${descriptions.join(" or ")}`);
  if (h.description >= h.descriptions) bad("description", `${h.description} of ${h.descriptions}`);
  const onGrid = formOf(layout) === "pixels";
  const [min, max] = onGrid ? [1, MAX_SIDE] : [0, 0];
  if (h.width < min || h.width > max) bad("width", `${h.width} in layout ${layout}`);
  if (h.height < min || h.height > max) bad("height", `${h.height} in layout ${layout}`);
  const s = share(h);
  const pixels = onGrid ? s.width * s.height : MAX_SIDE * MAX_SIDE;
  if (h.points > pixels) bad("points", `${h.points} of at max ${pixels}`);
  const [low, high] = rawBounds(h.points, pixels);
  if (h.rawLength < low || h.rawLength > high) bad("raw length", `${h.rawLength} is outside ${low}…${high}`);
  return h;
}

/** Capture time of an object, UNIX ms on the relay's clock; 0 if the object is too short. */
export function captureTime(b: Uint8Array): number {
  if (b.length < HEADER_LENGTH) return 0;
  return Number(new DataView(b.buffer, b.byteOffset).getBigUint64(20, true)) / 1000;
}

/** True if h and o belong to descriptions of the same frame. */
export function sameFrame(h: Header, o: Header): boolean {
  return (
    h.layout === o.layout &&
    h.sequence === o.sequence &&
    h.deviceTime === o.deviceTime &&
    h.captureTime === o.captureTime &&
    h.camera === o.camera &&
    h.descriptions === o.descriptions &&
    h.width === o.width &&
    h.height === o.height
  );
}
