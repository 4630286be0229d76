/**
 * Computes the ray of every pixel of a lens. Results are bit-identical to Intrinsics.Unproject in
 * internal/camera, with the same IEEE 754 binary64 operations; JavaScript never fuses multiply and add.
 */

/** A lens at one image size: Brown–Conrady with six radial and two tangential coefficients. */
export interface Intrinsics {
  readonly width: number;
  readonly height: number;
  readonly fx: number;
  readonly fy: number;
  readonly cx: number;
  readonly cy: number;
  readonly k: readonly number[];
  readonly p: readonly number[];
  /** Maximum normalised radius at which the model is valid; 0 or absent = unlimited. */
  readonly maxRadius?: number;
}

const PASSES = 20;
const STOP = 1e-22;
const ACCEPTED = 1e-6;

/** X and Y of every pixel's ray at z = 1, interleaved, row-major. Pixels without a ray have NaN and 0. */
export function rayTable(lens: Intrinsics): Float32Array<ArrayBuffer> {
  const { width, height, fx, fy, cx, cy } = lens;
  const [k1, k2, k3, k4, k5, k6] = lens.k as [number, number, number, number, number, number];
  const [p1, p2] = lens.p as [number, number];
  const limit = lens.maxRadius ? lens.maxRadius * lens.maxRadius : Infinity;
  const table = new Float32Array(2 * width * height);
  for (let v = 0, at = 0; v < height; v++) {
    for (let u = 0; u < width; u++, at += 2) {
      const xd = (u - cx) / fx;
      const yd = (v - cy) / fy;
      const s0 = xd * xd + yd * yd;
      const ss0 = s0 * s0;
      const sss0 = ss0 * s0;
      const a0 = 1 + k1 * s0 + k2 * ss0 + k3 * sss0;
      const b0 = 1 + k4 * s0 + k5 * ss0 + k6 * sss0;
      const q = (a0 !== 0 ? 1 / a0 : 1) * b0;
      const x0 = xd * q;
      const y0 = yd * q;
      const xx0 = x0 * x0;
      const yy0 = y0 * y0;
      const xy0 = 2 * x0 * y0;
      let x = x0 - ((yy0 + 3 * xx0) * p2 + xy0 * p1);
      let y = y0 - ((xx0 + 3 * yy0) * p1 + xy0 * p2);
      let best = Infinity;
      let bestX = 0;
      let bestY = 0;
      for (let pass = 0; pass < PASSES; pass++) {
        const xx = x * x;
        const yy = y * y;
        const xy = x * y;
        const s = xx + yy;
        if (s > limit) {
          best = Infinity;
          break;
        }
        const ss = s * s;
        const sss = ss * s;
        const a = 1 + k1 * s + k2 * ss + k3 * sss;
        const b = 1 + k4 * s + k5 * ss + k6 * sss;
        const bi = b !== 0 ? 1 / b : 1;
        const d = a * bi;
        const eu = u - ((x * d + (s + 2 * xx) * p2 + 2 * xy * p1) * fx + cx);
        const ev = v - ((y * d + (s + 2 * yy) * p1 + 2 * xy * p2) * fy + cy);
        const e = eu * eu + ev * ev;
        if (pass > 0 && !(e < best)) {
          x = bestX;
          y = bestY;
          break;
        }
        best = e;
        bestX = x;
        bestY = y;
        if (e < STOP || pass === PASSES - 1) break;
        const da = k1 + 2 * k2 * s + 3 * k3 * ss;
        const db = k4 + 2 * k5 * s + 3 * k6 * ss;
        const dd = 2 * ((da * b - a * db) * (bi * bi));
        const c = xy * dd + 2 * x * p1 + 2 * y * p2;
        const ux = fx * (d + xx * dd + 6 * x * p2 + 2 * y * p1);
        const uy = fx * c;
        const vx = fy * c;
        const vy = fy * (d + yy * dd + 6 * y * p1 + 2 * x * p2);
        const inv = 1 / (ux * vy - uy * vx);
        x += inv * vy * eu + -inv * uy * ev;
        y += -inv * vx * eu + inv * ux * ev;
      }
      if (best <= ACCEPTED) {
        table[at] = x;
        table[at + 1] = y;
      } else {
        table[at] = NaN;
      }
    }
  }
  return table;
}
