/** A sphere of video on its way from the decoder to the picture, and how well the viewer sees it. */
import { localTime } from "../media/session/clock.ts";
import { mediaTime, WHOLE, type Due, type FromTiles, type FromVideo, type TileState, type ToTiles } from "../media/tiles/messages.ts";
import { Grid, View, type Vec } from "../media/tiles/sphere.ts";
import type { Sphere } from "../media/tiles/track.ts";
import type { Studio } from "../scene/studio.ts";
import { Sound, type SoundStats } from "./sound.ts";

/** How often the gaze is sent to the network worker, ms. */
const SEND = 50;
/** Pictures of a tile that wait for their time. */
const MOST_WAITING = 30;
/** A tile whose picture lags what is due by more frames is not shown. */
const STALE = 4;
/** The low-resolution sphere has stalled when its picture lags by so much, ms. */
const STALL = 400;
/** The viewport is sharp if tiles at least one below the best quality cover this share of it. */
const SHARP = 0.9;
/** Tiles in a view this much wider than the viewport are uploaded; greatest width, radians. */
const AROUND = 1.3;
const WIDEST = 2.6;
/** Points of the viewport that are looked at, along an edge. */
const SAMPLES = 10;

interface Waiting {
  /** Oldest first. */
  readonly frames: { readonly frame: VideoFrame; readonly quality: number }[];
  /** Timestamp of the last picture that was due, µs, and its quality; and of the one on the GPU. */
  due: number;
  quality: number;
  shown: number;
  /** The last that was due, of a tile out of view: it is shown if the view turns there. */
  aside: VideoFrame | undefined;
}

export interface VideoStats {
  readonly columns: number;
  readonly rows: number;
  readonly qualities: number;
  /** Quality shown of each tile, 0 the worst; −1: the whole sphere is seen there. */
  readonly tiles: readonly number[];
  /** Mean quality in the viewport, 0 = the whole sphere alone, 1 = the best everywhere. */
  readonly viewport_quality: number;
  /** Share of the viewport, over time, where there was a tile. */
  readonly tile_hits: number;
  /** Times that the whole sphere stalled. */
  readonly stalls: number;
  /** From the last turn of the head to a sharp viewport, ms; null before one. */
  readonly motion_to_quality_ms: number | null;
  /** Requests of tiles: SUBSCRIBE, REQUEST_UPDATE and cancellations. */
  readonly tile_messages: number;
  readonly pictures: number;
  readonly bad: number;
  /** Capture to picture of what is seen, ms. */
  readonly delay_ms: number;
  /** Timestamp of the picture of the whole sphere that is shown, UNIX ms. */
  readonly shown_ms: number;
  /** Timestamp that is due now. */
  readonly due_ms: number;
  /** null: the session has none. */
  readonly sound: SoundStats | null;
}

export class VideoView {
  sphere: Sphere | undefined;
  state: TileState | undefined;
  readonly #waiting = new Map<number, Waiting>();
  readonly sound = new Sound();
  #due: Due | undefined;
  /** Pictures of earlier runs are from before a seek. */
  #run = 0;
  #view: View | undefined;
  #share = new Float64Array(0);
  /** What is in view and around it: only these tiles' pictures are put on the GPU. */
  #wide: View | undefined;
  #near = new Float64Array(0);
  #sent = 0;
  #pictures = 0;
  #bad = 0;
  #stalls = 0;
  #stalled = false;
  #hits = 0;
  #looked = 0;
  #quality = 0;
  /** Since when the viewport has not been sharp after it was; and how long it took the last time. */
  #turned: number | undefined;
  #motion: number | null = null;
  #wasSharp = false;
  #delay = 0;
  #badMessage = "";

  constructor(
    private readonly studio: Studio,
    private readonly send: (m: ToTiles) => void,
  ) {}

  fromNetwork(m: FromTiles): void {
    switch (m.type) {
      case "sphere":
        this.drop();
        this.sphere = m.sphere;
        this.#view = undefined;
        this.studio.setSphere(m.sphere);
        break;
      case "due":
        this.#due = this.sound.due = m;
        break;
      case "drop":
        this.#seek(m.run);
        break;
      case "tiles":
        this.state = m;
    }
  }

  fromVideo(m: FromVideo): void {
    if (m.type === "bad") {
      this.#bad++;
      if (m.message !== this.#badMessage) console.warn(`tile ${m.tile}: ${(this.#badMessage = m.message)}`);
      return;
    }
    if (m.run > this.#run) this.#seek(m.run); // the worker learned of the seek before the page
    if (m.type === "samples") {
      if (m.run === this.#run) this.sound.add(m);
      return;
    }
    if (!this.sphere || m.run < this.#run) return m.frame.close();
    let w = this.#waiting.get(m.tile);
    if (!w) this.#waiting.set(m.tile, (w = { frames: [], due: -Infinity, quality: -1, shown: -Infinity, aside: undefined }));
    w.frames.push(m);
    if (w.frames.length > MOST_WAITING) w.frames.shift()!.frame.close();
  }

  #seek(run: number): void {
    if (run <= this.#run) return;
    this.#run = run;
    this.drop();
  }

  /** Turns the sound on or off; on must follow a click. */
  turnSound(on: boolean): void {
    this.sound.turn(on);
    this.send({ type: "sound", on });
  }

  /** Drops all pictures and sound. */
  drop(): void {
    this.sound.drop();
    for (const w of this.#waiting.values()) {
      for (const { frame } of w.frames) frame.close();
      w.aside?.close();
    }
    this.#waiting.clear();
  }

  /** Hands the pictures that are due to the GPU. Called on each animation frame, at the local time `now`. Returns whether there were any. */
  upload(now: number): boolean {
    const { sphere } = this.studio;
    if (!this.sphere || !sphere || !this.#due) return false;
    const due = 1000 * mediaTime(this.#due, now); // timestamp, µs
    let changed = false;
    for (const [tile, w] of this.#waiting) {
      let last: (typeof w.frames)[number] | undefined;
      while (w.frames.length > 0 && w.frames[0]!.frame.timestamp <= due) {
        last?.frame.close();
        last = w.frames.shift();
      }
      if (last) {
        w.due = last.frame.timestamp;
        w.quality = last.quality;
        w.aside?.close();
        w.aside = last.frame;
      }
      if (w.aside && (tile === WHOLE || (this.#near[tile] ?? 1) > 0)) {
        if (tile === WHOLE) sphere.whole(w.aside);
        else sphere.tile(tile, w.aside);
        w.aside.close();
        w.aside = undefined;
        w.shown = w.due;
        changed = true;
        if (tile === WHOLE) {
          this.#pictures++;
          this.#delay = (due - w.shown) / 1000 + this.sphere.latency;
        }
      }
    }
    const stale = due - (STALE * 1e6) / this.sphere.framerate;
    for (let t = 0; t < this.sphere.tiles.length; t++) {
      const w = this.#waiting.get(t);
      sphere.show(t, w !== undefined && w.shown >= stale);
    }
    const whole = this.#waiting.get(WHOLE);
    const stalled = whole !== undefined && whole.shown < due - 1000 * STALL;
    if (stalled && !this.#stalled) this.#stalls++;
    this.#stalled = stalled;
    this.#look(now, stale);
    if (changed) this.studio.dirty = true;
    return changed;
  }

  /** Measures the viewport's quality, and reports the gaze to the network worker. */
  #look(now: number, stale: number): void {
    if (now - this.#sent < SEND) return;
    this.#sent = now;
    const s = this.sphere!;
    const gaze = this.studio.gaze as Vec;
    const [width, height] = this.studio.fieldOfView;
    this.send({ type: "gaze", gaze, width, height });
    if (s.columns === 0) return;
    if (!this.#view || Math.abs(this.#view.width - width) + Math.abs(this.#view.height - height) > 0.02) {
      const grid = new Grid(s.columns, s.rows, s.width, s.height);
      this.#view = new View(grid, width, height, SAMPLES);
      this.#wide = new View(grid, Math.min(WIDEST, AROUND * width), Math.min(WIDEST, AROUND * height), SAMPLES);
      this.#share = new Float64Array(s.tiles.length);
      this.#near = new Float64Array(s.tiles.length);
    }
    this.#view.expect([{ gaze, p: 1 }], this.#share);
    this.#wide!.expect([{ gaze, p: 1 }], this.#near);
    let quality = 0;
    let hit = 0;
    let sharp = 0;
    this.#share.forEach((share, t) => {
      const w = this.#waiting.get(t);
      if (!w || w.due < stale) return;
      hit += share;
      quality += (share * (w.quality + 1)) / s.qualities;
      if (w.quality >= s.qualities - 2) sharp += share;
    });
    this.#quality = quality;
    this.#hits += hit;
    this.#looked++;
    const isSharp = sharp >= SHARP;
    if (isSharp && this.#turned !== undefined) {
      this.#motion = now - this.#turned;
      this.#turned = undefined;
    } else if (!isSharp && this.#wasSharp) {
      this.#turned = now;
    }
    this.#wasSharp = isSharp;
  }

  get pictures(): number {
    return this.#pictures;
  }

  stats(): VideoStats | null {
    const s = this.sphere;
    if (!s) return null;
    const stale = this.#due ? 1000 * mediaTime(this.#due, localTime()) - (2 * STALE * 1e6) / s.framerate : 0;
    return {
      columns: s.columns, rows: s.rows, qualities: s.qualities,
      tiles: s.tiles.map((_, t) => {
        const w = this.#waiting.get(t);
        return w && w.due >= stale ? w.quality : -1;
      }),
      viewport_quality: Math.round(1000 * this.#quality) / 1000,
      tile_hits: this.#looked === 0 ? 0 : Math.round((1000 * this.#hits) / this.#looked) / 1000,
      stalls: this.#stalls, motion_to_quality_ms: this.#motion === null ? null : Math.round(this.#motion),
      tile_messages: this.state?.messages ?? 0, pictures: this.#pictures, bad: this.#bad, delay_ms: Math.round(this.#delay),
      shown_ms: Math.round((this.#waiting.get(WHOLE)?.shown ?? 0) / 1000),
      due_ms: this.#due ? Math.round(mediaTime(this.#due, localTime())) : 0, sound: s.sound ? this.sound.stats() : null,
    };
  }
}
