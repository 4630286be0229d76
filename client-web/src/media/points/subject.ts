import type { Frame } from "./frame.ts";
import { wordsPerPoint } from "./layout.ts";
import type { Transform } from "./track.ts";

const SAMPLES = 2048;
const xs = new Float32Array(SAMPLES);
const ys = new Float32Array(SAMPLES);
const zs = new Float32Array(SAMPLES);
const sorted = new Float32Array(SAMPLES);
/** Share of outliers at each end. */
const STRAYS = 0.01;

export interface Subject {
  /**
   * The mean of the nearer half of a frame's points, in camera coordinates (mm). Cameras point at the
   * subject, and the room lies behind it.
   */
  readonly middle: readonly [number, number, number];
  /** Height (y) of the floor in studio coordinates, mm. Only a few outliers lie below it. */
  readonly floor: number;
  /** Distance between neighboring points, mm; 0 for a camera's grid, whose lens gives it. */
  readonly spacing: number;
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
  const spacing = form === "pixels" ? 0 : gap(f, step, n);
  return { middle: [x / m, y / m, z / m], floor, spacing, pose };
}

/**
 * The median distance between successive points, which are neighbors in sensor order. It is at most the spacing if the
 * points cover a surface of the cloud's size. The first n entries of xs, ys and zs are samples.
 */
function gap({ points, words }: Frame, step: number, n: number): number {
  const gaps = sorted.subarray(0, n);
  const at = (i: number) => [(words[i]! << 16) >> 16, words[i]! >> 16, (words[i + 1]! << 16) >> 16] as const;
  for (let i = 0; i < n; i++) {
    const k = Math.min(i * step, points - 2);
    if (k < 0) return 0;
    const [a, b] = [at(3 * k), at(3 * k + 3)];
    gaps[i] = Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
  }
  const median = gaps.sort()[n >> 1]!;
  const ends = Math.floor(STRAYS * n);
  const extent = [xs, ys, zs].map((axis) => {
    gaps.set(axis.subarray(0, n));
    gaps.sort();
    return gaps[n - 1 - ends]! - gaps[ends]!;
  });
  return Math.max(1, Math.min(median, (1.5 * Math.max(...extent)) / Math.sqrt(points)));
}
