/** The network's side of a viewer: a session at a relay, its catalog, clock, frames and receipts. */
import {
  ConnectError, DoneCode, DoneError, keep, RequestCode, RequestError,
  type DatagramTrack, type ReceivedObject, type Session, type Subscription, type TrackSink,
} from "../moqt/index.ts";
import { HEADER_LENGTH } from "../decode/header.ts";
import { Assembler } from "./assembler.ts";
import { decompress, MAX_CATALOG, parseCatalog, parsePoses, POSE_TRACK, type CameraTrack, type Catalog } from "./catalog.ts";
import { ClockEstimator, CLOCK_TRACK, localTime, parseStamp } from "./clock.ts";
import type { Decoded, FromNetwork, Phase, Start, ToDecoder, ToNetwork } from "./protocol.ts";
import { encodeReceipt } from "./receipt.ts";
import { Sequence } from "./sequence.ts";

const ROOT = "holocast";
const RENDEZVOUS = 10_000;
const REPORT_INTERVAL = 250;
/** After so many ms without a catalog a person is told that there is nothing yet. */
const PATIENCE = 1500;
/** Subscriber priorities (§7): time before the catalog before frames. */
const PRIORITY = { clock: 0, catalog: 16, points: 128 } as const;

const send = (m: FromNetwork): void => postMessage(m);

/** A camera's frames on their way to its decoder: one being decoded, the newest waiting. */
class Feed {
  readonly assembler: Assembler;
  readonly sequence = new Sequence();
  subscription: Subscription | undefined;
  #busy = false;
  #next: Extract<ToDecoder, { type: "frame" }> | undefined;

  constructor(
    readonly camera: CameraTrack,
    readonly port: MessagePort,
    private readonly skipped: () => void,
  ) {
    this.assembler = new Assembler(camera.descriptions, (f) => {
      const object = f.objects[0]!;
      if (object.length >= HEADER_LENGTH) this.sequence.add(new DataView(object.buffer).getUint32(8, true));
      const frame = { type: "frame" as const, camera: camera.camera, objects: f.objects, arrived: localTime() };
      if (this.#next) this.skipped();
      if (this.#busy) this.#next = frame;
      else this.#decode(frame);
    });
    this.#post({ type: "setup", camera });
  }

  #post(m: ToDecoder, transfer: Transferable[] = []): void {
    this.port.postMessage(m, transfer);
  }

  #decode(f: Extract<ToDecoder, { type: "frame" }>): void {
    this.#busy = true;
    this.#post(f, f.objects.map((o) => o.buffer));
  }

  /** The decoder is ready for more. */
  decoded(): void {
    this.#busy = false;
    const next = this.#next;
    this.#next = undefined;
    if (next) this.#decode(next);
  }

  close(): void {
    this.subscription?.cancel();
    this.#post({ type: "remove", camera: this.camera.camera });
  }
}

class Viewer {
  readonly #clock = new ClockEstimator();
  readonly #feeds = new Map<number, Feed>();
  readonly #stop = new AbortController();
  #session: Session | undefined;
  #receipts: DatagramTrack | undefined;
  #phase: Phase | undefined;
  #detail = "";
  #hadCatalog = false;
  #bytes = 0;
  #skipped = 0;
  #reconnects = 0;
  readonly #lost = { cut: 0, refused: 0, malformed: 0 };
  readonly #counted = { received: 0, lost: 0, late: 0 }; // of feeds that are gone
  #rtt = 0;

  constructor(private readonly start: Start) {
    start.decoders.forEach((port) => {
      port.onmessage = (e: MessageEvent<Decoded>) => this.#feeds.get(e.data.camera)?.decoded();
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

  shown(camera: number, sequence: number, delay: number): void {
    this.#receipts?.send(encodeReceipt(camera, sequence, delay));
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
      const sink: TrackSink = {
        maxObject: MAX_CATALOG,
        object: (o) => void this.#takeCatalog(s, o, sub),
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
      const why = await sub.done;
      clearTimeout(patience);
      if (s.over || this.#session !== s) return;
      this.#dropFeeds();
      const ended = why instanceof DoneError && (why.code === DoneCode.TRACK_ENDED || why.code === DoneCode.SUBSCRIPTION_ENDED);
      this.#enter("ended", ended ? "" : why.message);
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }

  async #takeCatalog(s: Session, o: ReceivedObject, sub: Subscription | undefined): Promise<void> {
    if (o.status !== "normal" || o.id !== 0n) return; // deltas are not applied; the next group has it all
    let catalog: Catalog;
    try {
      const compression = o.properties.compression ?? sub?.properties.compression ?? 0;
      catalog = parseCatalog(await decompress(o.payload, compression));
    } catch (e) {
      this.#enter("refused", e instanceof Error ? e.message : String(e));
      return;
    }
    if (s.over || this.#session !== s) return;
    this.#hadCatalog = true;
    if (catalog.complete) {
      this.#dropFeeds();
      this.#enter("ended", "");
      return;
    }
    this.#watch(s, catalog);
  }

  /** Makes the feeds those of the catalog. */
  #watch(s: Session, catalog: Catalog): void {
    const wanted = new Map(catalog.cameras.map((c) => [c.camera, c]));
    for (const [camera, feed] of [...this.#feeds]) {
      const c = wanted.get(camera);
      if (c && JSON.stringify(c) === JSON.stringify(feed.camera)) continue;
      this.#drop(feed);
    }
    send({ type: "cameras", cameras: catalog.cameras });
    for (const c of catalog.cameras) {
      let feed = this.#feeds.get(c.camera);
      if (!feed) {
        const port = this.start.decoders[this.#feeds.size % this.start.decoders.length]!;
        feed = new Feed(c, port, () => void this.#skipped++);
        this.#feeds.set(c.camera, feed);
      }
      if (feed.subscription?.session !== s || feed.subscription.ended) void this.#followFrames(s, feed);
    }
    if (catalog.hasPoses) void this.#followPoses(s);
    this.#enter(catalog.cameras.length > 0 ? "live" : "waiting", "");
  }

  #drop(feed: Feed): void {
    feed.close();
    this.#feeds.delete(feed.camera.camera);
    this.#counted.received += feed.sequence.received;
    this.#counted.lost += feed.sequence.lost;
    this.#counted.late += feed.sequence.late;
  }

  #dropFeeds(): void {
    for (const feed of [...this.#feeds.values()]) this.#drop(feed);
  }

  async #followFrames(s: Session, feed: Feed): Promise<void> {
    const { assembler, camera } = feed;
    const sink: TrackSink = {
      // What the format allows a frame of so many points, compressed badly.
      maxObject: 4096 + camera.grid.width * camera.grid.height + 20 * camera.maxPoints,
      accept: (h) => assembler.wants(h.group),
      object: (o) => {
        if (o.status === "normal" && o.payload.length > 0) assembler.add(o.group, Number(o.subgroup), o.payload);
      },
      cut: (group, subgroup) => assembler.lost(group, subgroup === undefined ? 0 : Number(subgroup)),
      received: (bytes) => void (this.#bytes += bytes),
    };
    while (!s.over && this.#session === s && this.#feeds.get(camera.camera) === feed) {
      try {
        feed.subscription = await s.subscribe({ namespace: [ROOT, this.start.session!], name: camera.track }, sink, {
          join: true,
          priority: PRIORITY.points,
          filter: "largestObject",
          ...(camera.deliveryTimeout > 0 && { subgroupDeliveryTimeout: camera.deliveryTimeout }),
          rendezvousTimeout: RENDEZVOUS,
        });
        await feed.subscription.done;
      } catch {
        // The catalog's subscription says what there is to say.
      }
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
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
      this.#rtt = this.#clock.smoothedRtt;
    }
    const c = s?.counters;
    const { received, lost, late } = [...this.#feeds.values()].reduce(
      (n, f) => ({ received: n.received + f.sequence.received, lost: n.lost + f.sequence.lost, late: n.late + f.sequence.late }),
      this.#counted,
    );
    send({
      type: "traffic", bytes: this.#bytes, received, lost, late, skipped: this.#skipped, rtt: this.#rtt, reconnects: this.#reconnects,
      cut: this.#lost.cut + (c?.streamsCut ?? 0), refused: this.#lost.refused + (c?.streamsRefused ?? 0),
      malformed: this.#lost.malformed + (c?.malformed ?? 0),
    });
    if (this.#clock.known) send({ type: "clock", offset: this.#clock.offset, error: this.#clock.error(localTime()) });
  }
}

let viewer: Viewer | undefined;
addEventListener("message", (e: MessageEvent<ToNetwork>) => {
  const m = e.data;
  switch (m.type) {
    case "start":
      viewer = new Viewer(m);
      viewer.run();
      break;
    case "shown":
      viewer?.shown(m.camera, m.sequence, m.delay);
      break;
    case "stop":
      viewer?.stop();
  }
});
