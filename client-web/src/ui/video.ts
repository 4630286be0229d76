/** Passes 360° video from the decoder to the scene, and measures the quality seen. */
import { localTime } from "../media/session/clock.ts";
import {
  mediaTime,
  BASE,
  type Due,
  type FromTiles,
  type FromVideo,
  type TileState,
  type ToTiles,
} from "../media/tiles/messages.ts";
import { Grid, View, type Vec } from "../media/tiles/sphere.ts";
import type { Sphere } from "../media/tiles/track.ts";
import type { Studio } from "../scene/studio.ts";

/** Interval between gaze reports to the network worker, ms. */
const SEND = 50;
/** Maximum number of pictures waiting per tile. */
const MAX_WAITING = 30;
/** A tile is hidden when its picture is this many frames behind. */
const STALE = 4;
/** The base sphere counts as stalled when its picture is this many ms late. */
const STALL = 400;
/**
 * The view counts as sharp when tiles of at least the second-best quality cover this share of it.
 */
const SHARP = 0.9;
/** Tiles are uploaded in a view wider than the viewport by this factor, at most this wide in radians. */
const AROUND = 1.3;
const WIDEST = 2.6;
/** Sampling points along each edge of the viewport. */
const SAMPLES = 10;

interface Waiting {
  /** Oldest first, the better of two qualities last. */
  readonly frames: { readonly frame: VideoFrame; readonly quality: number }[];
  /** Timestamp (µs) and quality of the last picture due, and timestamp of the picture on the GPU. */
  due: number;
  quality: number;
  shown: number;
  /** The last due picture of a tile that is out of view, uploaded if the view turns there. */
  aside: VideoFrame | undefined;
}

export interface VideoStats {
  readonly columns: number;
  readonly rows: number;
  readonly qualities: number;
  /** Displayed quality per tile, where 0 is the worst and −1 means the base sphere. */
  readonly tiles: readonly number[];
  /** Mean quality in the viewport, from 0 (base sphere only) to 1 (the best tiles everywhere). */
  readonly viewport_quality: number;
  /** Share of the viewport covered by tiles, averaged over time. */
  readonly tile_hits: number;
  /** Number of stalls of the base sphere. */
  readonly stalls: number;
  /**
   * Time that the viewport last took to become sharp again, for example after a turn of the head, ms; null until then.
   */
  readonly motion_to_quality_ms: number | null;
  /** Tile requests: SUBSCRIBE, REQUEST_UPDATE and cancellations. */
  readonly tile_messages: number;
  readonly pictures: number;
  readonly bad: number;
  /** Capture to display, ms. */
  readonly delay_ms: number;
  /** Timestamp of the displayed base sphere, UNIX ms. */
  readonly shown_ms: number;
  /** Timestamp currently due. */
  readonly due_ms: number;
}

export class VideoView {
  sphere: Sphere | undefined;
  state: TileState | undefined;
  readonly #waiting = new Map<number, Waiting>();
  #due: Due | undefined;
  /** Counts seeks; pictures of earlier runs are dropped. */
  #run = 0;
  #view: View | undefined;
  #share = new Float64Array(0);
  /** The view and its surroundings. Only tiles in it are uploaded. */
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
  /** Time at which the viewport stopped being sharp. */
  #blurredSince: number | undefined;
  /** Time that the viewport last took to become sharp again. */
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
        if (this.studio.sphere) this.send({ type: "fit", tiles: this.studio.sphere.tiles });
        break;
      case "due":
        this.#due = m;
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
    if (!this.sphere || m.run < this.#run) return m.frame.close();
    let w = this.#waiting.get(m.tile);
    if (!w)
      this.#waiting.set(m.tile, (w = { frames: [], due: -Infinity, quality: -1, shown: -Infinity, aside: undefined }));
    // A better quality repeats pictures that wait.
    let at = w.frames.length;
    while (at > 0 && this.#isBefore(m.frame, w.frames[at - 1]!.frame.timestamp)) at--;
    w.frames.splice(at, 0, m);
    if (w.frames.length > MAX_WAITING) w.frames.shift()!.frame.close();
  }

  /** True for a picture before a timestamp in µs, but not for the next round of a looping replay. */
  #isBefore(frame: VideoFrame, timestamp: number): boolean {
    const behind = timestamp - frame.timestamp;
    return behind > 0 && behind < 2000 * this.sphere!.gop;
  }

  #seek(run: number): void {
    if (run <= this.#run) return;
    this.#run = run;
    this.drop();
  }

  /** The playout clock; undefined without pictures. */
  get due(): Due | undefined {
    return this.#due;
  }

  /** Drops all waiting pictures. */
  drop(): void {
    for (const w of this.#waiting.values()) {
      for (const { frame } of w.frames) frame.close();
      w.aside?.close();
    }
    this.#waiting.clear();
  }

  /**
   * Uploads the pictures that are due. Called on each animation frame, at local time `now`. Returns
   * true if there were any.
   */
  upload(now: number): boolean {
    const { sphere } = this.studio;
    if (!this.sphere || !sphere || !this.#due) return false;
    const due = 1000 * mediaTime(this.#due, now); // timestamp, µs
    let changed = false;
    const { still } = this.#due;
    for (const [tile, w] of this.#waiting) {
      let last: (typeof w.frames)[number] | undefined;
      // Playback may pause at a position just before the picture already shown.
      const shown = still !== undefined && w.due > due ? -Infinity : w.due;
      while (w.frames.length > 0 && w.frames[0]!.frame.timestamp <= due) {
        const next = w.frames.shift()!;
        // A better quality starts with pictures older than the one shown.
        if (this.#isBefore(next.frame, shown)) next.frame.close();
        else {
          last?.frame.close();
          last = next;
        }
      }
      if (last) {
        w.due = last.frame.timestamp;
        w.quality = last.quality;
        w.aside?.close();
        w.aside = last.frame;
      }
      if (w.aside && (tile === BASE || (this.#near[tile] ?? 1) > 0)) {
        if (tile === BASE) sphere.uploadBase(w.aside);
        else if (!sphere.uploadTile(tile, w.aside)) continue;
        w.aside.close();
        w.aside = undefined;
        w.shown = w.due;
        changed = true;
        if (tile === BASE) {
          this.#pictures++;
          this.#delay = (due - w.shown) / 1000 + this.sphere.latency;
        }
      }
    }
    const stale = due - (STALE * 1e6) / this.sphere.framerate;
    for (let t = 0; t < this.sphere.tiles.length; t++) {
      const w = this.#waiting.get(t);
      const wanted = sphere.tiles === this.sphere.tiles.length || (this.#near[t] ?? 1) > 0;
      sphere.show(t, w !== undefined && w.shown >= stale && wanted);
    }
    const base = this.#waiting.get(BASE);
    const stalled = base !== undefined && base.shown < due - 1000 * STALL;
    if (stalled && !this.#stalled) this.#stalls++;
    this.#stalled = stalled;
    this.#measure(now);
    if (changed) this.studio.dirty = true;
    return changed;
  }

  /** Measures the viewport's quality, and reports the gaze to the network worker. */
  #measure(now: number): void {
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
      if (!w || !this.studio.sphere!.shows(t)) return;
      hit += share;
      quality += (share * (w.quality + 1)) / s.qualities;
      if (w.quality >= s.qualities - 2) sharp += share;
    });
    this.#quality = quality;
    this.#hits += hit;
    this.#looked++;
    const isSharp = sharp >= SHARP;
    if (isSharp && this.#blurredSince !== undefined) {
      this.#motion = now - this.#blurredSince;
      this.#blurredSince = undefined;
    } else if (!isSharp && this.#wasSharp) {
      this.#blurredSince = now;
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
      stalls: this.#stalls,
      motion_to_quality_ms: this.#motion === null ? null : Math.round(this.#motion),
      tile_messages: this.state?.messages ?? 0,
      pictures: this.#pictures,
      bad: this.#bad,
      delay_ms: Math.round(this.#delay),
      shown_ms: Math.round((this.#waiting.get(BASE)?.shown ?? 0) / 1000),
      due_ms: this.#due ? Math.round(mediaTime(this.#due, localTime())) : 0,
    };
  }
}
