/**
 * Directions, tile grid and viewport, like internal/tile360; both pass the same test vectors.
 * Directions are unit vectors [x right, y up, z forward]. Yaw is positive to the right, pitch
 * upwards. Angles are in radians.
 */

export type Vec = readonly [x: number, y: number, z: number];

export const FORWARD: Vec = [0, 0, 1];

export function direction(yaw: number, pitch: number): Vec {
  const c = Math.cos(pitch);
  return [Math.sin(yaw) * c, Math.sin(pitch), Math.cos(yaw) * c];
}

/** Yaw in (−π, π] and pitch in [−π/2, π/2]; yaw is 0 at the poles. */
export function angles([x, y, z]: Vec): [yaw: number, pitch: number] {
  if (x === 0 && z === 0) return [0, y < 0 || Object.is(y, -0) ? -Math.PI / 2 : Math.PI / 2];
  return [Math.atan2(x, z), Math.asin(Math.max(-1, Math.min(1, y)))];
}

export const dot = (v: Vec, w: Vec): number => v[0] * w[0] + v[1] * w[1] + v[2] * w[2];

/** Angle between two directions. It is accurate even for small angles. */
export function angle(v: Vec, w: Vec): number {
  const x = v[1] * w[2] - v[2] * w[1];
  const y = v[2] * w[0] - v[0] * w[2];
  const z = v[0] * w[1] - v[1] * w[0];
  return Math.atan2(Math.sqrt(x * x + y * y + z * z), dot(v, w));
}

/** Normalises v; returns forward for a null vector. */
export function unit(v: Vec): Vec {
  const n = Math.sqrt(dot(v, v));
  return n > 1e-12 && n < Infinity ? [v[0] / n, v[1] / n, v[2] / n] : FORWARD;
}

/** Right and up vectors of a viewer who looks along v with a level head. */
function frame(v: Vec): [right: Vec, up: Vec] {
  const [yaw] = angles(v);
  const r: Vec = [Math.cos(yaw), 0, -Math.sin(yaw)];
  return [r, [v[1] * r[2] - v[2] * r[1], v[2] * r[0] - v[0] * r[2], v[0] * r[1] - v[1] * r[0]]];
}

/** Position of w relative to v, in radians to the right and up along the great circle. */
export function offset(v: Vec, w: Vec): [right: number, up: number] {
  const [r, u] = frame(v);
  const x = dot(w, r);
  const y = dot(w, u);
  const n = Math.sqrt(x * x + y * y);
  if (n < 1e-12) return [0, 0];
  const a = angle(v, w) / n;
  return [a * x, a * y];
}

/** The inverse of offset. */
export function moved(v: Vec, right: number, up: number): Vec {
  const a = Math.sqrt(right * right + up * up);
  if (a < 1e-12) return v;
  const [r, u] = frame(v);
  const s = Math.sin(a);
  const c = Math.cos(a);
  const x = (s * right) / a;
  const y = (s * up) / a;
  return unit([c * v[0] + x * r[0] + y * u[0], c * v[1] + x * r[1] + y * u[1], c * v[2] + x * r[2] + y * u[2]]);
}

/**
 * Position of a direction in one eye's picture, as fractions of the width from the left, in [0, 1),
 * and of the height from the top.
 */
export function equirect(v: Vec): [x: number, y: number] {
  const [yaw, pitch] = angles(v);
  const x = yaw / (2 * Math.PI) + 0.5;
  return [x >= 1 ? x - 1 : x, 0.5 - pitch / Math.PI];
}

export interface Rect {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/**
 * Divides one eye's picture into tiles, numbered row by row from the top left. Edges are even
 * pixels.
 */
export class Grid {
  constructor(
    readonly columns: number,
    readonly rows: number,
    readonly width: number,
    readonly height: number,
  ) {}

  get tiles(): number {
    return this.columns * this.rows;
  }

  rect(tile: number): Rect {
    const c = tile % this.columns;
    const r = Math.floor(tile / this.columns);
    const x = edge(c, this.columns, this.width);
    const y = edge(r, this.rows, this.height);
    return { x, y, width: edge(c + 1, this.columns, this.width) - x, height: edge(r + 1, this.rows, this.height) - y };
  }

  /** The tile at a point of one eye's picture, given as fractions of its width and height. */
  at(x: number, y: number): number {
    return place(y, this.rows, this.height) * this.columns + place(x, this.columns, this.width);
  }

  /** Solid angle of a tile, steradians. */
  solidAngle(tile: number): number {
    const r = this.rect(tile);
    const top = (Math.PI * r.y) / this.height;
    const bottom = (Math.PI * (r.y + r.height)) / this.height;
    return ((2 * Math.PI * r.width) / this.width) * (Math.cos(top) - Math.cos(bottom));
  }
}

/** Start of tile i of n along `size` pixels, which is i·size/n rounded to the nearest even number. */
function edge(i: number, n: number, size: number): number {
  return 2 * Math.floor((i * size + n) / (2 * n));
}

function place(at: number, n: number, size: number): number {
  const i = Math.max(0, Math.min(n - 1, Math.floor(at * n)));
  const px = at * size;
  if (i > 0 && px < edge(i, n, size)) return i - 1;
  if (i < n - 1 && px >= edge(i + 1, n, size)) return i + 1;
  return i;
}

/** A possible gaze direction and its probability. */
export interface PossibleGaze {
  readonly gaze: Vec;
  readonly p: number;
}

/** Determines the tiles that are visible in a viewport from samples×samples points in it. */
export class View {
  readonly #rays: { readonly x: number; readonly y: number; readonly weight: number }[] = [];
  readonly #one: Float64Array;

  /** `width` and `height` are the angles between opposite edges of the viewport, less than π. */
  constructor(
    readonly grid: Grid,
    readonly width: number,
    readonly height: number,
    samples: number,
  ) {
    this.#one = new Float64Array(grid.tiles);
    const tx = Math.tan(width / 2);
    const ty = Math.tan(height / 2);
    let sum = 0;
    for (let r = 0; r < samples; r++) {
      const y = ty * (1 - (2 * r + 1) / samples);
      for (let c = 0; c < samples; c++) {
        const x = tx * ((2 * c + 1) / samples - 1);
        const d = 1 + x * x + y * y;
        const weight = 1 / (d * Math.sqrt(d));
        this.#rays.push({ x, y, weight });
        sum += weight;
      }
    }
    this.#rays.forEach((ray, i) => (this.#rays[i] = { ...ray, weight: ray.weight / sum }));
  }

  /**
   * Computes the view of a viewer whose gaze has a given distribution, with probabilities that sum
   * to 1. Sets `share` to the expected share of the viewport per tile, and `seen` to the
   * probability that the tile is in view.
   */
  expect(gazes: readonly PossibleGaze[], share: Float64Array, seen?: Float64Array): void {
    share.fill(0);
    seen?.fill(0);
    for (const l of gazes) {
      this.#one.fill(0);
      const [r, u] = frame(l.gaze);
      const [gx, gy, gz] = l.gaze;
      for (const { x, y, weight } of this.#rays) {
        const [px, py] = equirect(unit([gx + x * r[0] + y * u[0], gy + x * r[1] + y * u[1], gz + x * r[2] + y * u[2]]));
        const tile = this.grid.at(px, py);
        this.#one[tile]! += weight;
      }
      for (let t = 0; t < share.length; t++) {
        const s = this.#one[t]!;
        share[t]! += l.p * s;
        if (seen && s > 0) seen[t]! += l.p;
      }
    }
  }
}
