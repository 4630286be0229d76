/** The network's side of a viewer: a session at a relay, its catalog, clock, frames and receipts. */
import {
  ConnectError, DoneCode, DoneError, keep, RequestCode, RequestError,
  type DatagramTrack, type ReceivedObject, type Session, type Subscription, type TrackName, type TrackSink,
} from "../moqt/index.ts";
import { CatalogReader, decompress, MAX_CATALOG, parsePoses, POSE_TRACK, type CameraTrack, type Catalog, type Timeline } from "./catalog.ts";
import { ClockEstimator, CLOCK_TRACK, localTime, parseStamp } from "./clock.ts";
import { Feed } from "./feed.ts";
import { Playback, type PlaybackPorts } from "./playback.ts";
import type { FromNetwork, Phase, PlaybackAction, Spent, Start, ToNetwork, Undecoded } from "./protocol.ts";
import { QualityChooser } from "./quality.ts";
import { encodeReceipt } from "./receipt.ts";

const ROOT = "holocast";
/** Last field of the namespace in which a replay offers its recording (docs/spec/replay.md). */
const RECORDING = "recording";
const RENDEZVOUS = 10_000;
const REPORT_INTERVAL = 250;
/** After so many ms without a catalog a person is told that there is nothing yet. */
const PATIENCE = 1500;
/** After so many ms without a frame, or the time of so many frames, a publisher is called silent. */
const SILENCE = 3000;
const SILENT_FRAMES = 5;
/** How often a recording's playback moves on, ms. */
const TICK = 10;
const FETCH_TIMEOUT = 20_000;
/** Subscriber priorities (§7): time before the catalog before frames. */
const PRIORITY = { clock: 0, catalog: 16, points: 128 } as const;

const send = (m: FromNetwork): void => postMessage(m);

class Viewer {
  readonly #clock = new ClockEstimator();
  readonly #feeds = new Map<number, Feed>();
  readonly #stop = new AbortController();
  #session: Session | undefined;
  #receipts: DatagramTrack | undefined;
  #phase: Phase | undefined;
  #detail = "";
  #hadCatalog = false;
  #catalog: Catalog | undefined;
  /** What a replay offers of its recording. */
  #recording: Catalog | undefined;
  /** While the recording is watched at the viewer's own pace. */
  #playback: Playback | undefined;
  #ticking: ReturnType<typeof setInterval> | undefined;
  /** Whether the page is seen, and whether a recording was playing when it was last. */
  #seen = true;
  #played = false;
  #quality: string;
  readonly #chooser = new QualityChooser();
  #bytes = 0;
  #skipped = 0;
  #reconnects = 0;
  readonly #lost = { cut: 0, refused: 0, malformed: 0 };
  readonly #counted = { received: 0, lost: 0, late: 0, declined: 0 }; // of feeds that are gone
  /** What the feeds know. */
  readonly #surroundings = { loops: false, rtt: 0 };

  constructor(private readonly start: Start) {
    this.#quality = start.quality;
    start.decoders.forEach((port) => {
      port.onmessage = (e: MessageEvent<Undecoded>) => this.#feeds.get(e.data.camera)?.wanted(localTime(), e.data.words);
    });
  }

  run(): void {
    this.#enter("connecting", "");
    setInterval(() => void this.#report(), REPORT_INTERVAL);
    void keep(
      {
        url: this.start.relay,
        ...(this.start.certificate !== undefined && { pinned: this.start.certificate }),
        use: (s) => this.#use(s),
        failed: (why) => this.#failed(why),
      },
      this.#stop.signal,
    );
  }

  stop(): void {
    this.#stop.abort();
  }

  /** The page is done with a frame. */
  spent({ camera, track, words, shown, next }: Spent): void {
    if (shown && !this.#playback) this.#receipts?.send(encodeReceipt(camera, shown.sequence, shown.delay));
    const feed = this.#feeds.get(camera);
    if (feed?.camera.track !== track) return; // it was of a quality that the camera had before
    if (next === undefined) feed.give(words);
    else feed.wanted(next, words);
  }

  setQuality(quality: string): void {
    this.#quality = quality;
    this.#chooser.restart();
    this.#watch();
  }

  /** Nothing is received for a page that nobody sees; one that is seen again begins with the newest frame. */
  setSeen(seen: boolean): void {
    if (seen === this.#seen) return;
    this.#seen = seen;
    this.#chooser.restart();
    const p = this.#playback;
    if (p && !seen) {
      this.#played = p.playing;
      p.pause();
    } else if (p && this.#played) {
      p.play();
    } else if (!p) {
      for (const feed of this.#feeds.values()) feed.leave();
      if (seen) this.#watch();
    }
    if (this.#recording) this.#tellPlayback();
  }

  #enter(phase: Phase, detail: string): void {
    if (phase === this.#phase && detail === this.#detail) return;
    this.#phase = phase;
    this.#detail = detail;
    send({ type: "phase", phase, detail });
  }

  #failed(why: Error): void {
    if (why instanceof ConnectError) {
      this.#enter(why.failure, why.message);
    } else {
      this.#enter("lost", why.message);
    }
  }

  /** A new session is open; the one before goes on until this one is used. */
  #use(s: Session): void {
    const before = this.#session;
    if (before) {
      this.#reconnects++;
      this.#lost.cut += before.counters.streamsCut;
      this.#lost.refused += before.counters.streamsRefused;
      this.#lost.malformed += before.counters.malformed;
    }
    this.#session = s;
    this.#receipts = undefined;
    send({ type: "relay", implementation: s.implementation });
    void this.#followClock(s);
    if (this.start.session === undefined) {
      void this.#list(s);
      return;
    }
    if (this.start.receipts) void this.#openReceipts(s, this.start.session);
    void this.#followCatalog(s, this.start.session);
  }

  async #list(s: Session): Promise<void> {
    this.#enter("listing", "");
    try {
      await s.subscribeNamespace([ROOT], (list) => {
        const names = list.flatMap((ns) => (ns.length === 2 ? [ns[1]!] : [])).sort();
        send({ type: "sessions", sessions: names });
      });
    } catch (e) {
      if (!s.over) this.#enter("refused", e instanceof Error ? e.message : String(e));
    }
  }

  async #followClock(s: Session): Promise<void> {
    const sink: TrackSink = {
      maxObject: 0,
      object: () => {},
      datagram: (d) => {
        const stamp = parseStamp(d.payload);
        if (stamp !== undefined) this.#clock.observe(stamp, localTime());
      },
    };
    try {
      await s.subscribe(CLOCK_TRACK, sink, { priority: PRIORITY.clock });
    } catch {
      // A relay without a clock: frame delays are then on the local clock, and the error says so.
    }
  }

  async #openReceipts(s: Session, session: string): Promise<void> {
    try {
      const name = `receipts/web-${crypto.randomUUID().slice(0, 8)}`;
      this.#receipts = await s.publishDatagrams({ namespace: [ROOT, session], name });
    } catch {
      // The relay takes none; a viewer works without.
    }
  }

  /** Follows the catalog as long as the session lasts; a publisher may come, go and come again. */
  async #followCatalog(s: Session, session: string): Promise<void> {
    const track = { namespace: [ROOT, session], name: "catalog" };
    while (!s.over && this.#session === s) {
      const reader = new CatalogReader();
      const sink: TrackSink = {
        maxObject: MAX_CATALOG,
        object: (o) => void this.#takeCatalog(s, reader, o, sub),
      };
      let sub: Subscription | undefined;
      const patience = setTimeout(() => {
        if (this.#feeds.size === 0 && this.#session === s && !s.over && !this.#hadCatalog) this.#enter("waiting", "");
      }, PATIENCE);
      try {
        sub = await s.subscribe(track, sink, { join: true, priority: PRIORITY.catalog, rendezvousTimeout: RENDEZVOUS, filter: "largestObject" });
      } catch (e) {
        clearTimeout(patience);
        if (s.over) return;
        const absent = e instanceof RequestError && (e.code === RequestCode.DOES_NOT_EXIST || e.code === RequestCode.TIMEOUT);
        if (absent) this.#enter(this.#hadCatalog ? "ended" : "waiting", "");
        else this.#enter("refused", e instanceof Error ? e.message : String(e));
        await new Promise((resolve) => setTimeout(resolve, 1000));
        continue;
      }
      this.#surroundings.loops = sub.properties.replayed ?? false;
      send({ type: "replayed", replayed: this.#surroundings.loops });
      if (this.#surroundings.loops) void this.#followRecording(s, sub);
      else this.#offer(undefined);
      const why = await sub.done;
      clearTimeout(patience);
      if (s.over || this.#session !== s) return;
      this.#offer(undefined);
      this.#dropFeeds();
      const ended = why instanceof DoneError && (why.code === DoneCode.TRACK_ENDED || why.code === DoneCode.SUBSCRIPTION_ENDED);
      this.#enter("ended", ended ? "" : why.message);
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }

  async #takeCatalog(s: Session, reader: CatalogReader, o: ReceivedObject, sub: Subscription | undefined): Promise<void> {
    let catalog: Catalog | undefined;
    try {
      catalog = await readCatalogObject(reader, o, sub);
    } catch (e) {
      this.#enter("refused", e instanceof Error ? e.message : String(e));
      return;
    }
    if (!catalog || s.over || this.#session !== s) return;
    this.#hadCatalog = true;
    if (catalog.complete) {
      this.#offer(undefined);
      this.#dropFeeds();
      this.#enter("ended", "");
      return;
    }
    this.#catalog = catalog;
    this.#watch();
    if (catalog.hasPoses) void this.#followPoses(s);
    this.#enter(catalog.cameras.length > 0 ? "live" : "waiting", "");
  }

  /** The track of a camera that is to be received: that of the quality asked for, or what has been found to go well. */
  #choose(qualities: readonly CameraTrack[]): CameraTrack {
    const named = qualities.find((t) => t.quality === this.#quality);
    return named ?? qualities[Math.min(this.#automatic ? this.#chooser.level : 0, qualities.length - 1)]!;
  }

  get #names(): string[] {
    return [...new Set(this.#catalog?.qualities.flatMap((list) => list.map((t) => t.quality)))];
  }

  /** Whether the quality is chosen here: none is asked for, or one that there is not. */
  get #automatic(): boolean {
    return !this.#names.includes(this.#quality);
  }

  /** Makes the feeds those of the catalog. */
  #watch(): void {
    const s = this.#session;
    const catalog = this.#catalog;
    if (!s || !catalog) return;
    const cameras = catalog.qualities.map((list) => this.#choose(list));
    const wanted = new Map(cameras.map((c) => [c.camera, c]));
    let replaced = false;
    for (const [camera, feed] of [...this.#feeds]) {
      const c = wanted.get(camera);
      if (c && JSON.stringify(c) === JSON.stringify(feed.camera)) continue;
      this.#drop(feed);
      replaced = true;
    }
    send({ type: "cameras", cameras });
    send({ type: "qualities", names: this.#names, chosen: this.#automatic ? "auto" : this.#quality, received: cameras.map((c) => c.quality) });
    for (const [i, c] of cameras.entries()) {
      let feed = this.#feeds.get(c.camera);
      if (!feed) {
        feed = new Feed(c, this.start.decoders[i % this.start.decoders.length]!, this.#surroundings);
        this.#feeds.set(c.camera, feed);
      }
      if (feed.subscription?.session !== s || feed.subscription.ended) this.#follow(feed);
    }
    this.#playback?.setCameras(this.#timelines());
    if (replaced) this.#playback?.seek(this.#playback.position); // what is there ahead is of other tracks
  }

  #drop(feed: Feed): void {
    feed.close();
    this.#feeds.delete(feed.camera.camera);
    this.#counted.received += feed.sequence.received;
    this.#counted.lost += feed.sequence.lost;
    this.#counted.late += feed.sequence.late;
    this.#counted.declined += feed.sequence.declined;
    this.#skipped += feed.skipped;
  }

  #dropFeeds(): void {
    for (const feed of [...this.#feeds.values()]) this.#drop(feed);
    this.#catalog = undefined;
  }

  /** Receives a camera's frames as they are published, where there is use for them. */
  #follow(feed: Feed): void {
    const s = this.#session;
    if (s && !s.over && this.#seen && !this.#playback) void this.#followFrames(s, feed);
  }

  async #followFrames(s: Session, feed: Feed): Promise<void> {
    const run = ++feed.run;
    const { assembler, camera } = feed;
    const sink: TrackSink = {
      maxObject: maxFrame(camera),
      accept: (h) => assembler.wants(h.group),
      object: (o) => {
        if (o.status === "normal" && o.payload.length > 0) assembler.add(o.group, Number(o.subgroup), o.payload);
      },
      cut: (group, subgroup) => assembler.lost(group, subgroup === undefined ? 0 : Number(subgroup)),
      received: (bytes) => void (this.#bytes += bytes),
    };
    while (!s.over && this.#session === s && feed.run === run) {
      try {
        const sub = await s.subscribe({ namespace: [ROOT, this.start.session!], name: camera.track }, sink, {
          join: true,
          priority: PRIORITY.points,
          filter: "largestObject",
          ...(camera.deliveryTimeout > 0 && { subgroupDeliveryTimeout: camera.deliveryTimeout }),
          rendezvousTimeout: RENDEZVOUS,
        });
        if (feed.run !== run) {
          sub.cancel();
          return;
        }
        feed.follow(sub);
        await sub.done;
      } catch {
        // The catalog's subscription says what there is to say.
      }
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }

  /** Learns whether the session's replay offers its recording, as long as its catalog is subscribed to. */
  async #followRecording(s: Session, session: Subscription): Promise<void> {
    while (!session.ended) {
      const reader = new CatalogReader();
      const sink: TrackSink = {
        maxObject: MAX_CATALOG,
        object: (o) => {
          readCatalogObject(reader, o, undefined).then(
            (c) => c && !session.ended && this.#offer(c),
            () => {}, // it cannot be moved about in, and is watched as it comes
          );
        },
      };
      try {
        const sub = await s.subscribe({ namespace: this.#recordingNamespace, name: "catalog" }, sink, {
          join: true, priority: PRIORITY.catalog, filter: "largestObject",
        });
        await Promise.race([sub.done, session.done]);
        sub.cancel();
      } catch (e) {
        if (e instanceof RequestError && e.code === RequestCode.DOES_NOT_EXIST) return;
      }
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }

  get #recordingNamespace(): string[] {
    return [ROOT, this.start.session!, RECORDING];
  }

  #offer(recording: Catalog | undefined): void {
    this.#recording = recording;
    if (!recording) this.#watchLive();
    else this.#playback?.setCameras(this.#timelines());
    this.#tellPlayback();
  }

  /** Length of the recording, ms; 0 without one. */
  get #duration(): number {
    return Math.max(0, ...(this.#recording?.cameras.map((c) => (c.timeline ? c.duration : 0)) ?? []));
  }

  /** Where the recording has what the feeds receive. */
  #timelines(): Map<number, Timeline> {
    const found = new Map<number, Timeline>();
    for (const feed of this.#feeds.values()) {
      const past = this.#recorded(feed);
      if (past?.timeline) found.set(feed.camera.camera, past.timeline);
    }
    return found;
  }

  #recorded(feed: Feed): CameraTrack | undefined {
    return this.#recording?.qualities.flat().find((t) => t.track === feed.camera.track && t.camera === feed.camera.camera);
  }

  control(action: PlaybackAction): void {
    if (this.#duration === 0) return;
    if (action === "live") {
      this.#watchLive();
    } else {
      const place = typeof action === "object" ? action.seek : this.#place();
      if (!this.#playback) {
        // Watching goes on as it was: a seek plays, and only a pause stops.
        this.#watchRecording(place);
        if (action !== "pause") this.#playback!.play();
      } else if (action === "play") {
        this.#playback.play();
      } else if (action === "pause") {
        this.#playback.pause();
      } else {
        this.#playback.seek(place);
        for (const feed of this.#feeds.values()) feed.sequence.restart();
      }
    }
    this.#tellPlayback();
  }

  /** Where in the recording the picture is, ms. */
  #place(): number {
    if (this.#playback) return this.#playback.position;
    const feed = this.#feeds.values().next().value;
    const origin = this.#recording?.cameras[0]?.timeline;
    if (!feed || !origin || feed.captured === 0) return 0;
    return Math.max(0, Math.min(feed.captured - origin.wallclock, this.#duration));
  }

  /** Leaves the replay, which all see, for the recording. */
  #watchRecording(place: number): void {
    for (const feed of this.#feeds.values()) feed.leave();
    const ports: PlaybackPorts = {
      now: () => performance.now(),
      skip: (camera, objects) => this.#feeds.get(camera)?.skip(objects),
      show: (camera, objects) => this.#feeds.get(camera)?.show(objects),
      fetch: (camera, first, last, object, signal) => this.#fetch(camera, first, last, object, signal),
    };
    this.#playback = new Playback(this.#duration, ports);
    this.#playback.seek(place);
    this.#playback.setCameras(this.#timelines());
    this.#ticking = setInterval(() => this.#playback?.tick(), TICK);
  }

  async #fetch(
    camera: number, first: bigint, last: bigint, object: (group: bigint, payload: Uint8Array<ArrayBuffer>) => void, signal: AbortSignal,
  ): Promise<void> {
    const feed = this.#feeds.get(camera);
    if (!feed || !this.#session || this.#session.over) throw new Error("not connected");
    const sink: TrackSink = {
      maxObject: maxFrame(feed.camera),
      object: (o) => {
        if (o.status === "normal" && o.payload.length > 0) object(o.group, o.payload);
      },
      received: (bytes) => void (this.#bytes += bytes),
    };
    const track: TrackName = { namespace: this.#recordingNamespace, name: feed.camera.track };
    try {
      await this.#session.fetch(track, first, last, sink, {
        priority: PRIORITY.points, signal: AbortSignal.any([signal, AbortSignal.timeout(FETCH_TIMEOUT)]),
      });
    } catch (e) {
      throw Object.assign(new Error(String(e)), { invalidRange: e instanceof RequestError && e.code === RequestCode.INVALID_RANGE });
    }
  }

  #watchLive(): void {
    if (!this.#playback) return;
    this.#playback.stop();
    this.#playback = undefined;
    clearInterval(this.#ticking);
    for (const feed of this.#feeds.values()) {
      feed.restart();
      this.#follow(feed);
    }
  }

  #tellPlayback(): void {
    const p = this.#playback;
    send({
      type: "playback", duration: this.#duration, position: this.#place(), playing: p?.playing ?? true, live: !p, waiting: p?.waiting ?? false,
    });
  }

  #poses: Session | undefined;
  async #followPoses(s: Session): Promise<void> {
    if (this.#poses === s) return;
    this.#poses = s;
    const sink: TrackSink = {
      maxObject: MAX_CATALOG,
      object: (o) => {
        try {
          for (const e of parsePoses(o.payload)) send({ type: "pose", camera: e.camera, pose: e.pose });
        } catch {
          // A pose that cannot be read leaves the camera where it is.
        }
      },
    };
    try {
      const track = { namespace: [ROOT, this.start.session!], name: POSE_TRACK };
      const sub = await s.subscribe(track, sink, { join: true, priority: PRIORITY.catalog, filter: "largestObject" });
      await sub.done;
    } catch {
      // The catalog's poses stand.
    }
    if (this.#poses === s) this.#poses = undefined;
  }

  async #report(): Promise<void> {
    const s = this.#session;
    if (s && !s.over) {
      const stats = await (s.transport as { getStats?: () => Promise<{ minRtt?: number; smoothedRtt?: number }> }).getStats?.().catch(() => undefined);
      const request = Number.isFinite(s.requestTime) ? s.requestTime : 0;
      this.#clock.minRtt = Math.min(stats?.minRtt || Infinity, request || Infinity);
      if (!Number.isFinite(this.#clock.minRtt)) this.#clock.minRtt = 0;
      this.#clock.smoothedRtt = stats?.smoothedRtt ?? this.#clock.minRtt;
      this.#surroundings.rtt = this.#clock.smoothedRtt;
    }
    const c = s?.counters;
    const { received, lost, late, declined, skipped } = [...this.#feeds.values()].reduce(
      (n, f) => ({
        received: n.received + f.sequence.received, lost: n.lost + f.sequence.lost, late: n.late + f.sequence.late,
        declined: n.declined + f.sequence.declined, skipped: n.skipped + f.skipped,
      }),
      { ...this.#counted, skipped: this.#skipped },
    );
    this.#listen();
    if (!this.#playback) for (const f of this.#feeds.values()) f.look();
    if (this.#recording) this.#tellPlayback();
    if (this.#catalog && this.#automatic && !this.#playback) {
      const before = this.#chooser.level;
      const worst = Math.max(...this.#catalog.qualities.map((list) => list.length)) - 1;
      if (this.#chooser.update(localTime(), { frames: received + declined, undrawn: skipped + declined, lost }, worst) !== before) this.#watch();
    }
    send({
      type: "traffic", bytes: this.#bytes, arrived: [...this.#feeds.values()].map((f) => [f.camera.camera, f.sequence.received] as const),
      received, lost, late, declined, skipped, rtt: this.#surroundings.rtt, reconnects: this.#reconnects,
      cut: this.#lost.cut + (c?.streamsCut ?? 0), refused: this.#lost.refused + (c?.streamsRefused ?? 0),
      malformed: this.#lost.malformed + (c?.malformed ?? 0),
    });
    if (this.#clock.known) send({ type: "clock", offset: this.#clock.offset, error: this.#clock.error(localTime()) });
  }

  /** Tells a publisher that sends nothing from a picture that stands still. */
  #listen(): void {
    if (this.#phase !== "live" && this.#phase !== "silent") return;
    const now = localTime();
    let silent = this.#feeds.size > 0 && !this.#playback && this.#seen;
    for (const f of this.#feeds.values()) {
      const patience = Math.max(SILENCE, f.camera.framerate > 0 ? (SILENT_FRAMES * 1000) / f.camera.framerate : 0);
      if (now - f.arrived < patience) silent = false;
    }
    this.#enter(silent ? "silent" : "live", "");
  }
}

/** What the format allows a frame of a track, compressed badly, bytes. */
function maxFrame(t: CameraTrack): number {
  return 4096 + t.grid.width * t.grid.height + 20 * t.maxPoints;
}

async function readCatalogObject(reader: CatalogReader, o: ReceivedObject, sub: Subscription | undefined): Promise<Catalog | undefined> {
  if (o.status !== "normal") return undefined;
  const compression = o.properties.compression ?? sub?.properties.compression ?? 0;
  return reader.add(o.group, o.id, await decompress(o.payload, compression));
}

let viewer: Viewer | undefined;
addEventListener("message", (e: MessageEvent<ToNetwork>) => {
  const m = e.data;
  switch (m.type) {
    case "start":
      viewer = new Viewer(m);
      viewer.run();
      break;
    case "spent":
      viewer?.spent(m);
      break;
    case "playback":
      viewer?.control(m.action);
      break;
    case "quality":
      viewer?.setQuality(m.quality);
      break;
    case "seen":
      viewer?.setSeen(m.seen);
      break;
    case "stop":
      viewer?.stop();
  }
});
