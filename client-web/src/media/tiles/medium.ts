/** A session's 360° video. Chooses tiles and qualities, and subscribes to them. */
import type { ObjectHeader, ReceivedObject, Session, Subscription, TrackSink } from "../../moqt/index.ts";
import { timestampOf, VIDEO_CONFIG } from "../session/loc.ts";
import { MAX_CATALOG, type Catalog } from "../session/catalog.ts";
import { localTime } from "../session/clock.ts";
import type { Host, Medium, RecordedTrack, RecordingSource } from "../session/medium.ts";
import type { Part } from "../session/playback.ts";
import { DOCUMENT_PRIORITY } from "../session/subscribe.ts";
import { Train } from "./capacity.ts";
import { VideoPlayback, MAX_FRAME, type Choice } from "./playback.ts";
import { mediaTime, BASE, type Due, type FromTiles, type ToTiles, type ToVideo } from "./messages.ts";
import { BUDGET_PERCENTILE, Planner, type Gop, type Request } from "./planner.ts";
import { Grid, View, type Vec } from "./sphere.ts";
import { parseRates, readSphere, type Coding, type Rates, type Sphere, type TileTrack } from "./track.ts";

/** Rendezvous timeout: how long the relay waits for a publisher, ms. */
const RENDEZVOUS = 10_000;
const RETRY = 500;
const SILENCE = 3000;
/** Subscriber priorities (§7): the base sphere first, then the tiles by rank. */
const VIDEO_PRIORITY = 64;
const TILE_PRIORITY = 130;
const LAST_PRIORITY = 250;
/** Smallest priority change worth a REQUEST_UPDATE. */
const NEAR = 24;
/** Tiles are chosen this many ms plus one and a half round trips before their GoP starts. */
const AHEAD = 80;
/** Sampling points along each edge of the viewport. */
const SAMPLES = 12;
/** A missing tile that fills this share of the view is requested immediately. */
const IN_VIEW = 0.03;
/** Assumed capacity before any measurement, bytes per second. */
const FIRST_RATE = 250_000;
/** A GoP saturated the path if its last object is more than this many ms late. */
const LATE = 150;
/** Growth of an unmeasured rate while all data arrive in time. */
const GROWTH = 1.5;
/** A replay has looped if its timestamps go back by this many ms. */
const LOOP_GAP = 500;
/** Smallest change of the playout time worth a message, ms. */
const STEADY = 5;
/** Minimum size, in bytes, of a transfer used to measure the network. */
const MIN_MEASURED = 3000;

/** Subscription state of a tile. */
interface Following {
  readonly track: TileTrack;
  /** First requested group. */
  readonly from: bigint;
  priority: number;
  subscription: Subscription | undefined;
  ended: boolean;
}

/** Viewport to assume until the page reports one. */
const VIEW = { gaze: [0, 0, 1] as Vec, width: Math.PI / 2, height: Math.PI / 2 };

export class Tiles implements Medium {
  #sphere: Sphere | undefined;
  /** Parameters of the sphere known to the page, as JSON. */
  #shape: string | undefined;
  #session: Session | undefined;
  #port: MessagePort | undefined;
  #run = 0;
  #video: Subscription | undefined;
  #ratesTrack: Subscription | undefined;
  /** Set while a recording is played. */
  #playback: VideoPlayback | undefined;
  /** Counts seeks; frames of earlier runs are not shown. */
  #seeks = 0;
  #rates: Rates | undefined;
  #planner: Planner | undefined;
  unplayable: string | undefined;
  /** Codec of the catalog's video, and whether the browser is known to decode it. */
  #codec: string | undefined;
  #playable = false;
  /**
   * Maximum number of tiles shown at the same time: the GPU's limit, 0 until the page reports it, and
   * the decoders' limit.
   */
  #fit = 0;
  #decoders = Infinity;
  #view = VIEW;
  readonly #following = new Map<number, Following>();
  /** Subscriptions that end with the current group. */
  #leaving: Following[] = [];
  /** ID and first timestamp, in ms, of the base sphere's newest group. */
  #newest: { readonly group: bigint; readonly start: number } | undefined;
  #deciding: ReturnType<typeof setTimeout> | undefined;
  /** Minimum of local time minus timestamp, ms, which defines the clock of a replay. */
  #quickest = Infinity;
  #due: Due | undefined;
  #stamp = 0;
  #arrived = 0;
  /** Tile bytes received for the current GoP, and the delay of its last object in ms. */
  #came = 0;
  #late = 0;
  #train = new Train();
  readonly #counts = { messages: 0, complete: 0, cut: 0 };

  /**
   * `open` starts the decode worker and returns a port to it. `maxRate` limits the rate of tiles, in
   * bytes per second.
   */
  constructor(
    private readonly host: Host,
    private readonly open: () => MessagePort,
    private readonly maxRate: number,
    private readonly send: (m: FromTiles) => void,
  ) {}

  get present(): boolean {
    return this.#sphere !== undefined;
  }

  /** The timestamp currently due. */
  get captured(): number {
    return this.#due ? mediaTime(this.#due, localTime()) : 0;
  }

  take(m: ToTiles): void {
    if (m.type === "fit") {
      this.#fit = m.tiles;
    } else {
      this.#view = m;
      if (this.#due) this.#planner?.gaze.add(this.captured / 1000, m.gaze);
    }
    if (!this.#planner || !this.#due) return;
    if (this.#playback) this.#playback.turn();
    else this.#urgent();
  }

  prepare(catalog: Catalog): () => void {
    const read = readSphere(catalog);
    return () => {
      if (read?.video.codec !== this.#codec) {
        this.#codec = read?.video.codec;
        this.#playable = false;
        this.unplayable = undefined;
        if (read) void this.#check(read.video, catalog);
      }
      const sphere = this.unplayable === undefined ? read : undefined;
      // The catalog lists the tracks encoded now, so qualities may come and go on the same sphere.
      const shape = sphere && JSON.stringify({ ...sphere, tiles: sphere.tiles.length });
      const same = shape === this.#shape;
      this.#shape = shape;
      if (!same) {
        this.clear();
        this.#fit = 0;
      }
      this.#sphere = sphere;
      if (sphere) this.#port ??= this.#openPort();
      if (this.#port) this.#post({ type: "sphere", sphere, same });
      if (!same) this.send({ type: "sphere", sphere });
      if (sphere && sphere.columns > 0 && !this.#planner) {
        const view = new View(
          new Grid(sphere.columns, sphere.rows, sphere.width, sphere.height),
          this.#view.width,
          this.#view.height,
          SAMPLES,
        );
        this.#planner = new Planner(view, sphere.qualities, 0.1);
        this.#planner.capacity.guess(this.#limited(FIRST_RATE));
      }
    };
  }

  /** Checks whether the browser can decode the video. Nothing is fetched until that is known. */
  async #check(video: Coding, catalog: Catalog): Promise<void> {
    const why = await whyUnplayable(video);
    if (this.#codec !== video.codec) return; // the catalog changed
    this.unplayable = why;
    this.#playable = why === undefined;
    if (this.#playable) return this.follow();
    this.prepare(catalog)();
    this.host.settle();
  }

  #openPort(): MessagePort {
    const port = this.open();
    port.onmessage = ({ data }: MessageEvent<number>) => (this.#decoders = data);
    return port;
  }

  /** Number of tiles that can be decoded and shown at a time. */
  get #most(): number {
    return Math.min(this.#fit, this.#decoders);
  }

  /** Returns the first tiles of a plan, as many as can be decoded and shown. */
  #best(plan: readonly Request[]): Map<number, { readonly quality: number; readonly priority: number }> {
    const best = new Map<number, { readonly quality: number; readonly priority: number }>();
    for (const [rank, { tile, quality }] of plan.entries()) {
      if (best.has(tile) || best.size < this.#most)
        best.set(tile, { quality, priority: Math.min(LAST_PRIORITY, TILE_PRIORITY + 3 * rank) });
    }
    return best;
  }

  /** Applies the user's limit to a rate in bytes per second. */
  #limited(rate: number): number {
    return Math.min(rate, this.maxRate);
  }

  #post(m: ToVideo, transfer: Transferable[] = []): void {
    this.#port?.postMessage(m, transfer);
  }

  follow(): void {
    const { session } = this.host;
    if (!session || !this.host.live || !this.#sphere || !this.#playable) return;
    if (this.#session === session) return; // an existing loop resubscribes by itself
    this.leave();
    this.#session = session;
    void this.#followVideo(session, this.#sphere);
    if (this.#sphere.rates !== undefined) void this.#followRates(session, this.#sphere, this.#sphere.rates);
  }

  leave(): void {
    this.#run++;
    clearTimeout(this.#deciding);
    this.#video?.cancel();
    this.#ratesTrack?.cancel();
    if (this.#playback) {
      this.#playback.stop();
      this.#drop();
    }
    this.#video = this.#ratesTrack = this.#playback = undefined;
    for (const f of [...this.#following.values(), ...this.#leaving]) {
      f.ended = true; // even if its SUBSCRIBE is unanswered
      f.subscription?.cancel();
    }
    this.#following.clear();
    this.#leaving = [];
    this.#newest = undefined;
    this.#session = undefined;
    this.jump();
  }

  /** The page keeps showing the last picture, as the publisher may return. */
  clear(): void {
    this.leave();
    this.#sphere = this.#planner = this.#rates = undefined;
  }

  jump(): void {
    this.#quickest = Infinity;
    this.#due = undefined;
    this.#stamp = 0;
  }

  /** Returns no tracks, since the set of tracks changes with every GoP. */
  recordedTracks(): ReadonlyMap<string, RecordedTrack> {
    return new Map();
  }

  part(recording: Catalog, source: RecordingSource): Part | undefined {
    const sphere = readSphere(recording);
    if (
      !sphere?.timeline ||
      !this.#sphere ||
      !this.#playable ||
      sphere.columns !== this.#sphere.columns ||
      sphere.rows !== this.#sphere.rows
    )
      return undefined;
    const playback = new VideoPlayback(sphere, sphere.timeline, source, {
      choose: (start, rates) => {
        this.#playback = playback;
        return this.#choose(sphere, start, rates);
      },
      turn: (start, rates, fetched, paused) => {
        this.#playback = playback;
        return this.#turn(sphere, start, rates, fetched, paused);
      },
      take: (tile, quality, o) => this.#hand(tile, quality, o),
      drop: () => this.#drop(),
      due: (timestamp, moving) => this.#set(localTime() - timestamp, moving ? undefined : timestamp),
      carried: (bytes, ms) => {
        if (bytes > MIN_MEASURED) this.#planner?.capacity.add(this.#limited((1000 * bytes) / Math.max(1, ms)));
      },
      received: (bytes) => this.host.received(bytes),
      now: localTime,
    });
    return playback;
  }

  /** Discards frames that belong to another position. */
  #drop(): void {
    const m = { type: "drop", run: ++this.#seeks } as const;
    this.#post(m);
    this.send(m);
  }

  /** Chooses the tiles of a recorded GoP. */
  #choose(sphere: Sphere, start: number, rates: Rates | undefined): readonly Choice[] {
    const planner = this.#planner;
    if (!planner) return [];
    this.#updateView(planner);
    const plan = this.#best(planner.plan([gopOf(sphere, rates, start)], sphere.gop / 1000, 0));
    return [...plan].map(([tile, { quality }]) => ({ tile, quality }));
  }

  /** Chooses missing tiles in view; while paused, also tiles that could have a better quality. */
  #turn(
    sphere: Sphere,
    start: number,
    rates: Rates | undefined,
    fetched: Map<number, number>,
    paused: boolean,
  ): readonly Choice[] {
    const planner = this.#planner;
    if (!planner) return [];
    const best = (t: number) => sphere.tiles[t]!.at(-1)!.quality;
    const has = paused ? (t: number) => fetched.get(t) === best(t) : (t: number) => fetched.has(t);
    const missing = this.#missing(planner, sphere, has, paused ? 0 : IN_VIEW, fetched, (t) => fetched.delete(t));
    if (missing.length === 0 || paused) return missing.map((tile) => ({ tile, quality: best(tile) }));
    const plan = planner.plan([gopOf(sphere, rates, start)], sphere.gop / 1000, 0);
    return missing.map((tile) => ({
      tile,
      quality: plan.find((r) => r.tile === tile)?.quality ?? sphere.tiles[tile]![0]!.quality,
    }));
  }

  /**
   * Returns the tiles in view for which `has` returns false, largest first. Each fills more than the share `least` of
   * the view. Drops tiles out of view if more tiles would otherwise be needed than can be decoded and
   * shown.
   */
  #missing(
    planner: Planner,
    sphere: Sphere,
    has: (tile: number) => boolean,
    least: number,
    there: ReadonlyMap<number, unknown>,
    drop: (tile: number) => void,
  ): number[] {
    this.#updateView(planner);
    const share = new Float64Array(sphere.tiles.length);
    planner.view.expect([{ gaze: planner.gaze.last.gaze, p: 1 }], share);
    const missing = [...share.keys()]
      .filter((t) => share[t]! > least && sphere.tiles[t]!.length > 0 && !has(t))
      .sort((a, b) => share[b]! - share[a]!);
    const most = this.#most;
    const added = missing.filter((t) => !there.has(t)).length;
    if (added > 0 && there.size + added > most) {
      for (const t of [...there.keys()]) {
        if (share[t]! > 0) continue;
        drop(t);
        this.#post({ type: "release", tile: t });
      }
    }
    let room = most - there.size;
    return missing.filter((t) => there.has(t) || room-- > 0);
  }

  silent(now: number): boolean {
    return now - this.#arrived > SILENCE;
  }

  tick(): void {
    if (!this.#sphere) return;
    const asked = Array.from(
      { length: this.#sphere.columns * this.#sphere.rows },
      (_, t) => this.#following.get(t)?.track.quality ?? -1,
    );
    this.send({
      type: "tiles",
      asked,
      ...this.#counts,
      capacity: this.#planner?.capacity.percentile(BUDGET_PERCENTILE) ?? 0,
    });
  }

  async #followVideo(s: Session, sphere: Sphere): Promise<void> {
    const run = this.#run;
    this.#arrived = localTime();
    const sink = this.#sink(BASE, 0, undefined, (o, timestamp) => {
      if (o.id === 0n) this.#begins(o.group, timestamp / 1000);
    });
    while (!s.over && this.#run === run) {
      try {
        const sub = await s.subscribe(this.host.track(sphere.video.track), sink, {
          join: true,
          priority: VIDEO_PRIORITY,
          filter: "largestObject",
          rendezvousTimeout: RENDEZVOUS,
          subgroupDeliveryTimeout: Math.ceil(sphere.latency + sphere.gop),
        });
        if (this.#run !== run) return sub.cancel();
        this.#video = sub;
        await sub.done;
      } catch {
        // The catalog's subscription reports the error.
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY));
    }
  }

  async #followRates(s: Session, sphere: Sphere, name: string): Promise<void> {
    const run = this.#run;
    const sink: TrackSink = {
      maxObject: MAX_CATALOG,
      object: (o) => {
        if (o.status !== "normal") return;
        try {
          this.#rates = parseRates(o.payload, sphere);
        } catch {
          // Without rates, planning uses the tracks' bit rates.
        }
      },
    };
    try {
      const sub = await s.subscribe(this.host.track(name), sink, {
        join: true,
        priority: DOCUMENT_PRIORITY,
        filter: "largestObject",
      });
      if (this.#run !== run) return sub.cancel();
      this.#ratesTrack = sub;
    } catch {
      // See above.
    }
  }

  /**
   * Receives a track's frames. Drops duplicates of a tile that is both fetched and subscribed to.
   * `joined` is a group joined in progress, which is not used to measure the network.
   */
  #sink(
    tile: number,
    quality: number,
    joined = -1n,
    taken?: (o: ReceivedObject, timestamp: number) => void,
  ): TrackSink {
    let newest = -1n;
    let next = 0n;
    return {
      maxObject: MAX_FRAME,
      accept: (h: ObjectHeader) => h.group >= newest,
      object: (o) => {
        const now = (this.#arrived = localTime());
        if (o.status !== "normal" || o.payload.length === 0) return;
        if (o.group < newest || (o.group === newest && o.id < next)) return;
        if (o.group > newest) this.#counts.complete++;
        [newest, next] = [o.group, o.id + 1n];
        const timestamp = stampOf(o);
        this.#timed(tile, timestamp / 1000, now);
        this.#train.add(now, o.payload.length, o.group, tile !== BASE && o.id === 0n && o.group > joined);
        if (tile !== BASE) {
          this.#came += o.payload.length;
          this.#late = now - timestamp / 1000 - this.#quickest;
        }
        taken?.(o, timestamp);
        this.#hand(tile, quality, o);
      },
      cut: () => void this.#counts.cut++,
      received: (bytes) => this.host.received(bytes),
    };
  }

  /** Passes an object to the decode worker. */
  #hand(tile: number, quality: number, o: ReceivedObject): void {
    const timestamp = stampOf(o);
    const run = this.#seeks;
    const config = o.properties.other?.get(VIDEO_CONFIG);
    this.#post(
      {
        type: "chunk", run, tile, quality, group: o.group, id: Number(o.id), timestamp,
        config: config instanceof Uint8Array ? config : undefined, data: o.payload,
      },
      [o.payload.buffer],
    );
  }

  /** Updates the playout time from a frame with timestamp `timestamp`, ms. */
  #timed(tile: number, timestamp: number, now: number): void {
    if (tile === BASE && this.host.loops) {
      if (timestamp < this.#stamp - LOOP_GAP) {
        this.jump();
        this.#drop();
      }
      this.#stamp = timestamp;
    }
    // In a looping replay, late tiles may belong to the previous round.
    if (tile === BASE || !this.host.loops) this.#quickest = Math.min(this.#quickest, now - timestamp);
    // Frames of a replay were captured in the past, so the fastest arrival defines its clock.
    this.#set((this.host.loops ? this.#quickest : -this.host.offset) + this.#sphere!.latency, undefined);
  }

  #set(shift: number, still: number | undefined): void {
    if (!Number.isFinite(shift)) return;
    const d = this.#due;
    if (d && d.still === still && (still !== undefined || Math.abs(shift - d.shift) < STEADY)) return;
    this.#due = { type: "due", shift, still };
    this.#post(this.#due);
    this.send(this.#due);
  }

  /**
   * Called when a group of the base sphere starts. Measures the previous GoP and schedules the choice
   * for the next.
   */
  #begins(group: bigint, start: number): void {
    if (this.#newest && group <= this.#newest.group && group + 1000n > this.#newest.group) return;
    const before = this.#newest?.group ?? -1n;
    this.#newest = { group, start };
    const sphere = this.#sphere!;
    const planner = this.#planner;
    if (!planner) return;
    this.#measure(planner, before, sphere.gop);
    for (const f of this.#leaving) f.subscription?.cancel(); // their last group is complete
    this.#leaving = [];
    clearTimeout(this.#deciding);
    const at = start + sphere.gop + (this.host.loops ? this.#quickest : -this.host.offset);
    this.#deciding = setTimeout(
      () => this.#decide(group + 1n),
      Math.max(0, at - AHEAD - 1.5 * this.host.rtt - localTime()),
    );
  }

  /** Measures the network's rate from the arrival of a GoP. */
  #measure(planner: Planner, group: bigint, gop: number): void {
    const came = (1000 * this.#came) / gop;
    const carried = this.#train.rate(group);
    this.#came = 0;
    if (came === 0) return;
    const { capacity } = planner;
    if (carried > 0) capacity.add(this.#limited(Math.max(carried, came)));
    else if (this.#late > LATE) capacity.add(this.#limited((came * gop) / (gop + this.#late)));
    else {
      const rate = this.#limited(Math.max(GROWTH * came, capacity.mean));
      if (!capacity.guess(rate)) capacity.add(rate);
    }
  }

  /** Chooses the tiles of the next group. */
  #decide(group: bigint): void {
    const planner = this.#planner;
    const sphere = this.#sphere;
    if (!planner || !sphere || !this.#newest || !this.host.live) return;
    this.#updateView(planner);
    const plan = planner.plan([gopOf(sphere, this.#rates, this.#newest.start + sphere.gop)], sphere.gop / 1000, 0);
    const wanted = this.#best(plan);
    for (const [tile, f] of [...this.#following]) {
      const w = wanted.get(tile);
      if (w && w.quality === f.track.quality && !f.ended) {
        if (Math.abs(w.priority - f.priority) > NEAR) {
          f.priority = w.priority;
          this.#counts.messages++;
          f.subscription?.update({ priority: w.priority });
        }
        wanted.delete(tile);
        continue;
      }
      this.#end(tile, f, group - 1n);
    }
    for (const [tile, w] of wanted) this.#begin(tile, w.quality, w.priority, group);
  }

  /** Requests missing tiles immediately after the view turned. */
  #urgent(): void {
    const planner = this.#planner;
    const sphere = this.#sphere;
    if (!planner || !sphere || !this.#newest || !this.host.live) return;
    const following = this.#following;
    const missing = this.#missing(planner, sphere, (t) => following.has(t), IN_VIEW, following, (t) => {
      this.#end(t, following.get(t)!, -1n);
    });
    if (missing.length === 0) return;
    if (following.size + this.#leaving.length + missing.length > this.#most) {
      for (const f of this.#leaving.splice(0)) {
        f.subscription?.cancel();
        if (!following.has(f.track.tile)) this.#post({ type: "release", tile: f.track.tile });
      }
    }
    const have = sphere.tiles.map((_, t) => this.#following.get(t)?.track.quality ?? -1);
    const plan = planner.plan([gopOf(sphere, this.#rates, this.#newest.start, have)], sphere.gop / 1000, 0);
    for (const tile of missing) {
      const quality = plan.find((r) => r.tile === tile)?.quality ?? sphere.tiles[tile]![0]!.quality;
      this.#begin(tile, quality, TILE_PRIORITY, this.#newest.group, true);
    }
  }

  /** Sets the planner's viewport to the page's. */
  #updateView(planner: Planner): void {
    const { width, height } = this.#view;
    if (Math.abs(planner.view.width - width) + Math.abs(planner.view.height - height) > 0.02) {
      planner.view = new View(planner.view.grid, width, height, SAMPLES);
    }
    planner.latency = this.host.rtt / 1000 + 0.1;
  }

  /** Subscribes to a tile from a group on. With `atOnce`, also fetches the group's objects already published. */
  #begin(tile: number, quality: number, priority: number, from: bigint, atOnce = false): void {
    const session = this.#session;
    const sphere = this.#sphere!;
    const track = sphere.tiles[tile]!.find((t) => t.quality === quality) ?? sphere.tiles[tile]![0];
    if (!session || !track) return;
    const f: Following = { track, from, priority, subscription: undefined, ended: false };
    this.#following.set(tile, f);
    this.#counts.messages++;
    session
      .subscribe(this.host.track(track.track), this.#sink(tile, track.quality, atOnce ? from : undefined), {
        priority,
        subgroupDeliveryTimeout: Math.ceil(sphere.latency),
        ...(atOnce ? { filter: "largestObject", join: true } : { start: from }),
      })
      .then(
        (sub) => {
          f.subscription = sub;
          if (f.ended) sub.cancel();
          void sub.done.then(() => this.#gone(tile, f));
        },
        () => this.#gone(tile, f),
      );
  }

  #gone(tile: number, f: Following): void {
    f.ended = true;
    if (this.#following.get(tile) === f) this.#following.delete(tile);
  }

  /** Ends a tile's subscription after group `last`. */
  #end(tile: number, f: Following, last: bigint): void {
    this.#following.delete(tile);
    this.#counts.messages++;
    if (!f.subscription || f.from > last) {
      f.ended = true;
      f.subscription?.cancel();
      return;
    }
    f.subscription.update({ start: f.from, end: last });
    this.#leaving.push(f);
  }
}

/** A sentence that says why the browser cannot decode a video; undefined if it can. */
async function whyUnplayable({ codec, width, height }: Coding): Promise<string | undefined> {
  if (typeof VideoDecoder === "undefined") return "This browser has no WebCodecs (VideoDecoder), which 360° video needs.";
  const config = { codec, codedWidth: width, codedHeight: height };
  const supported = await VideoDecoder.isConfigSupported(config).then((s) => s.supported === true, () => false);
  return supported ? undefined : `This browser does not decode the session's video (${codec}, ${width}×${height}).`;
}

/** Timestamp of a frame, UNIX µs. */
const stampOf = (o: ReceivedObject): number => Number(timestampOf(o.properties) ?? 0n);

/** Planner input for the GoP that starts at timestamp `start`, ms. */
function gopOf(s: Sphere, rates: Rates | undefined, start: number, have?: readonly number[]): Gop {
  const r = rates ?? nominal(s);
  const listed = (tile: number, quality: number) => s.tiles[tile]!.some((t) => t.quality === quality);
  // Offer only tiles that the catalog lists, even if the rates include others.
  const bytes = r.bytes.map((b, i) => (listed(Math.floor(i / s.qualities), i % s.qualities) ? b : 0));
  return {
    start: start / 1000,
    duration: s.gop / 1000,
    miss: r.missing,
    bytes,
    distortion: r.distortion,
    ...(have && { have }),
  };
}

/** Stands in for rates until they arrive: the tracks' bit rates and typical distortions. */
function nominal(s: Sphere): Rates {
  const bytes: number[] = [];
  const distortion: number[] = [];
  for (const list of s.tiles) {
    for (let q = 0; q < s.qualities; q++) {
      const t = list.find((x) => x.quality === q);
      bytes.push(t ? ((t.bitrate || 300_000) / 8) * (s.gop / 1000) : 0);
      distortion.push(60 / 2 ** q);
    }
  }
  return { bytes, distortion, missing: s.tiles.map(() => 150) };
}
