import type { Frame } from "./frame.ts";
import { wordsPerPoint } from "./layout.ts";
import type { Transform } from "./track.ts";

const SAMPLES = 2048;
const xs = new Float32Array(SAMPLES);
const ys = new Float32Array(SAMPLES);
const zs = new Float32Array(SAMPLES);
const sorted = new Float32Array(SAMPLES);

export interface Subject {
  /**
   * The mean of the nearer half of a frame's points, in camera coordinates (mm). Cameras point at the
   * subject, and the room lies behind it.
   */
  readonly middle: readonly [number, number, number];
  /** Height (y) of the floor in studio coordinates, mm. Only a few outliers lie below it. */
  readonly floor: number;
  /** The camera's pose for which `floor` was computed. */
  readonly pose: Transform;
}

/** Locates a frame's subject; undefined without points. */
export function subject(f: Frame, rays: Float32Array | undefined, pose: Transform): Subject | undefined {
  const { points, words, form } = f;
  const size = wordsPerPoint[form];
  const step = Math.max(1, Math.ceil(points / SAMPLES));
  let n = 0;
  for (let k = 0; k < points; k += step) {
    const a = words[size * k]!;
    const b = words[size * k + 1]!;
    if (form === "pixels") {
      const z = b & 0xffff;
      const i = ((a >> 12) & 0xfff) * f.header.width + (a & 0xfff);
      const x = rays?.[2 * i] ?? NaN;
      if (Number.isNaN(x)) continue;
      xs[n] = x * z;
      ys[n] = rays![2 * i + 1]! * z;
      zs[n] = z;
    } else {
      xs[n] = (a << 16) >> 16;
      ys[n] = a >> 16;
      zs[n] = (b << 16) >> 16;
    }
    n++;
  }
  if (n === 0) return undefined;
  const order = sorted.subarray(0, n);
  order.set(zs.subarray(0, n));
  const far = order.sort()[n >> 1]!;
  let x = 0, y = 0, z = 0, m = 0;
  for (let k = 0; k < n; k++) {
    if (zs[k]! > far) continue;
    x += xs[k]!;
    y += ys[k]!;
    z += zs[k]!;
    m++;
  }
  const r = pose.r;
  for (let k = 0; k < n; k++) order[k] = r[3]! * xs[k]! + r[4]! * ys[k]! + r[5]! * zs[k]! + pose.t[1]!;
  order.sort();
  // Camera y points down. If it also points down in the studio, the floor is at the low end,
  // otherwise at the high end.
  const floor = r[4]! < 0 ? order[Math.floor(0.03 * n)]! : order[Math.floor(0.97 * n)]!;
  return { middle: [x / m, y / m, z / m], floor, pose };
}
