/**
 * The subscriber side of a MOQT session (draft-ietf-moq-transport-18 to -22) over WebTransport or a
 * WebSocket.
 * Independent of any media format. Every length is checked before memory is allocated.
 */
import { Reader, ShortError } from "./bytes.ts";
import {
  DoneCode, DoneError, MalformedTrackError, RequestCode, RequestError, SessionCode, SessionError, StreamCode,
  violation, WireError,
} from "./codes.ts";
import {
  encodeDatagram, encodePadding, FetchParser, parseDatagram, readStreamHeader, SubgroupParser,
  type Datagram, type ObjectHeader, type ObjectSink, type ObjectStatus, type StreamHeader,
} from "./data.ts";
import {
  encodeFetch,
  encodeJoiningFetch,
  encodePublish,
  encodePublishDone,
  encodeRequestError,
  encodeRequestOk,
  encodeSetup,
  encodeSubscribe,
  encodeSubscribeNamespace,
  encodeUpdate,
  MAX_MESSAGE,
  protocolOf,
  readMessage,
  trackKey,
  UnknownMandatoryError,
  versionOf,
  versions,
  type Location,
  type Message,
  type Namespace,
  type ObjectRange,
  type Properties,
  type SubscribeOptions,
  type SubscriptionUpdate,
  type TrackName,
  type Version,
} from "./message.ts";
import { MAX_SEALING, type ObjectOpener, type OpenedObject, type Opener } from "./opener.ts";
import { QMuxSocket, StreamReset, type Bidirectional, type Transport } from "./qmux.ts";

/** Silence of the peer after which a session sends padding, ms. */
const KEEP_ALIVE = 1000;

/** ALPN identifiers of the supported drafts (§3.1), preferred first. */
export const PROTOCOLS: readonly string[] = versions.map(protocolOf);

const SETUP_TIMEOUT = 10_000;
const REQUEST_TIMEOUT = 10_000;
/** How long a subgroup waits for the SUBSCRIBE_OK that defines its track alias, ms. */
const ALIAS_TIMEOUT = 2_000;
const MAX_EARLY = 256;
const MAX_NAMESPACES = 4096;
/**
 * Length of the receive queue for datagrams. A frame may arrive as a burst of hundreds; browsers
 * default to one.
 */
const DATAGRAM_QUEUE = 2048;

/** A complete object. */
export interface ReceivedObject {
  readonly group: bigint;
  readonly subgroup: bigint;
  readonly id: bigint;
  readonly status: ObjectStatus;
  readonly properties: Properties;
  readonly payload: Uint8Array<ArrayBuffer>;
  /** True for a fetched object that was published as a datagram. */
  readonly datagram?: boolean | undefined;
}

/** Receives the objects of a track. */
export interface TrackSink {
  /** Maximum payload size in bytes. A longer object ends its stream. */
  readonly maxObject: number;
  /**
   * Called with an object's header before its payload is allocated; return false to cancel the
   * stream.
   */
  accept?(header: ObjectHeader): boolean;
  object(object: ReceivedObject): void;
  datagram?(datagram: Datagram): void;
  /**
   * Called when a stream ends inside an object; `code` is the publisher's reset code, undefined if
   * unknown.
   */
  cut?(group: bigint, subgroup: bigint | undefined, code: number | undefined): void;
  /** Called for each piece of payload. */
  received?(bytes: number): void;
}

/** How the objects of a subscription or fetch are decrypted. */
interface Encrypted {
  readonly opener: ObjectOpener;
  /** The track's publisher priority. */
  readonly priority: number;
}

/** A fetch or fill whose stream is expected. */
interface Expected {
  readonly sink: TrackSink;
  /** Returns false when the sink must receive no further objects. */
  readonly wanted: () => boolean;
  readonly encrypted: Encrypted | undefined;
}

/** Publisher priority of tracks that name none (§12.4). */
const DEFAULT_PRIORITY = 128;

/**
 * Assembles an object's payload. Memory grows with the bytes received, not with the announced
 * length.
 */
class Collector implements ObjectSink {
  /** The code with which to cancel the stream, set when the sink refuses an object. */
  refused: number | undefined;
  #header: ObjectHeader | undefined;
  #buf = new Uint8Array(0);
  #have = 0;
  #delivered: Promise<void> = Promise.resolve();

  constructor(
    readonly sink: TrackSink,
    readonly wanted: () => boolean,
    readonly encrypted?: Encrypted,
  ) {}

  /** Resolves once the objects so far are decrypted and delivered. */
  get delivered(): Promise<void> | undefined {
    return this.encrypted && this.#delivered;
  }

  get group(): bigint | undefined {
    return this.#header?.group;
  }

  get subgroup(): bigint | undefined {
    return this.#header?.subgroup;
  }

  object(h: ObjectHeader): void {
    this.#header = h;
    this.#have = 0;
    if (this.refused !== undefined) return;
    if (h.length > BigInt(this.sink.maxObject + (this.encrypted ? MAX_SEALING : 0))) {
      this.refused = StreamCode.EXCESSIVE_LOAD;
      return;
    }
    if (!this.wanted() || this.sink.accept?.(h) === false) {
      this.refused = StreamCode.CANCELLED;
      return;
    }
    const n = Number(h.length);
    this.#buf = new Uint8Array(Math.min(n, 4 << 20));
    if (n === 0) this.#finish();
  }

  payload(bytes: Uint8Array): void {
    if (this.refused !== undefined) return;
    const end = this.#have + bytes.length;
    if (end > this.#buf.length) {
      const bigger = new Uint8Array(Math.min(Number(this.#header!.length), 2 * end));
      bigger.set(this.#buf.subarray(0, this.#have));
      this.#buf = bigger;
    }
    this.#buf.set(bytes, this.#have);
    this.#have = end;
    this.sink.received?.(bytes.length);
    if (end === Number(this.#header!.length)) this.#finish();
  }

  #finish(): void {
    const { group, subgroup, id, status, properties, datagram, priority } = this.#header!;
    const payload = this.#buf;
    this.#buf = new Uint8Array(0);
    const deliver = (o: OpenedObject): void =>
      this.sink.object({ group, subgroup, id, status, properties: o.properties, payload: o.payload, datagram });
    const { encrypted } = this;
    if (!encrypted || status !== "normal") return deliver({ properties, payload });
    const place = { group, id, priority: priority ?? encrypted.priority };
    const opened = encrypted.opener.open(place, properties, payload);
    this.#delivered = this.#delivered.then(async () => {
      const o = await opened;
      if (o && o.payload.length <= this.sink.maxObject && this.wanted()) deliver(o);
    });
  }
}

/**
 * Returns the error that cancels or resets a stream with a code. Browsers disagree on the
 * constructor's signature.
 */
function streamError(code: number): Error {
  if (typeof WebTransportError === "undefined") return new StreamReset(code);
  const init = { source: "stream", streamErrorCode: code } as WebTransportErrorOptions;
  try {
    return new WebTransportError("", init);
  } catch {
    const Earlier = WebTransportError as unknown as new (init: WebTransportErrorOptions) => Error;
    return new Earlier(init);
  }
}

/** Returns the code with which the peer reset a stream. */
function resetCode(e: unknown): number | undefined {
  const code = (e as { streamErrorCode?: unknown } | undefined)?.streamErrorCode;
  return typeof code === "number" ? code : undefined;
}

function withTimeout<T>(p: Promise<T>, ms: number, what: string): Promise<T> {
  let timer: ReturnType<typeof setTimeout>;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new RequestError(RequestCode.TIMEOUT, `no answer to ${what} in ${ms / 1000} s`, 0)),
      ms,
    );
  });
  return Promise.race([p, late]).finally(() => clearTimeout(timer));
}

/** The bidirectional stream of one request (§3.3.2). */
class RequestStream {
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  #buf: Uint8Array = new Uint8Array(0);
  #ended = false;

  constructor(
    readonly stream: Bidirectional,
    private readonly version: Version,
  ) {
    this.#writer = stream.writable.getWriter();
    this.#reader = stream.readable.getReader();
    this.#writer.closed.catch(() => {});
    this.#reader.closed.catch(() => {});
  }

  async send(message: Uint8Array): Promise<void> {
    await this.#writer.write(message);
  }

  /** The next message; null once the peer closed its direction. */
  async next(): Promise<Message | null> {
    for (;;) {
      const r = new Reader(this.#buf);
      try {
        if (r.left > 0) {
          const m = readMessage(r, this.version);
          this.#buf = this.#buf.slice(r.pos);
          return m;
        }
      } catch (e) {
        if (!(e instanceof ShortError)) throw e;
      }
      if (this.#buf.length > MAX_MESSAGE + 16) throw violation("message exceeds its limit");
      const { value, done } = await this.#reader.read();
      if (done) {
        if (this.#buf.length > 0) throw violation("a request stream ends inside a message");
        return null;
      }
      const joined = new Uint8Array(this.#buf.length + value.length);
      joined.set(this.#buf);
      joined.set(value, this.#buf.length);
      this.#buf = joined;
    }
  }

  /** Closes our direction and cancels the peer's. */
  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#writer.close().catch(() => {});
    this.#reader.cancel(streamError(StreamCode.CANCELLED)).catch(() => {});
  }

  /** Resets both directions (§3.3.2). */
  abort(code: number): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#writer.abort(streamError(code)).catch(() => {});
    this.#reader.cancel(streamError(code)).catch(() => {});
  }
}

/** A subscription, seen from the subscriber. */
export class Subscription {
  alias: bigint | undefined;
  largest: Location | undefined;
  properties: Properties = {};
  /** Set if the track is encrypted. */
  opener: ObjectOpener | undefined;
  /** Resolves once the datagrams so far are decrypted and delivered. */
  delivered: Promise<void> = Promise.resolve();
  /** Number of updates that the publisher has not answered yet. */
  #unanswered = 0;
  /** Resolves with the reason once the subscription ends. */
  readonly done: Promise<Error>;
  readonly #end: (e: Error) => void;
  ended = false;

  constructor(
    readonly session: Session,
    readonly track: TrackName,
    readonly id: bigint,
    readonly sink: TrackSink,
    readonly request: RequestStream,
  ) {
    let end!: (e: Error) => void;
    this.done = new Promise((resolve) => (end = resolve));
    this.#end = end;
  }

  /**
   * Moves the start of the subscription to `group` (§10.9), which may be before or after the
   * current start. Groups before it are no longer sent, but may be in transit. No effect once the
   * peer has refused an update.
   */
  startAt(group: bigint): void {
    this.update({ start: group });
  }

  /** Asks the publisher to begin `group`, or a later one. No effect if it begins none on request. */
  requestGroup(group: bigint): void {
    if (this.properties.dynamicGroups) this.update({ newGroup: group });
  }

  /** Sends REQUEST_UPDATE (§10.9). No effect once the peer has refused an update. */
  update(u: SubscriptionUpdate): void {
    if (this.ended || this.session.refusesChanges) return;
    this.#unanswered++;
    // Reading the stream reports the error.
    this.request.send(encodeUpdate(this.session.takeId(), u, this.session.version)).catch(() => {});
  }

  /** @internal */
  get encrypted(): Encrypted | undefined {
    return this.opener && { opener: this.opener, priority: this.properties.priority ?? DEFAULT_PRIORITY };
  }

  /** @internal The publisher answered an update (§10.9). */
  changed(done: boolean): void {
    this.#unanswered--;
    this.session.refusesChanges ||= !done;
  }

  /** Cancels the subscription; no more objects reach the sink. */
  cancel(): void {
    this.finish(new DoneError(DoneCode.SUBSCRIPTION_ENDED, "cancelled here"));
  }

  /** @internal */
  finish(why: Error): void {
    if (this.ended) return;
    this.ended = true;
    if (why instanceof DoneError) {
      this.session.refusesChanges ||=
        why.code === DoneCode.UPDATE_FAILED || (why.code === DoneCode.INTERNAL_ERROR && this.#unanswered > 0);
      this.request.end();
    } else {
      this.request.abort(StreamCode.CANCELLED);
    }
    this.session.forget(this);
    this.#end(why);
  }
}

/** A track published as datagrams. */
export class DatagramTrack {
  #group = 0n;
  /** False while the peer does not want objects (§5.1.1). */
  forward = true;
  ended = false;

  constructor(
    private readonly session: Session,
    readonly alias: bigint,
    private readonly request: RequestStream,
  ) {}

  /**
   * Sends an object in a new group. Drops it if the transport is congested or the peer does not
   * forward.
   */
  send(payload: Uint8Array, priority = 128): boolean {
    if (!this.forward || this.ended) return false;
    return this.session.sendDatagram(encodeDatagram(this.alias, this.#group++, priority, payload));
  }

  close(): void {
    if (this.ended) return;
    this.ended = true;
    this.request.send(encodePublishDone(DoneCode.TRACK_ENDED, "")).then(() => this.request.end(), () => {});
  }
}

/** Counts of data that a session refused or lost. */
export interface SessionCounters {
  subgroupsUnknown: number;
  datagramsUnknown: number;
  datagramsUnsent: number;
  streamsRefused: number;
  streamsCut: number;
  malformed: number;
}

export interface ConnectOptions {
  /** SHA-256 hashes of certificates to trust in addition to certificates from known authorities. */
  readonly certificateHashes?: readonly Uint8Array<ArrayBuffer>[];
  /** Implementation name sent in SETUP. */
  readonly implementation?: string;
  /** Token that authorizes the session. */
  readonly token?: string;
  /** Subset of PROTOCOLS to offer; all by default. */
  readonly protocols?: readonly string[];
  /** Decrypts received objects. */
  readonly opener?: Opener;
}

export class Session {
  readonly counters: SessionCounters = {
    subgroupsUnknown: 0, datagramsUnknown: 0, datagramsUnsent: 0, streamsRefused: 0, streamsCut: 0, malformed: 0,
  };
  /** Resolves with the reason once the session ends. */
  readonly closed: Promise<SessionError>;
  /**
   * Resolves with the new URI when the peer sends GOAWAY; "" = reconnect to the same URI (§3.6).
   */
  readonly goaway: Promise<string>;
  /** Implementation name the peer sent in SETUP. */
  implementation = "";
  /** Shortest time from a SUBSCRIBE to its answer so far, ms: an upper bound on the round-trip time. */
  requestTime = Infinity;
  /** When data last arrived, by performance.now(). */
  heard = performance.now();
  /** True once the peer refused to change a subscription, with an error or by ending it (§10.9). */
  refusesChanges = false;

  readonly #subscriptions = new Map<bigint, Subscription>();
  readonly #tracks = new Map<string, Subscription>();
  readonly #early = new Map<bigint, ((s: Subscription | undefined) => void)[]>();
  readonly #waiting = new Set<(why: SessionError) => void>();
  readonly #fetches = new Map<bigint, Expected>();
  readonly #fetchDone = new Map<bigint, { done: () => void; cut: (why: Error, begun: boolean) => void }>();
  #nearly = 0;
  #nextRequest = 0n;
  #nextAlias = 0n;
  #control: WritableStreamDefaultWriter<Uint8Array> | undefined;
  readonly #datagrams: WritableStreamDefaultWriter<Uint8Array>;
  #datagramsQueued = 0;
  #keepAlive: ReturnType<typeof setInterval> | undefined;
  #over: SessionError | undefined;
  #end!: (e: SessionError) => void;
  #leave!: (uri: string) => void;
  #ready!: () => void;

  private constructor(
    readonly transport: Transport,
    /** The negotiated draft. */
    readonly version: Version,
    private readonly opener: Opener | undefined,
  ) {
    this.closed = new Promise((resolve) => (this.#end = resolve));
    this.goaway = new Promise((resolve) => (this.#leave = resolve));
    this.#datagrams = datagramWriter(transport);
    transport.datagrams.incomingHighWaterMark = DATAGRAM_QUEUE;
    this.#datagrams.closed.catch(() => {});
  }

  /** Opens a session to the https URL of a WebTransport session, or the ws or wss URL of a WebSocket. */
  static connect(url: string, o: ConnectOptions = {}): Promise<Session> {
    if (url.startsWith("ws")) return Session.#open(new QMuxSocket(url, o.protocols ?? PROTOCOLS), o);
    const options: WebTransportOptions & { protocols: string[] } = {
      protocols: [...(o.protocols ?? PROTOCOLS)],
      congestionControl: "low-latency",
      requireUnreliable: true,
    };
    if (o.certificateHashes?.length) {
      options.serverCertificateHashes = o.certificateHashes.map((value) => ({ algorithm: "sha-256", value }));
    }
    return Session.#open(new WebTransport(url, options), o);
  }

  /** Waits for a transport and exchanges SETUP. */
  static async #open(transport: Transport, o: ConnectOptions): Promise<Session> {
    transport.closed.catch(() => {});
    try {
      await withTimeout(transport.ready, SETUP_TIMEOUT, "the handshake");
    } catch (e) {
      transport.close();
      throw e;
    }
    const chosen = (transport as { protocol?: string }).protocol;
    const version = chosen ? versionOf(chosen) : versionOf((o.protocols ?? PROTOCOLS)[0]!);
    if (version === undefined) {
      transport.close();
      throw new SessionError(
        SessionCode.VERSION_NEGOTIATION_FAILED,
        `the relay speaks ${chosen}, this viewer ${PROTOCOLS.join(" and ")}`,
        false,
      );
    }
    const s = new Session(transport, version, o.opener);
    const ready = new Promise<void>((resolve) => (s.#ready = resolve));
    void s.#watch();
    void s.#acceptUni();
    void s.#acceptBidi();
    void s.#acceptDatagrams();
    if (!s.tcp) s.#keepAlive = setInterval(() => s.#keep(), KEEP_ALIVE);
    try {
      const control = await transport.createUnidirectionalStream({ sendOrder: 1000 } as WebTransportSendStreamOptions);
      s.#control = control.getWriter();
      s.#control.closed.catch(() => {});
      await s.#control.write(encodeSetup(o.implementation ?? "holocast-web", o.token));
      await withTimeout(Promise.race([ready, s.closed.then((e) => Promise.reject(e))]), SETUP_TIMEOUT, "SETUP");
    } catch (e) {
      s.close(SessionCode.CONTROL_MESSAGE_TIMEOUT, "no SETUP");
      throw e;
    }
    return s;
  }

  get over(): boolean {
    return this.#over !== undefined;
  }

  /** True over TCP, where a lost packet delays everything behind it. */
  get tcp(): boolean {
    return this.transport instanceof QMuxSocket;
  }

  /** Closes the session. */
  close(code: number = SessionCode.NO_ERROR, reason = ""): void {
    this.#shutdown(new SessionError(code, reason, false));
  }

  #shutdown(why: SessionError): void {
    if (this.#over) return;
    this.#over = why;
    clearInterval(this.#keepAlive);
    try {
      this.transport.close({ closeCode: why.code, reason: why.reason.slice(0, 256) });
    } catch {
      // Already closed.
    }
    for (const sub of [...this.#subscriptions.values(), ...this.#tracks.values()]) sub.finish(why);
    for (const reject of this.#waiting) reject(why);
    this.#end(why);
  }

  /** Closes the session after a violation of the wire format. */
  #fail(e: unknown): void {
    if (e instanceof WireError) this.#shutdown(new SessionError(e.code, e.message, false));
  }

  async #watch(): Promise<void> {
    try {
      const info = await this.transport.closed;
      this.#shutdown(new SessionError(info.closeCode ?? 0, info.reason ?? "", true));
    } catch (e) {
      this.#shutdown(
        new SessionError(SessionCode.INTERNAL_ERROR, e instanceof Error ? e.message : "connection lost", true),
      );
    }
  }

  /**
   * Sends padding while the peer is silent. A viewer that receives nothing acknowledges nothing, so a
   * relay would never learn its new address after a NAT rebinding. Chromium pings only every 15 s.
   */
  #keep(): void {
    if (performance.now() - this.heard >= KEEP_ALIVE) this.sendDatagram(encodePadding());
  }

  async #acceptUni(): Promise<void> {
    const streams = this.transport.incomingUnidirectionalStreams.getReader() as ReadableStreamDefaultReader<
      ReadableStream<Uint8Array>
    >;
    try {
      for (;;) {
        const { value, done } = await streams.read();
        if (done) return;
        void this.#handleUni(value);
      }
    } catch {
      // The transport reports its own error through `closed`.
    }
  }

  async #handleUni(stream: ReadableStream<Uint8Array>): Promise<void> {
    const reader = stream.getReader();
    reader.closed.catch(() => {});
    let head: StreamHeader;
    let rest: Uint8Array = new Uint8Array(0);
    try {
      for (;;) {
        const { value, done } = await reader.read();
        this.heard = performance.now();
        if (done) return; // an empty stream, or one reset before its type arrived
        const joined = new Uint8Array(rest.length + value.length);
        joined.set(rest);
        joined.set(value, rest.length);
        rest = joined;
        const r = new Reader(rest);
        try {
          head = readStreamHeader(r);
          rest = rest.subarray(r.pos);
          break;
        } catch (e) {
          if (!(e instanceof ShortError)) throw e;
        }
      }
    } catch (e) {
      this.#fail(e);
      reader.cancel(streamError(StreamCode.INTERNAL_ERROR)).catch(() => {});
      return;
    }
    switch (head.type) {
      case "setup":
        // The type is a control message's; its length and payload follow.
        return this.#readControl(reader, rest);
      case "fetch":
        return this.#readFetch(reader, rest, head.request);
      case "padding":
        reader.cancel(streamError(StreamCode.CANCELLED)).catch(() => {});
        return;
      case "subgroup": {
        const sub = await this.#byAlias(head.header.alias);
        if (!sub) {
          this.counters.subgroupsUnknown++;
          reader.cancel(streamError(StreamCode.CANCELLED)).catch(() => {});
          return;
        }
        const collector = new Collector(sub.sink, () => !sub.ended, sub.encrypted);
        const parser = new SubgroupParser(head.header, collector);
        await this.#pump(reader, rest, parser, collector, head.header.group, (e) => sub.finish(e));
      }
    }
  }

  /**
   * Feeds a data stream to its parser until the stream ends or an object is refused. Returns true if the stream ended
   * at an object boundary.
   */
  async #pump(
    reader: ReadableStreamDefaultReader<Uint8Array>,
    first: Uint8Array,
    parser: SubgroupParser | FetchParser,
    collector: Collector,
    group: bigint | undefined,
    malformed: (e: Error) => void,
  ): Promise<boolean> {
    try {
      parser.push(first);
      for (;;) {
        if (collector.delivered) await collector.delivered;
        if (collector.refused !== undefined) {
          this.counters.streamsRefused++;
          reader.cancel(streamError(collector.refused)).catch(() => {});
          collector.sink.cut?.(collector.group ?? group ?? 0n, collector.subgroup, collector.refused);
          return false;
        }
        const { value, done } = await reader.read();
        this.heard = performance.now();
        if (done) break;
        parser.push(value);
      }
      if (parser.boundary) return true;
      malformed(new MalformedTrackError("a data stream ends inside an object"));
      this.counters.malformed++;
    } catch (e) {
      if (e instanceof MalformedTrackError) {
        this.counters.malformed++;
        reader.cancel(streamError(StreamCode.MALFORMED_TRACK)).catch(() => {});
        malformed(e);
      } else if (e instanceof WireError) {
        this.#fail(e);
      } else {
        this.counters.streamsCut++;
        collector.sink.cut?.(collector.group ?? group ?? 0n, collector.subgroup, resetCode(e));
      }
    }
    return false;
  }

  async #readControl(reader: ReadableStreamDefaultReader<Uint8Array>, first: Uint8Array): Promise<void> {
    // The stream header consumed the first message's type, so restore it.
    let buf = new Uint8Array(first.length + 2);
    buf.set([0xaf, 0x00]); // SETUP's type 0x2f00 as a varint
    buf.set(first, 2);
    let set = false;
    try {
      for (;;) {
        const r = new Reader(buf);
        try {
          while (r.left > 0) {
            const at = r.pos;
            try {
              const m = readMessage(r, this.version);
              if (m.type === "setup" && !set) {
                set = true;
                this.implementation = m.implementation;
                this.#ready();
              } else if (m.type === "goaway" && set) {
                this.#leave(m.uri);
              } else {
                throw violation(`unexpected message on the control stream`);
              }
            } catch (e) {
              if (e instanceof ShortError) r.pos = at;
              throw e;
            }
          }
        } catch (e) {
          if (!(e instanceof ShortError)) throw e;
        }
        buf = buf.slice(r.pos);
        const { value, done } = await reader.read();
        if (done) throw violation("the peer closed its control stream");
        const joined = new Uint8Array(buf.length + value.length);
        joined.set(buf);
        joined.set(value, buf.length);
        buf = joined;
      }
    } catch (e) {
      // A relay that shuts down may end its streams before the session. Wait for the session's error,
      // which is more specific.
      if (e instanceof WireError) setTimeout(() => this.#fail(e), 100);
    }
  }

  async #acceptBidi(): Promise<void> {
    const incoming = this.transport.incomingBidirectionalStreams as ReadableStream<Bidirectional>;
    const streams = incoming.getReader();
    try {
      for (;;) {
        const { value, done } = await streams.read();
        if (done) return;
        void this.#refuseRequest(new RequestStream(value, this.version));
      }
    } catch {
      // The transport reports its own error through `closed`.
    }
  }

  /** A viewer serves no requests. */
  async #refuseRequest(r: RequestStream): Promise<void> {
    try {
      const m = await r.next();
      if (m && m.type !== "peerRequest") throw violation(`a request stream begins with ${m.type}`);
      await r.send(encodeRequestError(RequestCode.NOT_SUPPORTED, "a viewer serves no requests"));
      r.end();
    } catch (e) {
      this.#fail(e);
      r.abort(StreamCode.CANCELLED);
    }
  }

  async #acceptDatagrams(): Promise<void> {
    const reader = this.transport.datagrams.readable.getReader() as ReadableStreamDefaultReader<Uint8Array>;
    try {
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        this.heard = performance.now();
        this.#handleDatagram(value);
      }
    } catch (e) {
      this.#fail(e);
    }
  }

  #handleDatagram(b: Uint8Array): void {
    let d: Datagram | null;
    try {
      d = parseDatagram(b);
    } catch (e) {
      if (!(e instanceof MalformedTrackError)) throw e;
      this.counters.malformed++;
      return;
    }
    if (!d) return;
    const sub = this.#subscriptions.get(d.alias);
    if (!sub?.sink.datagram) {
      this.counters.datagramsUnknown++;
      return;
    }
    sub.sink.received?.(d.payload.length);
    if (sub.encrypted && d.status === "normal") this.#openDatagram(sub, sub.encrypted, d);
    else sub.sink.datagram(d);
  }

  /** Decrypts a datagram, and delivers it after those before it. */
  #openDatagram(sub: Subscription, { opener, priority }: Encrypted, d: Datagram): void {
    const place = { group: d.group, id: d.object, priority: d.priority ?? priority };
    const opened = opener.open(place, d.properties, d.payload.slice());
    sub.delivered = sub.delivered.then(async () => {
      const o = await opened;
      if (o && !sub.ended) sub.sink.datagram?.({ ...d, properties: o.properties, payload: o.payload });
    });
  }

  /** @internal */
  sendDatagram(b: Uint8Array): boolean {
    if (this.#datagramsQueued >= 64 || this.over) {
      this.counters.datagramsUnsent++;
      return false;
    }
    this.#datagramsQueued++;
    const sent = () => void this.#datagramsQueued--;
    this.#datagrams.write(b).then(sent, sent);
    return true;
  }

  /** Looks up a subscription by alias. Waits if its SUBSCRIBE_OK may still be in transit. */
  #byAlias(alias: bigint): Promise<Subscription | undefined> | Subscription | undefined {
    const sub = this.#subscriptions.get(alias);
    if (sub || this.#tracks.size === 0) return sub;
    if (this.#nearly >= MAX_EARLY) return undefined;
    this.#nearly++;
    return new Promise((resolve) => {
      const list = this.#early.get(alias) ?? [];
      const settle = (s: Subscription | undefined) => {
        clearTimeout(timer);
        this.#nearly--;
        resolve(s);
      };
      const timer = setTimeout(() => {
        const i = list.indexOf(settle);
        if (i >= 0) list.splice(i, 1);
        if (list.length === 0) this.#early.delete(alias);
        settle(undefined);
      }, ALIAS_TIMEOUT);
      list.push(settle);
      this.#early.set(alias, list);
    });
  }

  /** @internal */
  forget(sub: Subscription): void {
    if (this.#tracks.get(trackKey(sub.track)) === sub) this.#tracks.delete(trackKey(sub.track));
    if (sub.alias !== undefined && this.#subscriptions.get(sub.alias) === sub) this.#subscriptions.delete(sub.alias);
  }

  /** @internal */
  takeId(): bigint {
    const id = this.#nextRequest;
    this.#nextRequest += 2n;
    return id;
  }

  async #request(): Promise<RequestStream> {
    if (this.#over) throw this.#over;
    const opened = this.transport.createBidirectionalStream({ sendOrder: 1000 } as WebTransportSendStreamOptions);
    return new RequestStream(await withTimeout(opened, REQUEST_TIMEOUT, "opening a request"), this.version);
  }

  /**
   * Settles with p, or rejects when the session ends. Leaves no handler on `closed`, where the handlers
   * of many requests would pile up.
   */
  #orClosed<T>(p: Promise<T>): Promise<T> {
    if (this.#over) return Promise.reject(this.#over);
    return new Promise((resolve, reject) => {
      this.#waiting.add(reject);
      const settled = () => void this.#waiting.delete(reject);
      p.then(resolve, reject).then(settled, settled);
    });
  }

  /** Waits for the answer to a request. Ends the request's stream on a refusal or an error. */
  async #answer<T extends Message["type"]>(
    r: RequestStream,
    type: T,
    what: string,
    extra = 0,
  ): Promise<Extract<Message, { type: T }>> {
    try {
      const m = await withTimeout(this.#orClosed(r.next()), REQUEST_TIMEOUT + extra, what);
      if (m === null)
        throw new RequestError(RequestCode.INTERNAL_ERROR, `the relay closed ${what} without an answer`, 0);
      if (m.type === "error") throw new RequestError(m.code, m.reason, m.retryAfter);
      if (m.type === "goaway") throw new RequestError(RequestCode.GOING_AWAY, "the relay asked to move the request", 0);
      if (m.type !== type) throw violation(`${m.type} in answer to ${what}`);
      return m as Extract<Message, { type: T }>;
    } catch (e) {
      this.#fail(e);
      r.abort(StreamCode.CANCELLED);
      if (this.#over && !(e instanceof RequestError)) throw this.#over;
      throw e;
    }
  }

  /**
   * Subscribes to a track. With `join`, also requests the newest group without waiting for the answer,
   * so a late joiner receives its first object within one round trip: with a FETCH (§10.12.2), or from
   * draft-20 on as a fill (draft-22 §3.4).
   */
  async subscribe(
    track: TrackName,
    sink: TrackSink,
    o: SubscribeOptions & { readonly join?: boolean } = {},
  ): Promise<Subscription> {
    const key = trackKey(track);
    if (this.#tracks.has(key))
      throw new RequestError(RequestCode.DUPLICATE_SUBSCRIPTION, `already subscribed to ${track.name}`, undefined);
    const r = await this.#request();
    const id = this.takeId();
    const sub = new Subscription(this, track, id, sink, r);
    this.#tracks.set(key, sub);
    const began = performance.now();
    let joined: Promise<boolean> | undefined;
    try {
      const fill = o.join === true && this.version >= 20;
      const accepted = fill ? this.#expect(id, track, sub.sink, () => !sub.ended) : undefined;
      if (fill) joined = this.#filled(sub, o.rendezvousTimeout).then(() => true, () => false);
      await r.send(encodeSubscribe(id, track, o, this.version, fill));
      // The joining fetch fails if nothing is published yet or the subscription is refused.
      if (o.join && !fill) joined = this.#join(sub, o.priority, o.rendezvousTimeout).then(() => true, () => false);
      const ok = await this.#answer(r, "subscribeOk", "SUBSCRIBE", o.rendezvousTimeout ?? 0);
      if (!o.rendezvousTimeout) this.requestTime = Math.min(this.requestTime, performance.now() - began);
      if (this.#subscriptions.has(ok.alias)) {
        throw new WireError(SessionCode.DUPLICATE_TRACK_ALIAS, `track alias ${ok.alias} is in use`);
      }
      sub.alias = ok.alias;
      sub.largest = ok.parameters.largest;
      sub.properties = ok.properties;
      sub.opener = this.opener?.openTrack(track, Promise.resolve(ok.properties));
      accepted?.(ok.properties);
    } catch (e) {
      this.#fail(e);
      const why = e instanceof Error ? e : new Error(String(e));
      sub.finish(
        e instanceof UnknownMandatoryError
          ? new RequestError(RequestCode.UNSUPPORTED_EXTENSION, e.message, undefined)
          : why,
      );
      throw why;
    }
    this.#subscriptions.set(sub.alias, sub);
    const waiting = this.#early.get(sub.alias);
    this.#early.delete(sub.alias);
    for (const settle of waiting ?? []) settle(sub);
    void this.#follow(sub);
    // The relay may refuse to join a subscription that it has not answered yet, or to fill it, so try
    // again.
    if (sub.largest !== undefined)
      void joined?.then((done) => (done || sub.ended ? undefined : this.#join(sub, o.priority))).catch(() => {});
    return sub;
  }

  /** Reads the publisher's messages on a subscription until it ends. */
  async #follow(sub: Subscription): Promise<void> {
    try {
      for (;;) {
        const m = await sub.request.next();
        if (m === null)
          return sub.finish(new DoneError(DoneCode.INTERNAL_ERROR, "the publisher left without PUBLISH_DONE"));
        switch (m.type) {
          case "done":
            return sub.finish(new DoneError(m.code, m.reason));
          case "goaway":
            return sub.finish(new DoneError(DoneCode.GOING_AWAY, m.uri));
          case "update":
            // The publisher may not update a subscription (draft-19 §10.9).
            if (this.version >= 19) throw violation("the publisher changes a subscription");
            await sub.request.send(encodeRequestOk());
            break;
          case "state": // only informs
            break;
          case "ok":
          case "error":
            sub.changed(m.type === "ok");
            break;
          default:
            throw violation(`unexpected ${m.type} on a subscription`);
        }
      }
    } catch (e) {
      this.#fail(e);
      sub.finish(this.#over ?? new DoneError(DoneCode.INTERNAL_ERROR, "the subscription was cut off"));
    }
  }

  /**
   * Waits for the fill that a SUBSCRIBE requests into the same sink (see #expect). Rejects if the fill is refused or
   * does not arrive, as when nothing is published.
   */
  async #filled(sub: Subscription, extraWait = 0): Promise<void> {
    const over = new Promise<void>((resolve, reject) =>
      this.#fetchDone.set(sub.id, { done: resolve, cut: (why, begun) => (begun ? resolve() : reject(why)) }),
    );
    try {
      await withTimeout(Promise.race([over, sub.done]), REQUEST_TIMEOUT + extraWait, "a fill");
    } finally {
      this.#fetches.delete(sub.id);
      this.#fetchDone.delete(sub.id);
    }
  }

  /** Fetches the newest group of a subscription into the same sink. */
  async #join(sub: Subscription, priority: number | undefined, extraWait = 0): Promise<void> {
    const r = await this.#request();
    const id = this.takeId();
    const over = new Promise<void>((resolve) => this.#fetchDone.set(id, { done: resolve, cut: () => resolve() }));
    const accepted = this.#expect(id, sub.track, sub.sink, () => !sub.ended);
    try {
      const last = sub.largest;
      await r.send(
        this.version >= 20 && last
          ? encodeFetch(
              id, sub.track, last.group, last.group, priority, { first: 0, last: Number(last.object) }, this.version,
            )
          : encodeJoiningFetch(id, sub.id, 0, priority),
      );
      accepted((await this.#answer(r, "fetchOk", "FETCH", extraWait)).properties);
      await withTimeout(over, REQUEST_TIMEOUT, "FETCH");
      r.end();
    } finally {
      this.#fetches.delete(id);
      this.#fetchDone.delete(id);
    }
  }

  /**
   * Fetches groups `first` to `last` of a track, or a range of objects in one group, as far as
   * published. Resolves when all objects have reached the sink, rejects otherwise. No object reaches
   * the sink once `signal` aborts.
   */
  async fetch(
    track: TrackName,
    first: bigint,
    last: bigint,
    sink: TrackSink,
    o: { readonly priority?: number; readonly signal?: AbortSignal; readonly objects?: ObjectRange } = {},
  ): Promise<void> {
    const { signal } = o;
    const r = await this.#request();
    const id = this.takeId();
    const over = new Promise<void>((resolve, reject) => {
      this.#fetchDone.set(id, { done: resolve, cut: reject });
      signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
    });
    over.catch(() => {}); // the request may fail before anyone awaits this
    const wanted = (): boolean => !signal?.aborted;
    const accepted = this.#expect(id, track, { ...sink, object: (o) => wanted() && sink.object(o) }, wanted);
    try {
      signal?.throwIfAborted();
      await r.send(encodeFetch(id, track, first, last, o.priority, o.objects, this.version));
      const answer = this.#answer(r, "fetchOk", "FETCH").then((ok) => accepted(ok.properties));
      await Promise.race([answer, over]);
      await this.#orClosed(over);
      r.end();
    } catch (e) {
      r.abort(StreamCode.CANCELLED);
      throw e;
    } finally {
      this.#fetches.delete(id);
      this.#fetchDone.delete(id);
    }
  }

  /** Registers a fetch or fill. The returned function takes the track's properties from the answer. */
  #expect(id: bigint, track: TrackName, sink: TrackSink, wanted: () => boolean): (p: Properties) => void {
    let accepted!: (p: Properties) => void;
    const properties = new Promise<Properties>((resolve) => (accepted = resolve));
    const opener = this.opener?.openTrack(track, properties);
    this.#fetches.set(id, { sink, wanted, encrypted: opener && { opener, priority: DEFAULT_PRIORITY } });
    return accepted;
  }

  async #readFetch(reader: ReadableStreamDefaultReader<Uint8Array>, rest: Uint8Array, id: bigint): Promise<void> {
    const fetch = this.#fetches.get(id);
    if (!fetch) {
      reader.cancel(streamError(StreamCode.CANCELLED)).catch(() => {});
      return;
    }
    const collector = new Collector(fetch.sink, fetch.wanted, fetch.encrypted);
    const parser = new FetchParser(collector, this.version >= 20);
    const complete = await this.#pump(reader, rest, parser, collector, undefined, () => {});
    const over = this.#fetchDone.get(id);
    if (complete) over?.done();
    else {
      const why = new RequestError(RequestCode.INTERNAL_ERROR, "a fetch was cut off", undefined);
      over?.cut(why, collector.group !== undefined);
    }
  }

  /**
   * Tracks the namespaces under a prefix until the returned function is called or the session ends.
   */
  async subscribeNamespace(prefix: Namespace, changed: (namespaces: Namespace[]) => void): Promise<() => void> {
    const r = await this.#request();
    await r.send(encodeSubscribeNamespace(this.takeId(), prefix));
    await this.#answer(r, "ok", "SUBSCRIBE_NAMESPACE");
    const active = new Map<string, Namespace>();
    const follow = async (): Promise<void> => {
      changed([]);
      for (;;) {
        const m = await r.next();
        if (m === null || m.type === "goaway") return;
        if (m.type !== "namespace") throw violation(`unexpected ${m.type} on a namespace subscription`);
        const key = JSON.stringify(m.suffix);
        if (m.added) active.set(key, [...prefix, ...m.suffix]);
        else if (!active.delete(key)) throw violation("NAMESPACE_DONE without its NAMESPACE");
        if (active.size > MAX_NAMESPACES) return r.abort(StreamCode.EXCESSIVE_LOAD);
        changed([...active.values()]);
      }
    };
    follow().catch((e: unknown) => this.#fail(e));
    return () => r.abort(StreamCode.CANCELLED);
  }

  /** Offers the peer a track whose objects are sent as datagrams (§10.10). */
  async publishDatagrams(track: TrackName): Promise<DatagramTrack> {
    const r = await this.#request();
    const alias = this.#nextAlias++;
    await r.send(encodePublish(this.takeId(), track, alias));
    const ok = await this.#answer(r, "ok", "PUBLISH");
    const t = new DatagramTrack(this, alias, r);
    t.forward = ok.parameters.forward ?? true;
    const follow = async (): Promise<void> => {
      for (;;) {
        const m = await r.next();
        if (m === null) break;
        if (m.type === "update") {
          t.forward = m.parameters.forward ?? t.forward;
          await r.send(encodeRequestOk());
        } else if (m.type !== "goaway") throw violation(`unexpected ${m.type} on a publication`);
      }
      t.ended = true;
    };
    follow().catch((e: unknown) => {
      t.ended = true;
      this.#fail(e);
    });
    return t;
  }
}

/** Returns a writer for datagrams, whose API differs between browsers. */
function datagramWriter(transport: Transport): WritableStreamDefaultWriter<Uint8Array> {
  const datagrams = transport.datagrams as Transport["datagrams"] & {
    createWritable?: () => WritableStream<Uint8Array>;
  };
  const writable = datagrams.createWritable ? datagrams.createWritable() : datagrams.writable!;
  return writable.getWriter();
}
