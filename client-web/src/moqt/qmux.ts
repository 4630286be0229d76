/**
 * QMux (draft-ietf-quic-qmux-02) over a WebSocket: QUIC's streams and datagrams over TCP, with
 * WebTransport's interface. For browsers and networks without WebTransport. Mirrors internal/qmux.
 */

/** The part of WebTransport that a session uses. */
export interface Transport {
  readonly ready: Promise<unknown>;
  readonly closed: Promise<WebTransportCloseInfo>;
  readonly datagrams: {
    readonly readable: ReadableStream<Uint8Array>;
    readonly writable?: WritableStream<Uint8Array>;
    incomingHighWaterMark?: number;
  };
  readonly incomingUnidirectionalStreams: ReadableStream;
  readonly incomingBidirectionalStreams: ReadableStream;
  createUnidirectionalStream(o?: object): Promise<WritableStream<Uint8Array>>;
  createBidirectionalStream(o?: object): Promise<Bidirectional>;
  close(info?: WebTransportCloseInfo): void;
}

export interface Bidirectional {
  readonly readable: ReadableStream<Uint8Array>;
  readonly writable: WritableStream<Uint8Array>;
}

export const FrameType = {
  RESET: 0x04, STOP_SENDING: 0x05, STREAM: 0x08, MAX_DATA: 0x10, MAX_STREAM_DATA: 0x11, MAX_STREAMS_BIDI: 0x12,
  MAX_STREAMS_UNI: 0x13, DATA_BLOCKED: 0x14, STREAM_DATA_BLOCKED: 0x15, STREAMS_BLOCKED: 0x16, CLOSE: 0x1c,
  CLOSE_APPLICATION: 0x1d, RESET_AT: 0x24, DATAGRAM: 0x30, DATAGRAM_LENGTH: 0x31,
} as const;
const PARAMETERS = 0x3f5153300d0a0d0an;
const PING = 0x348c67529ef8c7bdn;
const PONG = 0x348c67529ef8c7ben;

/** Transport error codes (RFC 9000 §20.1). */
export const TransportCode = {
  NO_ERROR: 0, FLOW_CONTROL_ERROR: 3, STREAM_LIMIT_ERROR: 4, STREAM_STATE_ERROR: 5, FINAL_SIZE_ERROR: 6,
  FRAME_ENCODING_ERROR: 7, TRANSPORT_PARAMETER_ERROR: 8, PROTOCOL_VIOLATION: 10,
} as const;

/** A violation of QMux by the peer. */
export class TransportError extends Error {
  constructor(
    readonly code: number,
    message: string,
  ) {
    super(message);
    this.name = "TransportError";
  }
}

const encodingError = (what: string) => new TransportError(TransportCode.FRAME_ENCODING_ERROR, what);

/** The error of a stream that the peer reset or refused, as WebTransport reports it. */
export class StreamReset extends Error {
  readonly source = "stream";
  constructor(readonly streamErrorCode: number) {
    super(`the stream was reset with code ${streamErrorCode}`);
    this.name = "StreamReset";
  }
}

/** Largest record that we send and accept, in bytes. */
export const MAX_RECORD = 16382;
const MAX_REASON = 1024;
const WINDOW = 48 << 20;
const STREAM_WINDOW = 2 << 20;
const STREAMS = 1024;
const IDLE = 10_000;
const PING_EVERY = 1500;
/** Bytes in the WebSocket's queue above which streams wait and datagrams are dropped. */
const MAX_QUEUED = 64 << 10;
/** Interval at which a full queue is looked at, ms; browsers announce nothing. */
const QUEUE_POLL = 5;

/** Reads QUIC's variable-length integers (RFC 9000 §16). */
class Input {
  pos = 0;
  readonly #view: DataView;
  constructor(readonly bytes: Uint8Array<ArrayBuffer>) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  get left(): number {
    return this.bytes.length - this.pos;
  }

  big(): bigint {
    if (this.left < 1) throw encodingError("truncated frame");
    const n = 1 << (this.bytes[this.pos]! >> 6);
    if (this.left < n) throw encodingError("truncated frame");
    const at = this.pos;
    this.pos += n;
    switch (n) {
      case 1:
        return BigInt(this.bytes[at]!);
      case 2:
        return BigInt(this.#view.getUint16(at) & 0x3fff);
      case 4:
        return BigInt(this.#view.getUint32(at) & 0x3fffffff);
      default:
        return this.#view.getBigUint64(at) & 0x3fffffffffffffffn;
    }
  }

  /** A number, rounded above 2^53. */
  number(): number {
    return Number(this.big());
  }

  take(n: number): Uint8Array<ArrayBuffer> {
    if (n > this.left) throw encodingError("truncated frame");
    const b = this.bytes.subarray(this.pos, this.pos + n);
    this.pos += n;
    return b;
  }
}

/** Encodes frames. */
export class Output {
  #bytes = new Uint8Array(256);
  #view = new DataView(this.#bytes.buffer);
  length = 0;

  #grow(n: number): void {
    if (this.length + n <= this.#bytes.length) return;
    const bigger = new Uint8Array(2 * (this.length + n));
    bigger.set(this.#bytes.subarray(0, this.length));
    this.#bytes = bigger;
    this.#view = new DataView(bigger.buffer);
  }

  number(...values: (number | bigint)[]): this {
    for (const v of values) {
      this.#grow(8);
      if (v < 0x40) {
        this.#view.setUint8(this.length, Number(v));
        this.length++;
      } else if (v < 0x4000) {
        this.#view.setUint16(this.length, 0x4000 | Number(v));
        this.length += 2;
      } else if (v < 0x40000000) {
        this.#view.setUint32(this.length, (0x80000000 | Number(v)) >>> 0);
        this.length += 4;
      } else {
        this.#view.setBigUint64(this.length, (3n << 62n) | BigInt(v));
        this.length += 8;
      }
    }
    return this;
  }

  data(b: Uint8Array): this {
    this.#grow(b.length);
    this.#bytes.set(b, this.length);
    this.length += b.length;
    return this;
  }

  get bytes(): Uint8Array<ArrayBuffer> {
    return this.#bytes.slice(0, this.length);
  }
}

export interface Parameters {
  idle: number; // ms; 0 means none
  data: number;
  bidiLocal: number;
  bidiRemote: number;
  uni: number;
  streamsBidi: number;
  streamsUni: number;
  datagram: number;
  record: number;
  resetAt: boolean;
}

const PARAMETER_IDS = new Map<bigint, Exclude<keyof Parameters, "resetAt">>([
  [0x01n, "idle"], [0x04n, "data"], [0x05n, "bidiLocal"], [0x06n, "bidiRemote"], [0x07n, "uni"],
  [0x08n, "streamsBidi"], [0x09n, "streamsUni"], [0x20n, "datagram"], [0x0571c59429cd0845n, "record"],
]);
const RESET_AT_ID = 0x1dn;
const LAST_FORBIDDEN = 0x10n;
const MAX_PARAMETERS = 64;

export function encodeParameters(p: Parameters): Uint8Array {
  const out = new Output();
  for (const [id, key] of PARAMETER_IDS) {
    if (p[key] === 0) continue;
    const value = new Output().number(p[key]).bytes;
    out.number(id, value.length).data(value);
  }
  if (p.resetAt) out.number(RESET_AT_ID, 0);
  return out.bytes;
}

export function decodeParameters(b: Uint8Array<ArrayBuffer>): Parameters {
  const bad = (what: string) =>
    new TransportError(TransportCode.TRANSPORT_PARAMETER_ERROR, `transport parameters: ${what}`);
  const p: Parameters = {
    idle: 0, data: 0, bidiLocal: 0, bidiRemote: 0, uni: 0, streamsBidi: 0, streamsUni: 0, datagram: 0,
    record: MAX_RECORD, resetAt: false,
  };
  const seen = new Set<bigint>();
  try {
    for (const r = new Input(b); r.left > 0; ) {
      const id = r.big();
      const value = new Input(r.take(r.number()));
      if (seen.has(id) || seen.size === MAX_PARAMETERS) throw bad("repeated, or too many");
      seen.add(id);
      const key = PARAMETER_IDS.get(id);
      if (key) {
        p[key] = value.number();
        if (value.left > 0) throw bad(`0x${id.toString(16)} is not a number`);
      } else if (id === RESET_AT_ID) {
        if (value.left > 0) throw bad("reset_stream_at has a value");
        p.resetAt = true;
      } else if (id <= LAST_FORBIDDEN) {
        throw bad(`0x${id.toString(16)} is forbidden`);
      }
    }
  } catch (e) {
    throw e instanceof TransportError && e.code === TransportCode.FRAME_ENCODING_ERROR ? bad("truncated") : e;
  }
  if (p.record < MAX_RECORD || p.streamsBidi > 2 ** 60 || p.streamsUni > 2 ** 60) throw bad("out of range");
  return p;
}

/** A decoded frame. Which fields are in use depends on its type. */
export interface Frame {
  /** A FrameType; STREAM for all its forms, DATAGRAM for both. */
  type: number | "parameters" | "ping" | "pong" | "padding";
  id: number;
  /** Offset, limit, final size or sequence number. */
  value: number;
  code: number;
  /** Reliable size of RESET_STREAM_AT. */
  at: number;
  data: Uint8Array<ArrayBuffer>;
  fin: boolean;
}

const NONE = new Uint8Array(0);

function readFrame(r: Input): Frame {
  const f: Frame = { type: "padding", id: 0, value: 0, code: 0, at: 0, data: NONE, fin: false };
  const wide = r.big();
  switch (wide) {
    case PARAMETERS:
      f.type = "parameters";
      f.data = r.take(r.number());
      return f;
    case PING:
    case PONG:
      f.type = wide === PING ? "ping" : "pong";
      f.value = r.number();
      return f;
  }
  const type = Number(wide);
  f.type = type;
  switch (type) {
    case 0:
      f.type = "padding";
      return f;
    case FrameType.RESET:
    case FrameType.RESET_AT:
      [f.id, f.code, f.value] = [r.number(), r.number(), r.number()];
      if (type === FrameType.RESET_AT) {
        f.at = r.number();
        if (f.at > f.value) throw encodingError("RESET_STREAM_AT beyond the final size");
      }
      return f;
    case FrameType.STOP_SENDING:
      [f.id, f.code] = [r.number(), r.number()];
      return f;
    case FrameType.MAX_STREAM_DATA:
    case FrameType.STREAM_DATA_BLOCKED:
      [f.id, f.value] = [r.number(), r.number()];
      return f;
    case FrameType.MAX_DATA:
    case FrameType.DATA_BLOCKED:
      f.value = r.number();
      return f;
    case FrameType.MAX_STREAMS_BIDI:
    case FrameType.MAX_STREAMS_UNI:
    case FrameType.STREAMS_BLOCKED:
    case FrameType.STREAMS_BLOCKED + 1:
      if (type > FrameType.STREAMS_BLOCKED) f.type = FrameType.STREAMS_BLOCKED;
      f.value = r.number();
      if (f.value > 2 ** 60) throw encodingError("limit on streams above 2^60");
      return f;
    case FrameType.CLOSE:
    case FrameType.CLOSE_APPLICATION:
      f.code = r.number();
      if (type === FrameType.CLOSE) r.big(); // the frame type that caused it
      f.data = r.take(r.number());
      return f;
    case FrameType.DATAGRAM:
      f.data = r.take(r.left);
      return f;
    case FrameType.DATAGRAM_LENGTH:
      f.type = FrameType.DATAGRAM;
      f.data = r.take(r.number());
      return f;
  }
  if ((type & ~0x07) !== FrameType.STREAM || type > 0x0f) throw encodingError(`frame of type 0x${wide.toString(16)}`);
  f.type = FrameType.STREAM;
  f.id = r.number();
  f.fin = (type & 0x01) !== 0;
  if (type & 0x04) f.value = r.number();
  f.data = r.take(type & 0x02 ? r.number() : r.left);
  return f;
}

/** Decodes a record. */
export function decodeRecord(b: Uint8Array<ArrayBuffer>): Frame[] {
  if (b.length > MAX_RECORD) throw encodingError("record larger than max_record_size");
  const frames: Frame[] = [];
  for (const r = new Input(b); r.left > 0; ) {
    const f = readFrame(r);
    if (f.type !== "padding") frames.push(f);
  }
  return frames;
}

export function encodeFrame(out: Output, f: Frame): Output {
  switch (f.type) {
    case "padding":
      return out.number(0);
    case "parameters":
      return out.number(PARAMETERS, f.data.length).data(f.data);
    case "ping":
    case "pong":
      return out.number(f.type === "ping" ? PING : PONG, f.value);
    case FrameType.STREAM:
      return out.number(0x0e | (f.fin ? 1 : 0), f.id, f.value, f.data.length).data(f.data);
    case FrameType.RESET:
      return out.number(f.type, f.id, f.code, f.value);
    case FrameType.RESET_AT:
      return out.number(f.type, f.id, f.code, f.value, f.at);
    case FrameType.STOP_SENDING:
      return out.number(f.type, f.id, f.code);
    case FrameType.MAX_STREAM_DATA:
    case FrameType.STREAM_DATA_BLOCKED:
      return out.number(f.type, f.id, f.value);
    case FrameType.CLOSE:
      return out.number(f.type, f.code, 0, f.data.length).data(f.data);
    case FrameType.CLOSE_APPLICATION:
      return out.number(f.type, f.code, f.data.length).data(f.data);
    case FrameType.DATAGRAM:
      return out.number(FrameType.DATAGRAM_LENGTH, f.data.length).data(f.data);
    default:
      return out.number(f.type, f.value);
  }
}

const frame = (type: Frame["type"], fields: Partial<Frame> = {}): Frame => ({
  type, id: 0, value: 0, code: 0, at: 0, data: NONE, fin: false, ...fields,
});

const codeOf = (why: unknown): number => {
  const code = (why as { streamErrorCode?: unknown } | undefined)?.streamErrorCode;
  return typeof code === "number" ? code : 0;
};

/** The receiving direction of a stream. */
class Receiver {
  readonly readable: ReadableStream<Uint8Array>;
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  readonly #unread: Uint8Array[] = [];
  #pulled: (() => void) | undefined;
  received = 0;
  #read = 0;
  limit = STREAM_WINDOW;
  #end: "fin" | StreamReset | undefined;
  #stopped = false;
  over = false;

  constructor(
    readonly mux: QMuxSocket,
    readonly id: number,
  ) {
    this.readable = new ReadableStream<Uint8Array>(
      {
        start: (c) => void (this.#controller = c),
        pull: () => {
          if (this.#deliver()) return undefined;
          return new Promise<void>((resolve) => (this.#pulled = resolve));
        },
        cancel: (why) => this.#stop(codeOf(why)),
      },
      { highWaterMark: 0 },
    );
  }

  /** Passes the next piece, or the end, to the reader. Returns false if nothing has arrived. */
  #deliver(): boolean {
    const next = this.#unread.shift();
    if (next) {
      this.#consume(next.length);
      this.#controller.enqueue(next);
      return true;
    }
    if (this.#end === undefined) return false;
    if (this.#end === "fin") this.#controller.close();
    else this.#controller.error(this.#end);
    this.#complete();
    return true;
  }

  #wake(): void {
    if (!this.#pulled || !this.#deliver()) return;
    this.#pulled();
    this.#pulled = undefined;
  }

  #consume(n: number): void {
    this.#read += n;
    this.mux.consumed(n);
    if (this.#read + STREAM_WINDOW - this.limit < STREAM_WINDOW / 4 || this.#end || this.#stopped) return;
    this.limit = this.#read + STREAM_WINDOW;
    this.mux.send(frame(FrameType.MAX_STREAM_DATA, { id: this.id, value: this.limit }));
  }

  #complete(): void {
    if (this.over) return;
    this.over = true;
    this.mux.receiverDone(this.id);
  }

  #stop(code: number): void {
    if (this.#stopped || this.over) return;
    this.#stopped = true;
    for (const b of this.#unread.splice(0)) this.#consume(b.length);
    if (this.#end) this.#complete();
    else this.mux.send(frame(FrameType.STOP_SENDING, { id: this.id, code }));
  }

  data(f: Frame): void {
    this.#unended();
    if (f.value !== this.received)
      throw new TransportError(TransportCode.PROTOCOL_VIOLATION, `stream ${this.id} is not in order`);
    this.#advance(f.value + f.data.length);
    if (f.fin) this.#end = "fin";
    if (this.#stopped) {
      this.#consume(f.data.length);
      if (f.fin) this.#complete();
      return;
    }
    if (f.data.length > 0) {
      // A view keeps its whole record in memory, so copy small parts.
      const keep = 2 * f.data.length >= f.data.buffer.byteLength;
      this.#unread.push(keep ? f.data : f.data.slice());
    }
    this.#wake();
  }

  reset(f: Frame): void {
    this.#unended();
    if (f.value < this.received)
      throw new TransportError(TransportCode.FINAL_SIZE_ERROR, `reset of stream ${this.id} below its size`);
    const missing = f.value - this.received;
    this.#advance(f.value);
    this.#end = new StreamReset(f.code);
    this.mux.consumed(missing);
    if (this.#stopped) this.#complete();
    else this.#wake();
  }

  #unended(): void {
    if (this.#end) throw new TransportError(TransportCode.FINAL_SIZE_ERROR, `frame after the end of stream ${this.id}`);
  }

  #advance(end: number): void {
    if (end > this.limit)
      throw new TransportError(TransportCode.FLOW_CONTROL_ERROR, `stream ${this.id} exceeds its window`);
    this.mux.count(end - this.received);
    this.received = end;
  }

  fail(why: Error): void {
    if (this.over) return;
    this.over = true;
    this.#unread.length = 0;
    try {
      this.#controller.error(why);
    } catch {
      // Cancelled or closed.
    }
    this.#pulled?.();
  }
}

/** The sending direction of a stream. */
class Sender {
  readonly writable: WritableStream<Uint8Array>;
  #controller!: WritableStreamDefaultController;
  #waiting: { data: Uint8Array; taken: () => void } | undefined;
  #fin: (() => void) | undefined;
  offset = 0;
  over = false;

  constructor(
    readonly mux: QMuxSocket,
    readonly id: number,
    public limit: number,
  ) {
    this.writable = new WritableStream<Uint8Array>({
      start: (c) => void (this.#controller = c),
      write: (data) => new Promise<void>((taken) => {
        this.#waiting = { data, taken };
        mux.flush(this);
      }),
      close: () => new Promise<void>((closed) => {
        this.#fin = closed;
        mux.flush(this);
      }),
      abort: (why) => this.reset(codeOf(why)),
    });
  }

  /** Sends what the limits allow. Returns false if something is left. */
  flush(): boolean {
    while (this.#waiting && !this.over) {
      const { data, taken } = this.#waiting;
      const n = Math.min(data.length, MAX_RECORD - 32, this.limit - this.offset, this.mux.credit);
      if ((n <= 0 && data.length > 0) || this.mux.full) return false;
      if (n > 0) {
        this.mux.spend(n);
        const part = data.subarray(0, n) as Uint8Array<ArrayBuffer>;
        this.mux.send(frame(FrameType.STREAM, { id: this.id, value: this.offset, data: part }));
        this.offset += n;
      }
      if (n === data.length) {
        this.#waiting = undefined;
        taken();
      } else this.#waiting.data = data.subarray(n);
    }
    if (this.#fin && !this.over) {
      this.mux.send(frame(FrameType.STREAM, { id: this.id, value: this.offset, fin: true }));
      this.#done();
      this.#fin();
    }
    return true;
  }

  reset(code: number): void {
    if (this.over) return;
    this.mux.send(frame(FrameType.RESET, { id: this.id, code, value: this.offset }));
    this.#done();
  }

  #done(): void {
    this.over = true;
    this.#waiting?.taken();
    this.#waiting = undefined;
    this.mux.senderDone(this.id);
  }

  /** The peer wants nothing more, or the connection has ended. */
  fail(why: Error): void {
    this.over = true;
    this.#waiting?.taken();
    this.#fin?.();
    this.#waiting = this.#fin = undefined;
    this.#controller.error(why);
  }
}

const [BIDI, UNI] = [0, 1];

/** A QMux connection, the client's end. */
export class QMuxSocket implements Transport {
  readonly ready: Promise<void>;
  readonly closed: Promise<WebTransportCloseInfo>;
  readonly incomingUnidirectionalStreams: ReadableStream<ReadableStream<Uint8Array>>;
  readonly incomingBidirectionalStreams: ReadableStream<Bidirectional>;
  readonly datagrams: { readable: ReadableStream<Uint8Array>; writable: WritableStream<Uint8Array>;
    incomingHighWaterMark: number };
  /** The protocol on top, once ready. */
  protocol = "";
  readonly #socket: WebSocket;
  #peer: Parameters | undefined;
  #isReady!: () => void;
  #failed!: (why: Error) => void;
  #closedBy!: (info: WebTransportCloseInfo) => void;
  #cut!: (why: Error) => void;
  #over: Error | undefined;
  #unis!: ReadableStreamDefaultController<ReadableStream<Uint8Array>>;
  #bidis!: ReadableStreamDefaultController<Bidirectional>;
  #incoming!: ReadableStreamDefaultController<Uint8Array>;
  readonly #receivers = new Map<number, Receiver>();
  readonly #senders = new Map<number, Sender>();
  readonly #blocked = new Set<Sender>();
  #poll: ReturnType<typeof setTimeout> | undefined;
  /** By kind: our streams and the peer's limit on them, the peer's and ours, and those of its that ended. */
  readonly #opened = [0, 0];
  readonly #maxOpen = [0, 0];
  readonly #accepted = [0, 0];
  readonly #maxAccept = [STREAMS, STREAMS];
  readonly #finished = [0, 0];
  #opening: (() => void)[] = [];
  #sent = 0;
  #maxSent = 0;
  #received = 0;
  #read = 0;
  #maxReceived = WINDOW;
  #first = true;
  #heard = performance.now();
  #ping = 0;
  #pinged: number | undefined;
  #heardPing = -1;
  readonly #timer: ReturnType<typeof setInterval>;
  #rtt = Infinity;
  #minRtt = Infinity;

  /** `protocols` are those on top, preferred first. */
  constructor(url: string, protocols: readonly string[]) {
    this.ready = new Promise((resolve, reject) => ([this.#isReady, this.#failed] = [resolve, reject]));
    this.closed = new Promise((resolve, reject) => ([this.#closedBy, this.#cut] = [resolve, reject]));
    this.ready.catch(() => {});
    this.closed.catch(() => {});
    this.incomingUnidirectionalStreams = new ReadableStream({ start: (c) => void (this.#unis = c) });
    this.incomingBidirectionalStreams = new ReadableStream({ start: (c) => void (this.#bidis = c) });
    const datagrams = { incomingHighWaterMark: 1 };
    this.datagrams = Object.assign(datagrams, {
      readable: new ReadableStream<Uint8Array>(
        { start: (c) => void (this.#incoming = c) },
        { highWaterMark: 0 },
      ),
      writable: new WritableStream<Uint8Array>({ write: (b) => this.#sendDatagram(b) }),
    });
    const subprotocols = protocols.flatMap((p) => [`qmux-02.${p}`, `qmux-01.${p}`]);
    this.#socket = new WebSocket(url, subprotocols);
    this.#socket.binaryType = "arraybuffer";
    this.#socket.onopen = () => this.#begin();
    this.#socket.onmessage = (m) => this.#message(m.data as unknown);
    this.#socket.onclose = () => this.#fail(new Error("the connection was cut"));
    this.#timer = setInterval(() => this.#tick(), PING_EVERY);
  }

  #begin(): void {
    this.protocol = this.#socket.protocol.replace(/^qmux-0[12]\./, "");
    const local = encodeParameters({
      idle: IDLE, data: WINDOW, bidiLocal: STREAM_WINDOW, bidiRemote: STREAM_WINDOW, uni: STREAM_WINDOW,
      streamsBidi: STREAMS, streamsUni: STREAMS, datagram: MAX_RECORD, record: MAX_RECORD, resetAt: true,
    });
    this.send(frame("parameters", { data: local as Uint8Array<ArrayBuffer> }));
  }

  #message(data: unknown): void {
    if (this.#over) return;
    this.#heard = performance.now();
    try {
      if (!(data instanceof ArrayBuffer)) throw encodingError("a text message");
      for (const f of decodeRecord(new Uint8Array(data))) {
        if (this.#first !== (f.type === "parameters"))
          throw new TransportError(TransportCode.PROTOCOL_VIOLATION, "transport parameters are not the first frame");
        this.#first = false;
        this.#handle(f);
        if (this.#over) return;
      }
    } catch (e) {
      const why = e instanceof Error ? e : new Error(String(e));
      if (why instanceof TransportError)
        this.send(frame(FrameType.CLOSE, { code: why.code, data: text(why.message) }));
      this.#fail(why);
    }
  }

  #handle(f: Frame): void {
    switch (f.type) {
      case "parameters":
        this.#peer = decodeParameters(f.data);
        this.#maxSent = this.#peer.data;
        this.#maxOpen[BIDI] = this.#peer.streamsBidi;
        this.#maxOpen[UNI] = this.#peer.streamsUni;
        this.#isReady();
        this.#tick();
        break;
      case "ping":
        if (f.value <= this.#heardPing) throw new TransportError(TransportCode.PROTOCOL_VIOLATION, "ping out of order");
        this.#heardPing = f.value;
        this.send(frame("pong", { value: f.value }));
        break;
      case "pong":
        this.#ponged(f.value);
        break;
      case FrameType.STREAM:
        this.#receiver(f.id).data(f);
        break;
      case FrameType.RESET:
      case FrameType.RESET_AT:
        this.#receiver(f.id).reset(f);
        break;
      case FrameType.STOP_SENDING: {
        const s = this.#senders.get(f.id);
        if (!s) break;
        s.reset(f.code);
        s.fail(new StreamReset(f.code));
        break;
      }
      case FrameType.MAX_DATA:
        this.#maxSent = Math.max(this.#maxSent, f.value);
        this.#flushAll();
        break;
      case FrameType.MAX_STREAM_DATA: {
        const s = this.#senders.get(f.id);
        if (!s) break;
        s.limit = Math.max(s.limit, f.value);
        this.#flushAll();
        break;
      }
      case FrameType.MAX_STREAMS_BIDI:
      case FrameType.MAX_STREAMS_UNI: {
        const kind = f.type - FrameType.MAX_STREAMS_BIDI;
        this.#maxOpen[kind] = Math.max(this.#maxOpen[kind]!, f.value);
        for (const wake of this.#opening.splice(0)) wake();
        break;
      }
      case FrameType.DATAGRAM:
        if (-(this.#incoming.desiredSize ?? 0) < this.datagrams.incomingHighWaterMark)
          this.#incoming.enqueue(f.data.slice());
        break;
      case FrameType.CLOSE_APPLICATION: {
        const reason = new TextDecoder().decode(f.data.subarray(0, MAX_REASON));
        this.#closedBy({ closeCode: f.code, reason });
        this.#fail(new Error(reason || "the peer closed the connection"));
        break;
      }
      case FrameType.CLOSE:
        throw new Error(new TextDecoder().decode(f.data.subarray(0, MAX_REASON)) || `transport error ${f.code}`);
    }
  }

  #receiver(id: number): Receiver {
    const known = this.#receivers.get(id);
    if (known) return known;
    const kind = (id >> 1) & 1;
    const number = Math.floor(id / 4);
    if ((id & 1) === 0 || number < this.#accepted[kind]!)
      throw new TransportError(TransportCode.STREAM_STATE_ERROR, `stream ${id} is not open`);
    if (number >= this.#maxAccept[kind]!)
      throw new TransportError(TransportCode.STREAM_LIMIT_ERROR, `stream ${id} exceeds the limit`);
    for (; this.#accepted[kind]! <= number; this.#accepted[kind]!++) {
      const next = this.#accepted[kind]! * 4 + (id & 3);
      const r = new Receiver(this, next);
      this.#receivers.set(next, r);
      if (kind === UNI) {
        this.#unis.enqueue(r.readable);
        continue;
      }
      const { writable } = this.#addSender(next, this.#peer!.bidiLocal);
      this.#bidis.enqueue({ readable: r.readable, writable });
    }
    return this.#receivers.get(id)!;
  }

  #addSender(id: number, limit: number): Sender {
    const s = new Sender(this, id, limit);
    this.#senders.set(id, s);
    return s;
  }

  async #open(kind: number): Promise<number> {
    await this.ready;
    while (!this.#over && this.#opened[kind]! >= this.#maxOpen[kind]!)
      await new Promise<void>((resolve) => this.#opening.push(resolve));
    if (this.#over) throw this.#over;
    return this.#opened[kind]!++ * 4 + kind * 2;
  }

  async createUnidirectionalStream(): Promise<WritableStream<Uint8Array>> {
    return this.#addSender(await this.#open(UNI), this.#peer!.uni).writable;
  }

  async createBidirectionalStream(): Promise<Bidirectional> {
    const id = await this.#open(BIDI);
    const r = new Receiver(this, id);
    this.#receivers.set(id, r);
    return { readable: r.readable, writable: this.#addSender(id, this.#peer!.bidiRemote).writable };
  }

  /** A datagram is dropped while the socket's queue is full. */
  #sendDatagram(b: Uint8Array): void {
    if (!this.#peer || this.full || b.length + 5 > Math.min(this.#peer.datagram, MAX_RECORD)) return;
    this.send(frame(FrameType.DATAGRAM, { data: b as Uint8Array<ArrayBuffer> }));
  }

  /** Round-trip times of pings, ms, as in WebTransport's statistics. */
  getStats(): Promise<{ smoothedRtt?: number; minRtt?: number }> {
    const known = Number.isFinite(this.#rtt);
    return Promise.resolve(known ? { smoothedRtt: this.#rtt, minRtt: this.#minRtt } : {});
  }

  close(info: WebTransportCloseInfo = {}): void {
    if (this.#over) return;
    const reason = text(info.reason ?? "");
    if (this.#socket.readyState === WebSocket.OPEN)
      this.send(frame(FrameType.CLOSE_APPLICATION, { code: info.closeCode ?? 0, data: reason }));
    this.#closedBy(info);
    this.#fail(new Error("closed"));
  }

  #fail(why: Error): void {
    if (this.#over) return;
    this.#over = why;
    clearInterval(this.#timer);
    clearTimeout(this.#poll);
    this.#failed(why);
    this.#cut(why); // no effect after #closedBy
    this.#socket.close();
    for (const r of this.#receivers.values()) r.fail(why);
    for (const s of this.#senders.values()) s.fail(why);
    this.#receivers.clear();
    this.#senders.clear();
    for (const wake of this.#opening.splice(0)) wake();
    for (const c of [this.#unis, this.#bidis, this.#incoming]) {
      try {
        c.error(why);
      } catch {
        // Cancelled.
      }
    }
  }

  #tick(): void {
    if (performance.now() - this.#heard > Math.min(IDLE, this.#peer?.idle || IDLE)) {
      this.#fail(new Error("the relay is silent"));
      return;
    }
    if (!this.#peer || this.#pinged !== undefined) return;
    this.#pinged = performance.now();
    this.send(frame("ping", { value: ++this.#ping }));
  }

  #ponged(sequence: number): void {
    if (sequence > this.#ping) throw new TransportError(TransportCode.PROTOCOL_VIOLATION, "answer to no ping");
    if (sequence < this.#ping || this.#pinged === undefined) return;
    const sample = performance.now() - this.#pinged;
    this.#pinged = undefined;
    this.#rtt = Number.isFinite(this.#rtt) ? this.#rtt + (sample - this.#rtt) / 8 : sample;
    this.#minRtt = Math.min(this.#minRtt, sample);
  }

  /** @internal Sends a frame in a record of its own. */
  send(f: Frame): void {
    if (this.#over || this.#socket.readyState !== WebSocket.OPEN) return;
    this.#socket.send(encodeFrame(new Output(), f).bytes);
  }

  /** @internal True while streams and datagrams have to wait for the socket. */
  get full(): boolean {
    return this.#socket.bufferedAmount > MAX_QUEUED;
  }

  /** @internal Bytes that streams may still send. */
  get credit(): number {
    return this.#maxSent - this.#sent;
  }

  /** @internal */
  spend(bytes: number): void {
    this.#sent += bytes;
  }

  /** @internal Sends what a stream has, now or once the socket and the peer take it. */
  flush(s: Sender): void {
    if (s.flush()) {
      this.#blocked.delete(s);
      return;
    }
    this.#blocked.add(s);
    if (this.full) this.#poll ??= setTimeout(() => {
      this.#poll = undefined;
      this.#flushAll();
    }, QUEUE_POLL);
  }

  #flushAll(): void {
    for (const s of [...this.#blocked]) this.flush(s);
  }

  /** @internal Counts received bytes of streams. */
  count(bytes: number): void {
    this.#received += bytes;
    if (this.#received > this.#maxReceived)
      throw new TransportError(TransportCode.FLOW_CONTROL_ERROR, "data exceeds the connection's window");
  }

  /** @internal Extends the connection's window after bytes were read. */
  consumed(bytes: number): void {
    this.#read += bytes;
    if (this.#read + WINDOW - this.#maxReceived < WINDOW / 4) return;
    this.#maxReceived = this.#read + WINDOW;
    this.send(frame(FrameType.MAX_DATA, { value: this.#maxReceived }));
  }

  /** @internal */
  receiverDone(id: number): void {
    this.#receivers.delete(id);
    this.#halfDone(id, this.#senders.has(id));
  }

  /** @internal */
  senderDone(id: number): void {
    this.#senders.delete(id);
    this.#halfDone(id, this.#receivers.has(id));
  }

  /** Lets the peer open another stream once both directions of one of its own have ended. */
  #halfDone(id: number, otherOpen: boolean): void {
    if ((id & 1) === 0 || otherOpen) return;
    const kind = (id >> 1) & 1;
    this.#finished[kind]!++;
    const limit = this.#finished[kind]! + STREAMS;
    if (limit - this.#maxAccept[kind]! < STREAMS / 4) return;
    this.#maxAccept[kind] = limit;
    this.send(frame(FrameType.MAX_STREAMS_BIDI + kind, { value: limit }));
  }
}

const text = (s: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(s.slice(0, MAX_REASON / 4));
