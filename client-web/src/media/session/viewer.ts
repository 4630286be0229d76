/**
 * A viewer's side of a session, with connection, clock, catalog and recording. Each medium receives
 * its own tracks.
 */
import {
  ConnectError, DoneCode, DoneError, hasQUIC, keep, RequestCode, RequestError, SessionCode, SessionError,
  type DatagramTrack, type Session, type Subscription, type TrackName, type TrackSink,
} from "../../moqt/index.ts";
import type { Catalog } from "./catalog.ts";
import { Encryption, NO_KEY, parseKeys } from "./encryption.ts";
import { describe, findForeign, listTracks } from "./foreign.ts";
import { ClockEstimator, CLOCK_TRACK, localTime, parseStamp } from "./clock.ts";
import type { Host, Medium } from "./medium.ts";
import type { FromSession, Phase, PlaybackAction, WatchOptions } from "./messages.ts";
import { encodeReceipt } from "./receipt.ts";
import { Recording } from "./recording.ts";
import { subscribeCatalog } from "./subscribe.ts";

const ROOT = "holocast";
/** Property type that marks the tracks of a replay (docs/spec/replay.md). */
const REPLAYED_PROPERTY = 0x68637270;
/** Rendezvous timeout: how long the relay waits for a publisher, ms. */
export const RENDEZVOUS = 10_000;
const REPORT_INTERVAL = 250;
/** Time without a catalog, ms, after which the page reports that nothing is published. */
const CATALOG_WAIT = 1500;
/** Time, ms, for media to resume after the page is shown again. */
const RESUME = 3000;
/** Subscriber priority (§7) of the clock track, the highest. */
const CLOCK_PRIORITY = 0;

export class Viewer implements Host {
  session: Session | undefined;
  loops = false;
  rtt = 0;
  readonly #clock = new ClockEstimator();
  readonly #stop = new AbortController();
  readonly #media: readonly Medium[];
  readonly #recording: Recording;
  #receipts: DatagramTrack | undefined;
  #phase: Phase | undefined;
  #detail = "";
  #hadCatalog = false;
  /** Names of the catalog's tracks, to report if no medium plays them. */
  #others = "";
  #seen = true;
  #seenSince = 0;
  #bytes = 0;
  #reconnects = 0;
  readonly #lost = { cut: 0, refused: 0, malformed: 0 };
  /** Set if the link has keys. */
  #encryption: Encryption | undefined;

  constructor(
    private readonly watched: WatchOptions,
    media: (host: Host) => readonly Medium[],
    private readonly send: (m: FromSession) => void,
  ) {
    this.#media = media(this);
    this.#recording = new Recording(this, this.#media, send);
  }

  run(): void {
    this.#enter("connecting", "");
    setInterval(() => void this.#report(), REPORT_INTERVAL);
    const { relay, certificate, token, transport, keys, session } = this.watched;
    if (keys !== undefined && session !== undefined) {
      try {
        if (!crypto.subtle) throw new Error("Browsers decrypt only on pages over https. Open the link with https://.");
        this.#encryption = new Encryption([ROOT, session], parseKeys(keys), (why) => {
          this.#hadCatalog = true;
          this.#enter("encrypted", why);
        });
      } catch (e) {
        this.#enter("encrypted", reason(e));
        return;
      }
    }
    void keep(
      {
        url: relay,
        transport,
        ...(certificate !== undefined && { pinned: certificate }),
        ...(token !== undefined && { token }),
        ...(this.#encryption && { opener: this.#encryption }),
        use: (s) => this.#use(s),
        failed: (why) => {
          if (why instanceof ConnectError) this.#enter(why.failure, why.message);
          else this.#enter(why instanceof SessionError && UNAUTHORIZED.has(why.code) ? "refused" : "lost", reason(why));
        },
      },
      this.#stop.signal,
    );
  }

  stop(): void {
    this.#stop.abort();
  }

  control(action: PlaybackAction): void {
    this.#recording.control(action);
  }

  /** A hidden page receives nothing. When shown again, it starts with the newest frame. */
  setSeen(seen: boolean): void {
    if (seen === this.#seen) return;
    this.#seen = seen;
    this.#seenSince = localTime();
    if (this.#recording.watched) this.#recording.setSeen(seen);
    else if (seen) for (const m of this.#media) m.follow();
    else for (const m of this.#media) m.leave();
  }

  get live(): boolean {
    return this.session !== undefined && !this.session.over && this.#seen && !this.#recording.watched;
  }

  get offset(): number {
    return this.#clock.offset;
  }

  track(name: string): TrackName {
    return { namespace: [ROOT, this.watched.session!], name };
  }

  received(bytes: number): void {
    this.#bytes += bytes;
  }

  shown(camera: number, sequence: number, delay: number): void {
    if (!this.#recording.watched) this.#receipts?.send(encodeReceipt(camera, sequence, delay));
  }

  changed(): void {
    this.#recording.tracksChanged();
  }

  #enter(phase: Phase, detail: string): void {
    if (phase === this.#phase && detail === this.#detail) return;
    this.#phase = phase;
    this.#detail = detail;
    this.send({ type: "phase", phase, detail });
  }

  /** A new session opened. It replaces the previous one, which still receives media until it closes. */
  #use(s: Session): void {
    const before = this.session;
    if (before) {
      this.#reconnects++;
      this.#lost.cut += before.counters.streamsCut;
      this.#lost.refused += before.counters.streamsRefused;
      this.#lost.malformed += before.counters.malformed;
    }
    this.session = s;
    this.#receipts = undefined;
    const choice = this.watched.transport;
    const why = choice === "tcp" ? "link" : hasQUIC() ? "network" : "browser";
    this.send({ type: "relay", implementation: s.implementation, tcp: s.tcp ? why : undefined });
    void this.#followClock(s);
    if (this.watched.session === undefined) {
      void this.#list(s);
      return;
    }
    if (this.watched.receipts) void this.#openReceipts(s);
    void this.#followCatalog(s);
  }

  /** False once another session has replaced s. */
  #current(s: Session): boolean {
    return this.session === s && !s.over;
  }

  async #list(s: Session): Promise<void> {
    this.#enter("listing", "");
    try {
      await s.subscribeNamespace([ROOT], (list) => {
        if (!this.#current(s)) return;
        const names = list.flatMap((ns) => (ns.length === 2 ? [ns[1]!] : [])).sort();
        this.send({ type: "sessions", sessions: names });
      });
    } catch (e) {
      if (this.#current(s)) this.#enter("refused", reason(e));
    }
  }

  async #followClock(s: Session): Promise<void> {
    const sink: TrackSink = {
      maxObject: 0,
      object: () => {},
      datagram: (d) => {
        const stamp = parseStamp(d.payload);
        if (stamp !== undefined && this.#current(s)) this.#clock.observe(stamp, localTime());
      },
    };
    try {
      await s.subscribe(CLOCK_TRACK, sink, { priority: CLOCK_PRIORITY });
    } catch {
      // Without the relay's clock, frame delays are measured with the local clock and their error is unknown.
    }
  }

  async #openReceipts(s: Session): Promise<void> {
    try {
      // randomUUID is missing on pages over http.
      const name = crypto.getRandomValues(new Uint32Array(1))[0]!.toString(16).padStart(8, "0");
      const receipts = await s.publishDatagrams(this.track(`receipts/web-${name}`));
      if (this.#current(s)) this.#receipts = receipts;
    } catch {
      // Receipts are optional, as the relay may refuse them.
    }
  }

  /** Follows the catalog while the session lasts. Publishers may come and go. */
  async #followCatalog(s: Session): Promise<void> {
    while (this.#current(s)) {
      let sub: Subscription | undefined;
      const timer = setTimeout(() => {
        // If the catalog was refused, keep its error message.
        const said = this.#phase === "refused" || this.#phase === "foreign" || this.#phase === "encrypted";
        if (this.#current(s) && !this.#hadCatalog && !said) this.#enter("waiting", "");
      }, CATALOG_WAIT);
      try {
        sub = await subscribeCatalog(s, this.track("catalog"), { rendezvousTimeout: RENDEZVOUS }, (c) =>
          this.#takeCatalog(s, c),
        );
      } catch (e) {
        clearTimeout(timer);
        if (!this.#current(s)) return;
        const absent =
          e instanceof RequestError && (e.code === RequestCode.DOES_NOT_EXIST || e.code === RequestCode.TIMEOUT);
        if (absent && !this.#hadCatalog) await this.#lookFurther(s);
        else if (absent) this.#enter("ended", "");
        else this.#enter("refused", reason(e));
        // This is final, since authorization cannot change within a session.
        if (e instanceof RequestError && e.code === RequestCode.UNAUTHORIZED) return;
        await new Promise((resolve) => setTimeout(resolve, 1000));
        continue;
      }
      if (!this.#current(s)) return;
      const replayed = sub.properties.other?.get(REPLAYED_PROPERTY);
      this.loops = replayed !== undefined && replayed !== 0n;
      this.send({ type: "replayed", replayed: this.loops });
      if (this.loops) void this.#recording.follow(sub);
      else this.#recording.offer(undefined);
      const why = await sub.done;
      clearTimeout(timer);
      if (!this.#current(s)) return;
      this.#forget();
      const ended =
        why instanceof DoneError && (why.code === DoneCode.TRACK_ENDED || why.code === DoneCode.SUBSCRIPTION_ENDED);
      this.#enter("ended", ended ? "" : why.message);
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }

  /** Looks for another program's catalog, since ours is missing. */
  async #lookFurther(s: Session): Promise<void> {
    const foreign = await findForeign(s, (name) => this.track(name));
    if (this.#current(s)) this.#enter(foreign === undefined ? "waiting" : "foreign", foreign ?? "");
  }

  #forget(): void {
    this.#recording.offer(undefined);
    for (const m of this.#media) m.clear();
  }

  #takeCatalog(s: Session, catalog: Catalog | Error): void {
    if (!this.#current(s)) return;
    try {
      if (catalog instanceof Error) throw catalog;
      if (catalog.encrypted) {
        this.#hadCatalog = true;
        this.#enter("encrypted", NO_KEY);
        return;
      }
      if (catalog.complete) {
        this.#hadCatalog = true;
        this.#forget();
        this.#enter("ended", "");
        return;
      }
      this.#others = listTracks(catalog);
      const effects = this.#media.map((m) => m.prepare(catalog));
      this.#hadCatalog = true;
      for (const take of effects) take();
    } catch (e) {
      this.#enter("refused", reason(e));
      return;
    }
    for (const m of this.#media) m.follow();
    this.settle();
  }

  settle(): void {
    const why = this.#media.find((m) => m.unplayable !== undefined)?.unplayable;
    if (this.#media.some((m) => m.present && (why === undefined || !m.accompanies))) this.#enter("live", why ?? "");
    else if (why !== undefined) this.#enter("unplayable", why);
    else if (this.#others === "") this.#enter("waiting", "");
    else this.#enter("foreign", describe("catalog", this.#others));
  }

  async #report(): Promise<void> {
    const s = this.session;
    if (s && !s.over) {
      const stats = await (s.transport as { getStats?: () => Promise<{ minRtt?: number; smoothedRtt?: number }> })
        .getStats?.()
        .catch(() => undefined);
      const request = Number.isFinite(s.requestTime) ? s.requestTime : 0;
      this.#clock.minRtt = Math.min(stats?.minRtt || Infinity, request || Infinity);
      if (!Number.isFinite(this.#clock.minRtt)) this.#clock.minRtt = 0;
      this.#clock.smoothedRtt = stats?.smoothedRtt ?? this.#clock.minRtt;
      this.rtt = this.#clock.smoothedRtt;
    }
    const now = localTime();
    this.#listen(now);
    for (const m of this.#media) m.tick(now);
    if (this.#recording.offered) this.#recording.report();
    const c = s?.counters;
    this.send({
      type: "traffic",
      bytes: this.#bytes,
      rtt: this.rtt,
      reconnects: this.#reconnects,
      cut: this.#lost.cut + (c?.streamsCut ?? 0),
      refused: this.#lost.refused + (c?.streamsRefused ?? 0),
      malformed: this.#lost.malformed + (c?.malformed ?? 0),
      encryption: this.#encryption?.counters,
    });
    if (this.#clock.known) this.send({ type: "clock", offset: this.#clock.offset, error: this.#clock.error(now) });
  }

  /** Detects a publisher that has stopped sending. */
  #listen(now: number): void {
    if (this.#phase !== "live" && this.#phase !== "silent" && this.#phase !== "encrypted") return;
    const present = this.#media.filter((m) => m.present);
    const expected = this.#seen && now - this.#seenSince > RESUME && !this.#recording.watched;
    const silent = expected && present.length > 0 && present.every((m) => m.silent(now));
    const missing = this.#encryption?.missing;
    if (silent) this.#enter(missing === undefined ? "silent" : "encrypted", missing ?? "");
    else if (this.#phase !== "live" && present.length > 0) this.settle();
  }
}

/** Session codes that mean missing authorization. */
const UNAUTHORIZED: ReadonlySet<number> = new Set([
  SessionCode.UNAUTHORIZED,
  SessionCode.MALFORMED_AUTH_TOKEN,
  SessionCode.EXPIRED_AUTH_TOKEN,
]);

/** Error text for the page. */
function reason(e: unknown): string {
  const unauthorized =
    e instanceof SessionError
      ? UNAUTHORIZED.has(e.code)
      : e instanceof RequestError && e.code === RequestCode.UNAUTHORIZED;
  if (unauthorized) return `${(e as Error).message}. Ask for a link with a token that is valid for this session.`;
  return e instanceof Error ? e.message : String(e);
}
