/**
 * Data streams and datagrams (§11). Parsers accept a stream in pieces of any size and buffer at
 * most one incomplete header.
 */
import { Reader, ShortError, Writer } from "./bytes.ts";
import { MalformedTrackError, violation } from "./codes.ts";
import { readProperties, UnknownMandatoryError, type Properties } from "./message.ts";
import { WireError, SessionCode } from "./codes.ts";

const STREAM_FETCH = 0x05;
const STREAM_SETUP = 0x2f00;
const STREAM_PADDING = 0x132b3e28;
const DATAGRAM_PADDING = 0x132b3e29n;
/** Maximum size of an object's properties, bytes. The draft sets no limit. */
const MAX_PROPERTIES = 65535;

export type StreamHeader =
  | { readonly type: "subgroup"; readonly header: SubgroupHeader }
  | { readonly type: "fetch"; readonly request: bigint }
  | { readonly type: "padding" }
  | { readonly type: "setup" };

/** Header of a subgroup stream (§11.4.2). */
export interface SubgroupHeader {
  readonly alias: bigint;
  readonly group: bigint;
  /** undefined if it equals the first object's ID. */
  readonly subgroup: bigint | undefined;
  /** undefined: the track's default priority. */
  readonly priority: number | undefined;
  readonly hasProperties: boolean;
  readonly endOfGroup: boolean;
}

export type ObjectStatus = "normal" | "endOfGroup" | "endOfTrack";

/** Header of an object; `length` bytes of payload follow. */
export interface ObjectHeader {
  readonly group: bigint;
  readonly subgroup: bigint;
  readonly id: bigint;
  readonly priority: number | undefined;
  readonly status: ObjectStatus;
  readonly length: bigint;
  readonly properties: Properties;
  /** True for a fetched object that was published as a datagram. */
  readonly datagram?: boolean;
}

/** Receives parsed objects. */
export interface ObjectSink {
  object(header: ObjectHeader): void;
  /** Part of the current object's payload. Valid only during the call. */
  payload(bytes: Uint8Array): void;
}

/** Reads the first bytes of a unidirectional stream (§3.4). Throws ShortError if incomplete. */
export function readStreamHeader(r: Reader): StreamHeader {
  const type = Number(r.varint());
  if (type === STREAM_FETCH) return { type: "fetch", request: r.varint() };
  if (type === STREAM_SETUP) return { type: "setup" };
  if (type === STREAM_PADDING) return { type: "padding" };
  if (type >= 0x80 || (type & 0x10) === 0) throw violation(`unknown stream type 0x${type.toString(16)}`);
  const mode = (type >> 1) & 3;
  if (mode === 3) throw violation(`reserved subgroup header type 0x${type.toString(16)}`);
  const alias = r.varint();
  const group = r.varint();
  const subgroup = mode === 0 ? 0n : mode === 1 ? undefined : r.varint();
  const priority = type & 0x20 ? undefined : r.u8();
  const header = { alias, group, subgroup, priority, hasProperties: (type & 1) !== 0, endOfGroup: (type & 8) !== 0 };
  return { type: "subgroup", header };
}

const none: Properties = {};

function objectProperties(r: Reader): Properties {
  const n = r.int(MAX_PROPERTIES, "length of the object's properties");
  if (n === 0) return none;
  try {
    return readProperties(new Reader(r.take(n)), false);
  } catch (e) {
    if (e instanceof UnknownMandatoryError) throw new MalformedTrackError(e.message);
    if (e instanceof WireError && e.code === SessionCode.KEY_VALUE_FORMATTING_ERROR)
      throw new MalformedTrackError(e.message);
    throw e;
  }
}

function objectStatus(v: bigint): ObjectStatus {
  if (v === 0n) return "normal";
  if (v === 3n) return "endOfGroup";
  if (v === 4n) return "endOfTrack";
  throw violation(`unknown object status 0x${v.toString(16)}`);
}

/** Feeds stream bytes to a header parser and payloads to a sink. */
abstract class ObjectParser {
  #rest: Uint8Array = new Uint8Array(0);
  #payload = 0n;

  constructor(protected readonly sink: ObjectSink) {}

  /**
   * Reads one header and returns its payload length. Throws ShortError without side effects if
   * incomplete.
   */
  protected abstract header(r: Reader): bigint;

  push(chunk: Uint8Array): void {
    let buf = chunk;
    if (this.#rest.length > 0) {
      buf = new Uint8Array(this.#rest.length + chunk.length);
      buf.set(this.#rest);
      buf.set(chunk, this.#rest.length);
    }
    let at = 0;
    while (at < buf.length) {
      if (this.#payload > 0n) {
        const left = buf.length - at;
        const n = this.#payload < BigInt(left) ? Number(this.#payload) : left;
        this.sink.payload(buf.subarray(at, at + n));
        this.#payload -= BigInt(n);
        at += n;
        continue;
      }
      const r = new Reader(at === 0 ? buf : buf.subarray(at));
      try {
        this.#payload = this.header(r);
      } catch (e) {
        if (!(e instanceof ShortError)) throw e;
        break;
      }
      at += r.pos;
    }
    this.#rest = at < buf.length ? buf.slice(at) : buf.subarray(0, 0);
  }

  /** True if the bytes so far end at an object boundary. */
  get boundary(): boolean {
    return this.#payload === 0n && this.#rest.length === 0;
  }
}

/** Parses the objects after the header of a subgroup stream. */
export class SubgroupParser extends ObjectParser {
  #prev: bigint | undefined;
  #subgroup: bigint | undefined;
  #ended = false;

  constructor(
    readonly stream: SubgroupHeader,
    sink: ObjectSink,
  ) {
    super(sink);
    this.#subgroup = stream.subgroup;
  }

  protected header(r: Reader): bigint {
    const delta = r.varint();
    if (this.#ended) throw new MalformedTrackError("object after the end of its group");
    const id = this.#prev === undefined ? delta : this.#prev + 1n + delta;
    if (id >= 1n << 64n) throw violation("object ID exceeds 2^64-1");
    const properties = this.stream.hasProperties ? objectProperties(r) : none;
    const length = r.varint();
    const status = length === 0n ? objectStatus(r.varint()) : "normal";
    if (status !== "normal" && properties !== none) throw violation("properties on an object that is a status");
    this.#prev = id;
    this.#subgroup ??= id;
    this.#ended = status !== "normal";
    this.sink.object({
      group: this.stream.group,
      subgroup: this.#subgroup,
      id,
      priority: this.stream.priority,
      status,
      length,
      properties,
    });
    return length;
  }
}

/** Parses the objects after the header of a fetch stream (§11.4.4), in ascending order. */
export class FetchParser extends ObjectParser {
  #prior: { group: bigint; id: bigint } | undefined;
  #subgroup: bigint | undefined;
  #priority: number | undefined;

  /** `timedOut` permits the range of objects that were not available in time (draft-22 §11.4.1.2). */
  constructor(
    sink: ObjectSink,
    private readonly timedOut = false,
  ) {
    super(sink);
  }

  protected header(r: Reader): bigint {
    const flags = Number(r.varint());
    const prior = this.#prior;
    if (flags === 0x8c || flags === 0x10c || (flags === 0x20c && this.timedOut)) {
      const group = r.varint();
      const id = r.varint();
      this.#follow(group, id);
      this.#prior = { group, id };
      return 0n;
    }
    if (flags > 0x7f) throw violation(`fetch serialization flags 0x${flags.toString(16)}`);
    if (!prior && (flags & 0x0c) !== 0x0c) throw violation("first fetch object without group and object ID");
    let group = prior?.group ?? 0n;
    if (flags & 0x08) group = prior ? prior.group + r.varint() + 1n : r.varint();
    const datagram = (flags & 0x40) !== 0;
    let subgroup: bigint | undefined;
    if (!datagram) {
      const mode = flags & 3;
      if (mode === 0) subgroup = 0n;
      else if (mode === 3) subgroup = r.varint();
      else if (this.#subgroup === undefined) throw violation("fetch object refers to a prior subgroup");
      else subgroup = this.#subgroup + BigInt(mode - 1);
    }
    let id: bigint;
    if (!(flags & 0x04)) id = prior!.id + 1n;
    else if (flags & 0x08) id = r.varint();
    else id = prior!.id + r.varint();
    if (group >= 1n << 64n || id >= 1n << 64n) throw violation("fetch location exceeds 2^64-1");
    const priority = flags & 0x10 ? r.u8() : this.#priority;
    if (priority === undefined) throw violation("fetch object refers to a prior priority");
    const properties = flags & 0x20 ? objectProperties(r) : none;
    const length = r.varint();
    this.#follow(group, id);
    this.#prior = { group, id };
    this.#subgroup = subgroup;
    this.#priority = priority;
    this.sink.object({ group, subgroup: subgroup ?? 0n, id, priority, status: "normal", length, properties, datagram });
    return length;
  }

  #follow(group: bigint, id: bigint): void {
    const p = this.#prior;
    if (p && (group < p.group || (group === p.group && id <= p.id))) {
      throw violation(`fetch object {${group}, ${id}} is not after {${p.group}, ${p.id}}`);
    }
  }
}

/** An object received as a datagram (§11.3.1). */
export interface Datagram {
  readonly alias: bigint;
  readonly group: bigint;
  readonly object: bigint;
  /** undefined: the track's default priority. */
  readonly priority: number | undefined;
  /** Last object of its group. */
  readonly endOfGroup: boolean;
  readonly status: ObjectStatus;
  readonly properties: Properties;
  readonly payload: Uint8Array;
}

/** Parses a datagram; returns null for padding (§11.5.2). The payload is a view. */
export function parseDatagram(b: Uint8Array): Datagram | null {
  const r = new Reader(b);
  try {
    const type = r.varint();
    if (type === DATAGRAM_PADDING) return null;
    const t = Number(type);
    if (t > 0x2f || t & 0x10 || (t & 0x22) === 0x22) throw violation(`unknown datagram type 0x${t.toString(16)}`);
    const alias = r.varint();
    const group = r.varint();
    const object = t & 0x04 ? 0n : r.varint();
    const priority = t & 0x08 ? undefined : r.u8();
    let properties = none;
    if (t & 0x01) {
      const before = r.pos;
      properties = objectProperties(r);
      if (r.pos === before + 1) throw violation("datagram with empty properties");
    }
    let status: ObjectStatus = "normal";
    if (t & 0x20) {
      status = objectStatus(r.varint());
      if (r.left > 0) throw violation(`${r.left} bytes after the status of a datagram`);
      if (status !== "normal" && properties !== none) throw violation("properties on an object that is a status");
    }
    const endOfGroup = (t & 0x02) !== 0;
    return { alias, group, object, priority, endOfGroup, status, properties, payload: r.take(r.left) };
  } catch (e) {
    if (e instanceof ShortError) throw violation("datagram ends inside a field");
    throw e;
  }
}

/** Encodes a datagram that the peer discards (§11.5.2). */
export function encodePadding(): Uint8Array<ArrayBuffer> {
  const w = new Writer();
  w.varint(DATAGRAM_PADDING);
  return w.finish();
}

/** Encodes an object as a datagram. */
export function encodeDatagram(
  alias: bigint,
  group: bigint,
  priority: number,
  payload: Uint8Array,
): Uint8Array<ArrayBuffer> {
  const w = new Writer();
  w.varint(0x04); // object ID 0
  w.varint(alias);
  w.varint(group);
  w.u8(priority);
  w.raw(payload);
  return w.finish();
}
