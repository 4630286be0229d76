/** Passes point clouds from the decode workers to the scene. */
import { localTime } from "../media/session/clock.ts";
import type {
  DecodedFrame,
  FrameCounts,
  FromDecoder,
  FromPoints,
  Qualities,
  Released,
  ToPoints,
} from "../media/points/messages.ts";
import { Step } from "../media/points/step.ts";
import type { CameraTrack } from "../media/points/track.ts";
import { ahead, worth, type View } from "../media/points/viewselect.ts";
import type { Studio } from "../scene/studio.ts";
import type { Meter } from "./hud/meter.ts";
import { LipSync } from "./lipsync.ts";

/** Frames are requested this many ms, plus twice the decoding time, before the next repaint. */
const AHEAD = 40;
const MAX_RAYS = 64;
/** Time until a change of quality is visible, s, and how fast viewers turn, rad/s. */
const CHANGE = 0.5;
const TURN = 1.5;

export class PointsView {
  cameras: readonly CameraTrack[] = [];
  counts: FrameCounts | undefined;
  qualities: Qualities | undefined;
  readonly lips = new LipSync();
  /** The newest undrawn frame of each camera. */
  readonly #pending = new Map<number, DecodedFrame>();
  readonly #onScreen: DecodedFrame[] = [];
  readonly #step = new Step();
  /** Ray tables of tracks the page does not know yet. */
  readonly #rays = new Map<string, Extract<FromDecoder, { type: "rays" }>>();
  /** Surface patches of each camera. */
  readonly #patches = new Map<number, Float32Array>();
  #view: { readonly view: View; readonly at: number } | undefined;
  #badMessage = "";
  /**
   * Time of the last animation frame, whether it drew, and the mean time from drawing to the next
   * animation frame, ms.
   */
  #lastTick = 0;
  #drew = false;
  #gap = 0;

  constructor(
    private readonly studio: Studio,
    private readonly meter: Meter,
    private readonly send: (m: ToPoints, transfer?: Transferable[]) => void,
  ) {}

  fromNetwork(m: FromPoints): void {
    switch (m.type) {
      case "cameras":
        this.cameras = m.cameras;
        this.studio.setCameras(m.cameras);
        this.meter.keep(new Set(m.cameras.map((c) => c.camera)));
        for (const camera of [...this.#patches.keys()])
          if (!m.cameras.some((c) => c.camera === camera)) this.#patches.delete(camera);
        for (const rays of [...this.#rays.values()]) this.#takeRays(rays);
        for (const f of this.#pending.values()) {
          if (this.#shows(f.camera, f.track)) continue;
          this.#pending.delete(f.camera);
          this.#release(f, localTime());
        }
        break;
      case "pose":
        this.studio.setPose(m.camera, m.pose);
        break;
      case "qualities":
        this.qualities = m;
        break;
      case "frames":
        this.counts = m;
        this.meter.arrived(m.arrived, localTime());
        this.#weigh(localTime());
    }
  }

  /** Reports each camera's share of the picture, which matters once the automatic choice has lowered the quality. */
  #weigh(now: number): void {
    const { chosen, names, received } = this.qualities ?? { chosen: "", names: [], received: [] };
    if (chosen !== "auto" || received.every((q) => q === names[0])) return;
    const cameras = this.cameras.flatMap(({ camera }) => {
      const patches = this.#patches.get(camera);
      return patches ? [{ camera, patches }] : [];
    });
    const view = this.studio.hologramView();
    if (!view || cameras.length < 2 || cameras.length < this.cameras.length) return;
    const before = this.#view;
    this.#view = { view, at: now };
    const seconds = before ? (now - before.at) / 1000 : 0;
    const velocity = before && seconds > 0 ? speed(before.view, view, seconds) : ([0, 0, 0] as const);
    const worths = worth(
      cameras.map((c) => c.patches),
      ahead(view, velocity, TURN, CHANGE),
    );
    this.send({ type: "worths", worths: cameras.map((c, i) => [c.camera, worths[i]!] as const) });
  }

  fromDecoder(m: FromDecoder): void {
    switch (m.type) {
      case "frame": {
        // The frame belongs to the camera's previous track or its next one.
        if (this.cameras.some((c) => c.camera === m.camera && c.track !== m.track)) {
          this.#release(m, localTime());
          return;
        }
        this.meter.decoded(m.camera, m.decode, localTime());
        const before = this.#pending.get(m.camera);
        if (before) {
          this.meter.overtaken++;
          this.#release(before, undefined);
        }
        this.#pending.set(m.camera, m);
        break;
      }
      case "rays":
        this.#takeRays(m);
        break;
      case "bad":
        this.meter.bad++;
        if (m.message !== this.#badMessage) console.warn(`camera ${m.camera}: ${(this.#badMessage = m.message)}`);
    }
  }

  /** Ray tables may arrive before their track, since the catalog comes from another worker. */
  #takeRays(m: Extract<FromDecoder, { type: "rays" }>): void {
    if (this.#shows(m.camera, m.track)) {
      this.studio.setRays(m.camera, m.table);
      this.#rays.delete(m.track);
    } else {
      this.#rays.set(m.track, m);
      if (this.#rays.size > MAX_RAYS) this.#rays.delete(this.#rays.keys().next().value!);
    }
  }

  #shows(camera: number, track: string): boolean {
    return this.cameras.some((c) => c.camera === camera && c.track === track);
  }

  /** Releases a frame. `next` is the local time from which the page can use another one. */
  #release({ camera, track, words, sequence }: DecodedFrame, next: number | undefined, delay?: number): void {
    const m: Released = {
      type: "released",
      camera,
      track,
      words,
      next,
      shown: delay === undefined ? undefined : { sequence, delay },
    };
    this.send(m, [words]);
  }

  /** Drops undrawn frames. */
  drop(): void {
    for (const f of this.#pending.values()) this.#release(f, localTime());
    this.#pending.clear();
  }

  /** Uploads the newest frames to the GPU. Called on each animation frame, at local time `now`. */
  upload(now: number): void {
    if (this.#drew) this.#gap += 0.2 * (now - this.#lastTick - this.#gap);
    this.#lastTick = now;
    this.#drew = false;
    const frames = [...this.#pending.values()].filter((f) => this.#shows(f.camera, f.track)); // in the catalog
    if (!this.#step.ready(frames, this.cameras.map((c) => c.camera), now, this.#gap)) return;
    for (const f of frames) {
      this.#step.shown(f);
      this.studio.upload(f.camera, new Uint32Array(f.words), f.points, f.subject);
      if (f.patches) this.#patches.set(f.camera, f.patches);
      this.#onScreen.push(f);
      this.#pending.delete(f.camera);
    }
  }

  /** Call after drawing. `delay` computes a frame's delay on the session's clock, in ms. */
  drawn(now: number, delay: (frame: DecodedFrame, shown: number) => number): void {
    this.#drew = true;
    const shown = localTime();
    for (const f of this.#onScreen) {
      const d = delay(f, shown);
      this.lips.shown(f.captured, shown);
      this.meter.shown(f.camera, f.sequence, f.points, d, shown);
      // With a renderer slower than the frame rate, request the frame that is newest just before
      // the next repaint.
      this.#release(f, Math.max(now, now + this.#gap - AHEAD - 2 * f.decode), d);
    }
    this.#onScreen.length = 0;
  }
}

/** Velocity between two views, in studio mm/s. */
function speed(from: View, to: View, seconds: number): readonly [number, number, number] {
  const place = ({ eye: { r, t } }: View, i: number) => -(r[i]! * t[0]! + r[3 + i]! * t[1]! + r[6 + i]! * t[2]!);
  const along = (i: number) => (place(to, i) - place(from, i)) / seconds;
  return [along(0), along(1), along(2)];
}
