/** A session's point clouds. Chooses tracks and qualities, and subscribes to them. */
import type { Session, TrackSink } from "../../moqt/index.ts";
import { MAX_CATALOG, type Catalog } from "../session/catalog.ts";
import { localTime } from "../session/clock.ts";
import type { Host, Medium, RecordedTrack } from "../session/medium.ts";
import { DOCUMENT_PRIORITY } from "../session/subscribe.ts";
import { Feed } from "./feed.ts";
import { captureTime } from "./header.ts";
import { isChained } from "./layout.ts";
import type { FromPoints, Released, ToPoints, Undecoded } from "./messages.ts";
import { addParts, noParts, partOf, type PartsCounts } from "./parts.ts";
import { QualityChooser, type Cost } from "./quality.ts";
import {
  parsePoses,
  POSE_TRACK,
  readCameras,
  samePose,
  sameTrack,
  type CameraTrack,
  type Cameras,
  type Transform,
} from "./track.ts";
import { chooseAtLevel } from "./viewselect.ts";

/** Rendezvous timeout: how long the relay waits for a publisher, ms. */
const RENDEZVOUS = 10_000;
const RETRY = 500;
/** A publisher is silent after this many ms or frame intervals without a frame, whichever is longer. */
const SILENCE = 3000;
const SILENT_FRAMES = 5;
/** Subscriber priority (§7). */
const PRIORITY = 128;
/** Priority of repair fetches, which go ahead of newer frames. */
const REPAIR_PRIORITY = 64;
/** Maximum size of a fetched part, bytes. A QUIC DATAGRAM cannot be larger. */
const MAX_PART = 65536;

export class Points implements Medium {
  readonly #feeds = new Map<number, Feed>();
  readonly #chooser = new QualityChooser();
  #catalog: Cameras | undefined;
  /** The catalog's cameras and tracks that this browser can decode. */
  #cameras: Cameras | undefined;
  /** True if the browser decodes H.264; undefined until known. */
  #h264: boolean | undefined;
  #poses: Session | undefined;
  /** Each camera's share of the picture; empty until known. */
  #worths: ReadonlyMap<number, number> = new Map();
  /** Index of the quality chosen for each camera by its share; undefined while all cameras use the same quality. */
  #selected: readonly number[] | undefined;
  /** Poses from the pose track, by camera; they override the catalog's. */
  readonly #moved = new Map<number, Transform>();
  /** Time by which frames are held back, ms. */
  #postponed = 0;
  readonly #countedParts: PartsCounts = noParts(); // for removed feeds
  readonly #counted = { received: 0, lost: 0, late: 0, declined: 0, skipped: 0 }; // for removed feeds

  /**
   * `decoders` are ports to the decode workers; `quality` is a quality's name, or "auto"; `h264` resolves to true if
   * the browser decodes H.264.
   */
  constructor(
    private readonly host: Host,
    private readonly decoders: readonly MessagePort[],
    private quality: string,
    h264: Promise<boolean>,
    private readonly send: (m: FromPoints) => void,
  ) {
    void h264.then((supported) => {
      this.#h264 = supported;
      if (!this.#catalog || this.#cameras) return;
      this.#use(this.#catalog);
      this.follow();
      this.host.settle();
    });
    for (const port of decoders) {
      port.onmessage = ({ data: { camera, words } }: MessageEvent<Undecoded>) => {
        const feed = this.#feeds.get(camera);
        feed?.resync();
        feed?.wanted(localTime(), words);
      };
    }
  }

  take(m: ToPoints): void {
    switch (m.type) {
      case "released":
        this.#released(m);
        break;
      case "worths":
        this.#worths = new Map(m.worths);
        if (this.#automatic && this.#chooser.level > 0 && this.#select()) {
          this.#choose();
          this.follow();
        }
        break;
      case "quality":
        this.quality = m.quality;
        this.#chooser.restart();
        this.#choose();
        this.follow();
        break;
      case "postpone":
        this.#postponed = m.by;
        for (const feed of this.#feeds.values()) feed.postpone(m.by);
    }
  }

  /** The page released a frame. */
  #released({ camera, track, words, shown, next }: Released): void {
    if (shown) this.host.shown(camera, shown.sequence, shown.delay);
    const feed = this.#feeds.get(camera);
    if (feed?.camera.track !== track) return; // from the camera's previous quality
    if (next === undefined) feed.give(words);
    else feed.wanted(next, words);
  }

  get present(): boolean {
    return ((this.#cameras ?? this.#catalog)?.qualities.length ?? 0) > 0;
  }

  get unplayable(): string | undefined {
    if (!this.#cameras || this.#cameras.qualities.length === this.#catalog?.qualities.length) return undefined;
    return "This browser cannot decode the H.264 pictures of some cameras.";
  }

  get captured(): number {
    return this.#feeds.values().next().value?.captured ?? 0;
  }

  prepare(catalog: Catalog): () => void {
    const cameras = readCameras(catalog);
    return () => {
      const before = new Map(this.#catalog?.qualities.flat().map((t) => [t.track, t.pose]));
      for (const t of cameras.qualities.flat()) {
        const pose = before.get(t.track);
        // If the catalog repeats the old pose, keep the newer pose from the pose track.
        if (!pose || !samePose(pose, t.pose)) this.#moved.delete(t.camera);
      }
      this.#catalog = cameras;
      this.#use(cameras);
    };
  }

  /** Uses a catalog's decodable tracks, once it is known which tracks are decodable. */
  #use({ qualities, hasPoses }: Cameras): void {
    if (this.#h264 === undefined && qualities.flat().some((t) => isChained(t.layout))) {
      this.#cameras = undefined;
      return;
    }
    const decodable = qualities.map((list) => list.filter((t) => this.#h264 || !isChained(t.layout)));
    this.#cameras = { qualities: decodable.filter((list) => list.length > 0), hasPoses };
    this.#choose();
  }

  /**
   * The track to receive from a camera: the requested quality if the camera has it, otherwise the
   * automatic choice.
   */
  #best(qualities: readonly CameraTrack[], camera: number): CameraTrack {
    const named = qualities.find((t) => t.quality === this.quality);
    const level = this.#automatic ? (this.#selected?.[camera] ?? this.#chooser.level) : 0;
    return named ?? qualities[Math.min(level, qualities.length - 1)]!;
  }

  /**
   * Divides the bit rate of the chosen level among the cameras by their shares of the picture. Returns true if that
   * changes a camera's quality.
   */
  #select(): boolean {
    const before = this.#selected;
    const lists = this.#cameras?.qualities ?? [];
    const { level } = this.#chooser;
    const worths = lists.map((list) => this.#worths.get(list[0]!.camera) ?? NaN);
    const unknown = worths.some(Number.isNaN) || lists.flat().some((t) => t.bitrate === 0);
    if (level === 0 || lists.length < 2 || unknown) this.#selected = undefined;
    else this.#selected = chooseAtLevel(worths, lists, level, before);
    return this.#selected?.join() !== before?.join();
  }

  get #names(): string[] {
    return [...new Set(this.#cameras?.qualities.flatMap((list) => list.map((t) => t.quality)))];
  }

  /** True if the quality is chosen automatically, because the user requested none or an unknown one. */
  get #automatic(): boolean {
    return !this.#names.includes(this.quality);
  }

  /** Adds and removes feeds to match the catalog and the chosen qualities. */
  #choose(): void {
    if (!this.#cameras) return;
    this.#select();
    const cameras = this.#cameras.qualities.map((list, i) => {
      const best = this.#best(list, i);
      return { ...best, pose: this.#moved.get(best.camera) ?? best.pose };
    });
    const wanted = new Map(cameras.map((c) => [c.camera, c]));
    for (const [camera, feed] of [...this.#feeds]) {
      const c = wanted.get(camera);
      if (c && sameTrack(c, feed.camera)) feed.setPose(c.pose);
      else this.#drop(feed);
    }
    this.send({ type: "cameras", cameras });
    this.send({
      type: "qualities",
      names: this.#names,
      chosen: this.#automatic ? "auto" : this.quality,
      received: cameras.map((c) => c.quality),
    });
    for (const [i, c] of cameras.entries()) {
      if (this.#feeds.has(c.camera)) continue;
      const feed = new Feed(c, this.decoders[i % this.decoders.length]!, this.host);
      feed.postpone(this.#postponed);
      this.#feeds.set(c.camera, feed);
    }
    this.host.changed();
  }

  #drop(feed: Feed): void {
    feed.close();
    this.#feeds.delete(feed.camera.camera);
    this.#counted.received += feed.sequence.received;
    this.#counted.lost += feed.sequence.lost;
    this.#counted.late += feed.sequence.late;
    this.#counted.declined += feed.sequence.declined;
    this.#counted.skipped += feed.skipped;
    addParts(this.#countedParts, feed.parts);
  }

  clear(): void {
    for (const feed of [...this.#feeds.values()]) this.#drop(feed);
    this.#catalog = this.#cameras = undefined;
  }

  follow(): void {
    const { session } = this.host;
    if (!session || !this.host.live) return;
    for (const feed of this.#feeds.values()) {
      if (feed.subscription?.session !== session || feed.subscription.ended) void this.#followFrames(session, feed);
    }
    if (this.#cameras?.hasPoses) void this.#followPoses(session);
  }

  leave(): void {
    this.#chooser.restart();
    for (const feed of this.#feeds.values()) feed.leave();
  }

  jump(): void {
    for (const feed of this.#feeds.values()) feed.sequence.restart();
  }

  async #followFrames(s: Session, feed: Feed): Promise<void> {
    const run = ++feed.run;
    const { assembler, camera } = feed;
    const track = this.host.track(camera.track);
    const parts = feed.receiveParts(maxFrame(camera), (r, into) => s.fetch(track, r.group, r.group, {
      maxObject: MAX_PART,
      object: (o) => into.add(partOf(o), true),
      received: (bytes) => this.host.received(bytes),
    }, { priority: REPAIR_PRIORITY, objects: r }));
    const sink: TrackSink = {
      maxObject: maxFrame(camera),
      accept: (h) => feed.wants(h.group),
      object: (o) => {
        if (o.datagram) parts.add(partOf(o), true);
        else if (o.status === "normal" && o.payload.length > 0)
          assembler.add(o.group, Number(o.subgroup), o.payload, Number(o.id));
      },
      datagram: (d) => {
        if (d.status === "normal" && feed.wants(d.group)) parts.add(partOf(d), false);
      },
      cut: (group, subgroup) => {
        // If the subscription has been replaced, the new one delivers the frame again.
        if (feed.run === run) assembler.lost(group, subgroup === undefined ? 0 : Number(subgroup));
      },
      received: (bytes) => this.host.received(bytes),
    };
    const timeout = camera.deliveryTimeout > 0 && (isChained(camera.layout)
      ? { objectDeliveryTimeout: camera.deliveryTimeout } // the subgroup lasts as long as its group
      : { subgroupDeliveryTimeout: camera.deliveryTimeout });
    while (!s.over && this.host.session === s && feed.run === run) {
      try {
        const sub = await s.subscribe(track, sink, {
          join: true,
          priority: PRIORITY,
          filter: "largestObject",
          ...timeout,
          rendezvousTimeout: RENDEZVOUS,
        });
        if (feed.run !== run) {
          sub.cancel();
          return;
        }
        feed.follow(sub);
        await sub.done;
      } catch {
        // The catalog's subscription reports the error.
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY));
    }
  }

  async #followPoses(s: Session): Promise<void> {
    if (this.#poses === s) return;
    this.#poses = s;
    const sink: TrackSink = {
      maxObject: MAX_CATALOG,
      object: (o) => {
        try {
          for (const e of parsePoses(o.payload)) this.#move(e.camera, e.pose);
        } catch {
          // Ignore an unreadable pose.
        }
      },
    };
    try {
      const sub = await s.subscribe(this.host.track(POSE_TRACK), sink, {
        join: true,
        priority: DOCUMENT_PRIORITY,
        filter: "largestObject",
      });
      await sub.done;
    } catch {
      // Without a pose track, the catalog's poses apply.
    }
    if (this.#poses === s) this.#poses = undefined;
  }

  #move(camera: number, pose: Transform): void {
    const feed = this.#feeds.get(camera);
    if (!feed) return;
    this.#moved.set(camera, pose);
    feed.setPose(pose);
    this.send({ type: "pose", camera, pose });
  }

  recordedTracks(recording: Catalog): ReadonlyMap<string, RecordedTrack> {
    const past = readCameras(recording).qualities.flat();
    const recordedTracks = new Map<string, RecordedTrack>();
    for (const feed of this.#feeds.values()) {
      const { track, camera } = feed.camera;
      const timeline = past.find((t) => t.track === track && t.camera === camera)?.timeline;
      if (!timeline) continue;
      recordedTracks.set(track, {
        timeline,
        maxObject: maxFrame(feed.camera),
        ...(isChained(feed.camera.layout) && { captured: captureTime }),
        show: (o) => feed.show(o),
        skip: (o) => feed.skip(o),
      });
    }
    return recordedTracks;
  }

  silent(now: number): boolean {
    for (const f of this.#feeds.values()) {
      const limit = Math.max(SILENCE, f.camera.framerate > 0 ? (SILENT_FRAMES * 1000) / f.camera.framerate : 0);
      if (now - Math.max(f.arrived, f.resumes) < limit) return false;
    }
    return true;
  }

  tick(now: number): void {
    const n = { ...this.#counted };
    const parts = { ...this.#countedParts };
    for (const f of this.#feeds.values()) {
      addParts(parts, f.parts);
      n.received += f.sequence.received;
      n.lost += f.sequence.lost;
      n.late += f.sequence.late;
      n.declined += f.sequence.declined;
      n.skipped += f.skipped;
    }
    this.send({
      type: "frames",
      arrived: [...this.#feeds.values()].map((f) => [f.camera.camera, f.sequence.received, f.bytes] as const),
      ...n,
      parts,
    });
    if (!this.host.live) return;
    for (const f of this.#feeds.values()) f.checkOverdue();
    if (!this.#cameras?.qualities.length || !this.#automatic) return;
    const before = this.#chooser.level;
    const counts = { frames: n.received + n.declined, undrawn: n.skipped + n.declined, lost: n.lost };
    if (this.#chooser.update(now, counts, costs(this.#cameras)) === before) return;
    this.#choose();
    this.follow();
  }
}

/** Cost of each level of quality. */
function costs({ qualities }: Cameras): Cost[] {
  const levels = Math.max(0, ...qualities.map((list) => list.length));
  return Array.from({ length: levels }, (_, level) => {
    const tracks = qualities.map((list) => list[Math.min(level, list.length - 1)]!);
    const sum = (of: "maxPoints" | "bitrate") => tracks.reduce((n, t) => n + t[of], 0);
    return { points: sum("maxPoints"), bitrate: sum("bitrate") };
  });
}

/** Maximum size, in bytes, of a poorly compressed frame in the track's format. */
function maxFrame(t: CameraTrack): number {
  return 4096 + t.grid.width * t.grid.height + 20 * t.maxPoints;
}
