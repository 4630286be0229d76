import type { Arrived } from "../../media/points/messages.ts";

/**
 * The viewer's measurements, as defined by internal/qoe and the duplication paper: frame delay is
 * the time from capture to display on the session's clock; FPS counts the distinct frames shown in
 * the last second. Allocates nothing per frame. Times are local, in milliseconds.
 */

const RING = 4096;
const RATE_WINDOW = 1000;
const DELAY_WINDOW = 5000;

class Ring {
  readonly at = new Float64Array(RING);
  readonly value = new Float64Array(RING);
  readonly key = new Uint16Array(RING);
  #next = 0;

  constructor() {
    this.at.fill(-Infinity);
  }

  push(at: number, value: number, key: number): void {
    const i = this.#next++ % RING;
    this.at[i] = at;
    this.value[i] = value;
    this.key[i] = key;
  }

  /** Counts entries younger than `window`, optionally of one key. */
  count(now: number, window: number, key?: number): number {
    let n = 0;
    for (let i = 0; i < RING; i++) if (now - this.at[i]! < window && (key === undefined || this.key[i] === key)) n++;
    return n;
  }

  sum(now: number, window: number, key?: number): number {
    let s = 0;
    for (let i = 0; i < RING; i++)
      if (now - this.at[i]! < window && (key === undefined || this.key[i] === key)) s += this.value[i]!;
    return s;
  }

  /** Percentiles (nearest rank) of the entries younger than `window`; 0 if there are none. */
  percentiles(now: number, window: number, ps: readonly number[]): number[] {
    const n = this.count(now, window);
    if (n === 0) return ps.map(() => 0);
    const sorted = new Float64Array(n);
    for (let i = 0, k = 0; i < RING; i++) if (now - this.at[i]! < window) sorted[k++] = this.value[i]!;
    sorted.sort();
    return ps.map((p) => sorted[Math.max(0, Math.ceil((n * p) / 100) - 1)]!);
  }
}

interface CameraCount {
  readonly camera: number;
  /** Frames received from its current track, and their bytes. */
  received: number;
  bytes: number;
  frames: number;
  points: number;
  sequence: number;
}

export class Meter {
  readonly #delay = new Ring();
  readonly #received = new Ring();
  /** Bytes of received frames. */
  readonly #volume = new Ring();
  readonly #drawn = new Ring();
  readonly #decode = new Ring();
  readonly #bytes = new Ring();
  readonly #cameras = new Map<number, CameraCount>();
  #total = 0;
  frames = 0;
  /** Pictures drawn since the start. */
  pictures = 0;
  /** Frames decoded but superseded before they could be drawn. */
  overtaken = 0;
  /** Objects that could not be decoded. */
  bad = 0;
  firstFrame: number | undefined;

  /** Sets the bytes of media received since the start. */
  traffic(total: number, now: number): void {
    if (total > this.#total) this.#bytes.push(now, total - this.#total, 0);
    this.#total = total;
  }

  /** Sets the frames received per camera since its track was chosen, and their bytes. */
  arrived(received: readonly Arrived[], now: number): void {
    for (const [camera, frames, bytes] of received) {
      const c = this.#camera(camera);
      const before = frames < c.received ? { received: 0, bytes: 0 } : c; // another track
      if (frames > before.received) {
        this.#received.push(now, frames - before.received, camera);
        this.#volume.push(now, bytes - before.bytes, camera);
      }
      c.received = frames;
      c.bytes = bytes;
    }
  }

  decoded(camera: number, decode: number, now: number): void {
    this.#decode.push(now, decode, camera);
  }

  #camera(camera: number): CameraCount {
    let c = this.#cameras.get(camera);
    if (!c) this.#cameras.set(camera, (c = { camera, received: 0, bytes: 0, frames: 0, points: 0, sequence: 0 }));
    return c;
  }

  /** A frame was drawn. */
  shown(camera: number, sequence: number, points: number, delay: number, now: number): void {
    const c = this.#camera(camera);
    c.frames++;
    c.points = points;
    c.sequence = sequence;
    this.frames++;
    this.firstFrame ??= now;
    this.#delay.push(now, delay, camera);
  }

  /** A picture was drawn. */
  drawn(now: number): void {
    this.pictures++;
    this.#drawn.push(now, 0, 0);
  }

  /** Forgets removed cameras. */
  keep(cameras: ReadonlySet<number>): void {
    for (const n of this.#cameras.keys()) if (!cameras.has(n)) this.#cameras.delete(n);
  }

  snapshot(now: number): MeterSnapshot {
    const cameras = [...this.#cameras.values()].sort((a, b) => a.camera - b.camera);
    const [p50, p95, p99] = this.#delay.percentiles(now, DELAY_WINDOW, [50, 95, 99]) as [number, number, number];
    const [d50, d95] = this.#decode.percentiles(now, DELAY_WINDOW, [50, 95]) as [number, number];
    const per = cameras.map((c) => ({
      camera: c.camera,
      fps: this.#delay.count(now, RATE_WINDOW, c.camera),
      received_fps: this.#received.sum(now, RATE_WINDOW, c.camera),
      mbit_per_s: round((this.#volume.sum(now, RATE_WINDOW, c.camera) * 8) / 1e6, 2),
      frames: c.frames,
      points: c.points,
      sequence: c.sequence,
    }));
    const mean = (v: number[]) => (v.length > 0 ? v.reduce((a, b) => a + b, 0) / v.length : 0);
    return {
      fps: round(mean(per.map((c) => c.fps)), 2),
      received_fps: round(mean(per.map((c) => c.received_fps)), 2),
      rendered_fps: this.#drawn.count(now, RATE_WINDOW),
      frame_delay_ms: { p50: round(p50, 2), p95: round(p95, 2), p99: round(p99, 2) },
      decode_ms: { p50: round(d50, 2), p95: round(d95, 2) },
      points: cameras.reduce((n, c) => n + c.points, 0),
      mbit_per_s: round((this.#bytes.sum(now, RATE_WINDOW) * 8) / 1e6, 2),
      bytes: this.#total,
      frames: this.frames,
      pictures: this.pictures,
      frames_overtaken: this.overtaken,
      frames_bad: this.bad,
      per_camera: per,
    };
  }
}

export interface MeterSnapshot {
  /** Distinct frames shown in the last second, averaged over the cameras. */
  readonly fps: number;
  /** Frames that arrived in the last second, averaged over the cameras. */
  readonly received_fps: number;
  /** Pictures drawn in the last second. */
  readonly rendered_fps: number;
  readonly frame_delay_ms: { readonly p50: number; readonly p95: number; readonly p99: number };
  readonly decode_ms: { readonly p50: number; readonly p95: number };
  /** Points currently shown, over all cameras. */
  readonly points: number;
  readonly mbit_per_s: number;
  readonly bytes: number;
  readonly frames: number;
  readonly pictures: number;
  readonly frames_overtaken: number;
  readonly frames_bad: number;
  readonly per_camera: readonly {
    readonly camera: number;
    readonly fps: number;
    readonly received_fps: number;
    /** Of the frames received in the last second. */
    readonly mbit_per_s: number;
    readonly frames: number;
    readonly points: number;
    readonly sequence: number;
  }[];
}

export function round(v: number, digits: number): number {
  const p = 10 ** digits;
  return Math.round(v * p) / p;
}
