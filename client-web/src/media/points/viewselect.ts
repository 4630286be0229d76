/**
 * Chooses the quality of each depth camera by its share of the viewer's picture, like internal/viewselect. Lengths are
 * in millimetres, in studio space unless noted.
 */
import { ows } from "../choice/ows.ts";
import type { Frame } from "./frame.ts";
import { wordsPerPoint } from "./layout.ts";
import type { CameraTrack, Transform } from "./track.ts";

type Vector = readonly [number, number, number];

/**
 * Numbers per sample: point (3), normal (3), area in mm², cosine between the normal and the camera's ray, camera's
 * position (3).
 */
const FIELDS = 11;
const EDGE_STEP = 0.08;
const LEAST_FACING = 0.1;

/** Screen cells. */
const COLUMNS = 48;
const ROWS = 36;
const CELLS = COLUMNS * ROWS;
const NEAREST = 50;
const THICKNESS = 0.03;
const LARGEST_PATCH = 8;
/** Weight of a camera that sees a surface from the other side. */
const LEAST_WEIGHT = 1e-6;

const FLOOR = 0.02;
const MISSING = 1e6;
const KEEP = 0.05;

const sub = (a: Vector, b: Vector): Vector => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
const scale = (a: Vector, f: number): Vector => [a[0] * f, a[1] * f, a[2] * f];
const dot = (a: Vector, b: Vector): number => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const length = (a: Vector): number => Math.sqrt(dot(a, a));
const cross = (a: Vector, b: Vector): Vector => [
  a[1] * b[2] - a[2] * b[1],
  a[2] * b[0] - a[0] * b[2],
  a[0] * b[1] - a[1] * b[0],
];
const rotate = ({ r }: Transform, p: Vector): Vector => [
  r[0]! * p[0] + r[1]! * p[1] + r[2]! * p[2],
  r[3]! * p[0] + r[4]! * p[1] + r[5]! * p[2],
  r[6]! * p[0] + r[7]! * p[1] + r[8]! * p[2],
];
const apply = (m: Transform, p: Vector): Vector => {
  const q = rotate(m, p);
  return [q[0] + m.t[0]!, q[1] + m.t[1]!, q[2] + m.t[2]!];
};

/**
 * The surface patches of a camera's frame, one per `stride` pixels in x and y. `rays` is the ray table, `depth` returns
 * a pixel's depth, or 0 if it has no point, and `pose` maps the grid camera's space to studio space.
 */
export function surface(
  rays: Float32Array,
  width: number,
  depth: (pixel: number) => number,
  pose: Transform,
  stride: number,
): Float32Array<ArrayBuffer> {
  const height = rays.length / 2 / width;
  const samples: number[] = [];
  const point = (i: number): Vector | undefined => {
    const z = depth(i);
    const x = rays[2 * i]!;
    return z === 0 || Number.isNaN(x) ? undefined : [x * z, rays[2 * i + 1]! * z, z];
  };
  const near = (p: Vector, q: Vector) => Math.abs(p[2] - q[2]) <= EDGE_STEP * Math.min(p[2], q[2]);
  for (let y = 0; y + stride < height; y += stride) {
    for (let x = 0; x + stride < width; x += stride) {
      const i = y * width + x;
      const p = point(i);
      if (!p) continue;
      const toCamera = scale(p, -1 / length(p));
      let normal = toCamera;
      let facing = 1;
      const right = point(i + stride);
      const below = point(i + stride * width);
      if (right && below && near(p, right) && near(p, below)) {
        const n = cross(sub(below, p), sub(right, p));
        const l = length(n);
        if (l > 0) {
          normal = scale(n, 1 / l);
          facing = dot(normal, toCamera);
          if (facing < 0) {
            normal = scale(normal, -1);
            facing = -facing;
          }
        }
      }
      facing = Math.max(facing, LEAST_FACING);
      const dx = rays[2 * (i + stride)]! - rays[2 * i]!;
      const dy = rays[2 * (i + stride * width) + 1]! - rays[2 * i + 1]!;
      const area = Number.isNaN(dx) || Number.isNaN(dy) ? 0 : Math.abs(dx * dy) * p[2] * p[2];
      samples.push(...apply(pose, p), ...rotate(pose, normal), area / facing, facing, ...pose.t);
    }
  }
  return Float32Array.from(samples);
}

/** Patches of a whole frame. */
const PATCHES = 1600;

/** The surface patches of a frame in pixel form. */
export function patches(f: Frame, rays: Float32Array, pose: Transform): Float32Array<ArrayBuffer> {
  const { width, height } = f.header;
  const stride = Math.max(1, Math.round(Math.sqrt((width * height) / PATCHES)));
  const depths = new Map<number, number>(); // of every stride-th pixel in x and y
  const size = wordsPerPoint[f.form];
  for (let k = 0; k < f.words.length; k += size) {
    const x = f.words[k]! & 0xfff;
    const y = (f.words[k]! >> 12) & 0xfff;
    if (x % stride === 0 && y % stride === 0) depths.set(y * width + x, f.words[k + 1]! & 0xffff);
  }
  return surface(rays, width, (i) => depths.get(i) ?? 0, pose, stride);
}

/** An eye: x right, y down, z forward. */
export interface View {
  /** From studio space to eye space. */
  readonly eye: Transform;
  /** Tangents of half the field of view. */
  readonly tanX: number;
  readonly tanY: number;
}

interface Patch {
  readonly camera: number;
  readonly x0: number;
  readonly x1: number;
  readonly y0: number;
  readonly y1: number;
  readonly depth: number;
  readonly weight: number;
}

/**
 * Each camera's share of the picture, averaged over views. Surfaces that several cameras see are divided as they are
 * drawn (docs/spec/surface.md): in proportion to the area of their samples on the screen, facing² and similar⁸. Hidden
 * surfaces do not count.
 */
export function worth(cameras: readonly Float32Array[], views: readonly View[]): number[] {
  const sum = cameras.map(() => 0);
  for (const v of views) addWorth(sum, cameras, v);
  return sum.map((w) => w / Math.max(1, views.length));
}

function addWorth(sum: number[], cameras: readonly Float32Array[], view: View): void {
  const nearest = new Float64Array(CELLS).fill(Infinity);
  const patches: Patch[] = [];
  for (const [camera, samples] of cameras.entries()) {
    for (let i = 0; i < samples.length; i += FIELDS) {
      const p = project(view, samples, i, camera);
      if (!p) continue;
      patches.push(p);
      for (const cell of cells(p)) nearest[cell] = Math.min(nearest[cell]!, p.depth);
    }
  }
  const weight = cameras.map(() => new Float64Array(CELLS));
  for (const p of patches) {
    for (const cell of cells(p)) {
      if (p.depth <= nearest[cell]! * (1 + THICKNESS)) weight[p.camera]![cell]! += p.weight;
    }
  }
  for (let cell = 0; cell < CELLS; cell++) {
    let total = 0;
    for (const w of weight) total += w[cell]!;
    if (total === 0) continue;
    for (const [c, w] of weight.entries()) sum[c]! += w[cell]! / total / CELLS;
  }
}

/** The cells that a sample covers; undefined if it lies outside the picture or faces away. */
function project({ eye, tanX, tanY }: View, samples: Float32Array, i: number, camera: number): Patch | undefined {
  const at = (k: number): Vector => [samples[i + k]!, samples[i + k + 1]!, samples[i + k + 2]!];
  const e = apply(eye, at(0));
  if (e[2] < NEAREST) return undefined;
  const facing = -dot(rotate(eye, at(3)), e) / length(e);
  if (facing <= 0) return undefined;
  const perX = COLUMNS / (2 * tanX * e[2]);
  const perY = ROWS / (2 * tanY * e[2]);
  const side = Math.sqrt(samples[i + 6]! * facing);
  const [x0, x1] = span(COLUMNS / 2 + e[0] * perX, side * perX, COLUMNS);
  const [y0, y1] = span(ROWS / 2 + e[1] * perY, side * perY, ROWS);
  if (x0 >= x1 || y0 >= y1) return undefined;
  const sensor = sub(apply(eye, at(8)), e);
  const similar = Math.max(0, -dot(sensor, e) / Math.max(length(sensor) * length(e), 1e-9));
  const share = samples[i + 7]! ** 2 * similar ** 8 + LEAST_WEIGHT;
  const weight = ((side * perX * side * perY) / ((x1 - x0) * (y1 - y0))) * share;
  return { camera, x0, x1, y0, y1, depth: e[2], weight };
}

/** The cells from x − size/2 to x + size/2, at least the cell that contains x. */
function span(x: number, size: number, count: number): [number, number] {
  const half = Math.min(size, LARGEST_PATCH) / 2;
  let a = Math.floor(x - half + 0.5);
  let b = Math.ceil(x + half - 0.5);
  if (b <= a) {
    a = Math.floor(x);
    b = a + 1;
  }
  return [Math.max(a, 0), Math.min(b, count)];
}

function* cells(p: Patch): Generator<number> {
  for (let y = p.y0; y < p.y1; y++) for (let x = p.x0; x < p.x1; x++) yield y * COLUMNS + x;
}

/**
 * The range of views that an eye may have after `seconds`, moving at `velocity` (mm/s): straight ahead, and turned
 * left and right at `turn` rad/s.
 */
export function ahead(v: View, velocity: Vector, turn: number, seconds: number): View[] {
  const t = sub(v.eye.t as unknown as Vector, rotate(v.eye, scale(velocity, seconds)));
  const moved: Transform = { r: v.eye.r, t: [...t] };
  const turned = (angle: number): View => {
    const sin = Math.sin(angle);
    const cos = Math.cos(angle);
    const yaw: Transform = { r: [cos, 0, sin, 0, 1, 0, -sin, 0, cos], t: [0, 0, 0] };
    const columns = [0, 1, 2].map((c) => rotate(yaw, [moved.r[c]!, moved.r[3 + c]!, moved.r[6 + c]!]));
    return { ...v, eye: { r: [0, 1, 2].flatMap((row) => columns.map((c) => c[row]!)), t: [...rotate(yaw, t)] } };
  };
  return [{ ...v, eye: moved }, turned(turn * seconds), turned(-turn * seconds)];
}

/** One quality of a camera: bit/s, and the mean squared error of its picture. */
export interface Option {
  readonly rate: number;
  readonly error: number;
}

/**
 * Chooses each camera's quality to minimise the sum of worth × error at a total of at most `budget` bit/s. Returns the
 * index of each quality, or −1 if not even the cheapest fits. All cameras have the same number of options. `current`,
 * the present choice, is kept if it is within the budget and no other choice avoids 5 % of its error.
 */
export function choose(
  worths: readonly number[],
  options: readonly (readonly Option[])[],
  budget: number,
  current?: readonly number[],
): number[] {
  const problem = {
    qualities: options[0]?.length ?? 0,
    seen: worths.map((w) => Math.max(w, FLOOR)),
    miss: worths.map(() => MISSING),
    bytes: options.flatMap((list) => list.map((o) => o.rate)),
    distortion: options.flatMap((list) => list.map((o) => o.error)),
    budget,
    capacity: [],
  };
  const plan = ows(problem);
  if (current?.length !== worths.length) return plan.quality;
  let rate = 0;
  let loss = 0;
  for (const [i, q] of current.entries()) {
    if (q >= problem.qualities) return plan.quality;
    rate += q < 0 ? 0 : problem.bytes[i * problem.qualities + q]!;
    loss += problem.seen[i]! * (q < 0 ? MISSING : problem.distortion[i * problem.qualities + q]!);
  }
  return rate <= budget && plan.loss > loss * (1 - KEEP) ? [...current] : plan.quality;
}

/**
 * Chooses each camera's quality to minimise the error in the picture within the total bit rate of all cameras at
 * `level`. Returns the index of each quality. Unknown errors are assumed to grow fourfold from one quality to the
 * next.
 */
export function chooseAtLevel(
  worths: readonly number[],
  lists: readonly (readonly Pick<CameraTrack, "bitrate" | "error">[])[],
  level: number,
  current: readonly number[] | undefined,
): number[] {
  const count = Math.max(...lists.map((list) => list.length));
  const options = lists.map((list) =>
    Array.from({ length: count }, (_, q) => {
      const t = list[q];
      if (!t) return { rate: 0, error: 0 };
      return { rate: t.bitrate, error: t.error ?? 4 ** q - 1 };
    }),
  );
  const budget = lists.reduce((sum, list) => sum + list[Math.min(level, list.length - 1)]!.bitrate, 0);
  const choice = choose(worths, options, budget, current);
  return choice.map((q, i) => (q < 0 ? lists[i]!.length - 1 : q));
}
