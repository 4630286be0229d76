import type { Frame } from "./frame.ts";

const SAMPLES = 2048;
const xs = new Float32Array(SAMPLES);
const ys = new Float32Array(SAMPLES);
const zs = new Float32Array(SAMPLES);

/**
 * Where the subject is: the mean of the nearer half of a frame's points, in the camera's coordinates,
 * mm. A camera looks at its subject, and behind it is the room. undefined without points.
 */
export function subject(f: Frame, rays: Float32Array | undefined): [number, number, number] | undefined {
  const { points, words, wordsPerPoint } = f;
  const step = Math.max(1, Math.ceil(points / SAMPLES));
  let n = 0;
  for (let k = 0; k < points; k += step) {
    const a = words[wordsPerPoint * k]!;
    const b = words[wordsPerPoint * k + 1]!;
    if (wordsPerPoint === 2) {
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
  const middle = zs.slice(0, n).sort()[n >> 1]!;
  let x = 0, y = 0, z = 0, m = 0;
  for (let k = 0; k < n; k++) {
    if (zs[k]! > middle) continue;
    x += xs[k]!;
    y += ys[k]!;
    z += zs[k]!;
    m++;
  }
  return [x / m, y / m, z / m];
}
