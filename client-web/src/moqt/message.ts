/**
 * Control messages of draft-ietf-moq-transport-18 to -22 §10. Encodes the messages that a viewer
 * sends and parses the messages that it may receive. Section numbers are draft-18's unless noted.
 */
import { Reader, ShortError, Writer } from "./bytes.ts";
import { violation, WireError, SessionCode } from "./codes.ts";

/** Protocol draft. This file and the session depend on it where drafts differ. */
export type Version = 18 | 19 | 20 | 21 | 22;

/** Supported drafts, preferred first. */
export const versions: readonly Version[] = [22, 21, 20, 19, 18];

/** ALPN identifier of a draft (§3.1). */
export function protocolOf(v: Version): string {
  return `moqt-${v}`;
}

/** Returns the draft of an ALPN identifier; undefined if unsupported. */
export function versionOf(protocol: string): Version | undefined {
  return versions.find((v) => protocolOf(v) === protocol);
}

/** A track namespace, which has 0 to 32 non-empty fields (§2.4.1). */
export type Namespace = readonly string[];

/** A full track name. */
export interface TrackName {
  readonly namespace: Namespace;
  readonly name: string;
}

export function trackKey(t: TrackName): string {
  return JSON.stringify([t.namespace, t.name]);
}

/** Position of an object in its track (§1.4.2). */
export interface Location {
  readonly group: bigint;
  readonly object: bigint;
}

export const MessageType = {
  REQUEST_UPDATE: 0x2,
  SUBSCRIBE: 0x3,
  SUBSCRIBE_OK: 0x4,
  REQUEST_ERROR: 0x5,
  REQUEST_OK: 0x7,
  NAMESPACE: 0x8,
  PUBLISH_DONE: 0xb,
  NAMESPACE_DONE: 0xe,
  GOAWAY: 0x10,
  FETCH: 0x16,
  FETCH_OK: 0x18,
  PUBLISH: 0x1d,
  PUBLISH_STATE_NOTIFY: 0x22, // from draft-20 on
  PUBLISH_OK: 0x1e, // listed in the draft but never sent; read as REQUEST_OK
  SUBSCRIBE_NAMESPACE: 0x50,
  SETUP: 0x2f00,
} as const;

/** Request types that a peer may open and this library refuses with NOT_SUPPORTED. */
const peerRequests = new Set<number>([0x3, 0x6, 0xd, 0x16, 0x1d, 0x50, 0x51]);

const MAX_NAMESPACE_FIELDS = 32;
const MAX_FULL_NAME = 4096;
const MAX_REASON = 1024;
const MAX_URI = 8192;
const MAX_PAIR = 65535;

// Message parameters, §15.7.
const param = {
  objectDeliveryTimeout: 0x02,
  authorizationToken: 0x03,
  rendezvousTimeout: 0x04,
  subgroupDeliveryTimeout: 0x06,
  expires: 0x08,
  largestObject: 0x09,
  fillTimeout: 0x0a,
  forward: 0x10,
  subscriberPriority: 0x20,
  filter: 0x21,
  groupOrder: 0x22,
  fill: 0x23,
  newGroupRequest: 0x32,
  namespacePrefix: 0x34,
} as const;

/**
 * Subscription filters (§5.1.2). "nextGroup" starts at the next group and "largestObject" after the
 * largest object. "none" sends no filter: all objects are delivered from now on.
 */
export type Filter = "none" | "nextGroup" | "largestObject";

export interface SubscribeOptions {
  readonly filter?: Filter;
  /** First group to deliver (AbsoluteStart); replaces the filter. */
  readonly start?: bigint;
  /** From 0, the most important, to 255; 128 by default (§7). */
  readonly priority?: number;
  /** Milliseconds after which the publisher may drop an undelivered object, or subgroup. */
  readonly objectDeliveryTimeout?: number;
  readonly subgroupDeliveryTimeout?: number;
  /** Rendezvous timeout: how long the relay waits for a publisher, ms. */
  readonly rendezvousTimeout?: number;
  readonly groupOrder?: "ascending" | "descending";
}

/** Parameters this library understands. Unknown ones are a protocol violation (§10.2). */
export interface Parameters {
  expires?: number;
  largest?: Location;
  forward?: boolean;
}

export type Message =
  | { readonly type: "setup"; readonly implementation: string }
  | { readonly type: "goaway"; readonly uri: string; readonly timeout: number }
  | {
      readonly type: "subscribeOk";
      readonly alias: bigint;
      readonly parameters: Parameters;
      readonly properties: Properties;
    }
  | { readonly type: "fetchOk"; readonly endOfTrack: boolean; readonly end: Location; readonly properties: Properties }
  | { readonly type: "ok"; readonly parameters: Parameters }
  | { readonly type: "error"; readonly code: number; readonly retryAfter: number | undefined; readonly reason: string }
  | { readonly type: "done"; readonly code: number; readonly streams: bigint; readonly reason: string }
  | { readonly type: "update"; readonly id: bigint; readonly parameters: Parameters }
  | { readonly type: "state"; readonly parameters: Parameters }
  | { readonly type: "namespace"; readonly added: boolean; readonly suffix: Namespace }
  | { readonly type: "peerRequest"; readonly code: number };

/** Properties of a track or an object (§2.5). */
export interface Properties {
  /** Default publisher priority of a track (§12.4). */
  priority?: number;
  /** True if the publisher begins groups on request (§12.6). */
  dynamicGroups?: boolean;
  /** Properties not defined by MOQT, by type. Even types have numbers, odd types have bytes. */
  other?: Map<number, bigint | Uint8Array>;
  /** The content of Immutable Properties (§12.7), whose properties are also in the other fields. */
  immutable?: Uint8Array;
}

/** Maximum payload of a control message, bytes (§10). */
export const MAX_MESSAGE = 65535;

function message(type: number, write: (w: Writer) => void): Uint8Array<ArrayBuffer> {
  const body = new Writer();
  write(body);
  if (body.length > MAX_MESSAGE) throw new RangeError(`message of ${body.length} bytes exceeds ${MAX_MESSAGE}`);
  const w = new Writer();
  w.varint(type);
  w.u8(body.length >> 8);
  w.u8(body.length & 0xff);
  w.raw(body.finish());
  return w.finish();
}

function writeNamespace(w: Writer, ns: Namespace): void {
  if (ns.length > MAX_NAMESPACE_FIELDS || ns.some((f) => f === "")) throw new RangeError("not a track namespace");
  w.varint(ns.length);
  for (const field of ns) w.string(field);
}

function writeTrack(w: Writer, t: TrackName): void {
  writeNamespace(w, t.namespace);
  w.string(t.name);
}

class ParameterWriter {
  readonly #w = new Writer();
  #count = 0;
  #prev = 0;

  add(type: number, write: (w: Writer) => void): void {
    this.#w.varint(type - this.#prev);
    this.#prev = type;
    this.#count++;
    write(this.#w);
  }

  /** Writes milliseconds, rounded up. */
  duration(type: number, v: number | undefined): void {
    if (v !== undefined) this.add(type, (w) => w.varint(Math.ceil(v)));
  }

  finish(w: Writer): void {
    w.varint(this.#count);
    w.raw(this.#w.finish());
  }
}

/**
 * `token` authorizes the session. It is sent by value; its type is agreed out of band (§10.2.2).
 */
export function encodeSetup(implementation: string, token?: string): Uint8Array<ArrayBuffer> {
  return message(MessageType.SETUP, (w) => {
    if (token !== undefined) {
      w.varint(0x03); // AUTHORIZATION_TOKEN, §10.3.1.4
      w.bytes(Uint8Array.of(3, 0, ...new TextEncoder().encode(token)));
    }
    w.varint(token === undefined ? 0x07 : 0x07 - 0x03); // MOQT_IMPLEMENTATION, §10.3.1.5
    w.string(implementation);
  });
}

/**
 * `fill` also requests the newest group on a fetch stream with the same ID, from draft-20 on (draft-22
 * §3.4).
 */
export function encodeSubscribe(
  id: bigint, track: TrackName, o: SubscribeOptions, version: Version = 18, fill = false,
): Uint8Array<ArrayBuffer> {
  return message(MessageType.SUBSCRIBE, (w) => {
    w.varint(id);
    writeTrack(w, track);
    const p = new ParameterWriter();
    p.duration(param.objectDeliveryTimeout, o.objectDeliveryTimeout);
    p.duration(param.rendezvousTimeout, o.rendezvousTimeout);
    p.duration(param.subgroupDeliveryTimeout, o.subgroupDeliveryTimeout);
    if (o.priority !== undefined) p.add(param.subscriberPriority, (v) => v.u8(o.priority!));
    if (o.filter === "nextGroup" || o.filter === "largestObject") {
      p.add(param.filter, (v) => writeFilter(v, o.filter as "nextGroup" | "largestObject", version));
    } else if (o.start !== undefined) {
      p.add(param.filter, (v) => writeFilter(v, { start: o.start! }, version));
    }
    if (o.groupOrder) p.add(param.groupOrder, (v) => v.u8(o.groupOrder === "ascending" ? 1 : 2));
    if (fill) {
      const own = new ParameterWriter();
      own.add(param.filter, (v) => writeFilter(v, { recent: 1n }, version));
      const value = new Writer();
      own.finish(value);
      p.add(param.fill, (v) => v.bytes(value.finish()));
    }
    p.finish(w);
  });
}

/**
 * A range of objects: from the first object of group `start` or, in a FETCH, from `objects.first`, up
 * to the last of group `end`, or to `objects.last`; or the `recent` newest groups (draft-20).
 */
type Range =
  | { readonly start: bigint; readonly end?: bigint | undefined; readonly objects?: ObjectRange | undefined }
  | { readonly recent: bigint };

/** Writes the value of a filter (§5.1.2, draft-22 §9.20.9). */
function writeFilter(w: Writer, filter: "nextGroup" | "largestObject" | Range, version: Version): void {
  const value = new Writer();
  if (version < 20) {
    if (filter === "nextGroup" || filter === "largestObject") value.varint(filter === "nextGroup" ? 1 : 2);
    else if ("start" in filter) {
      value.varint(filter.end === undefined ? 3 : 4); // AbsoluteStart, AbsoluteRange
      value.varint(filter.start);
      value.varint(0);
      if (filter.end !== undefined) value.varint(filter.end - filter.start);
    }
    w.bytes(value.finish());
    return;
  }
  let fields: (bigint | number)[];
  let type: number | undefined; // where it is not the number of fields
  if (filter === "nextGroup") fields = [0];
  else if (filter === "largestObject") {
    fields = version < 22 ? [0, 0] : [];
    type = 5;
  } else if ("recent" in filter) fields = [filter.recent];
  else {
    fields = [filter.start, filter.objects?.first ?? 0];
    if (filter.end !== undefined) fields.push(filter.end - filter.start);
    if (filter.objects) fields.push(filter.objects.last);
    if (version < 22 && fields.length === 2 && filter.start === 0n) fields = []; // two zeros mean the next object
  }
  for (const f of fields) value.varint(f);
  if (version < 22) w.bytes(value.finish());
  else {
    w.varint(type ?? fields.length);
    w.raw(value.finish());
  }
}

/** Changes to a subscription for REQUEST_UPDATE (§10.9). Absent fields keep their value. */
export interface SubscriptionUpdate {
  /** First and last group to deliver. */
  readonly start?: bigint;
  readonly end?: bigint;
  readonly priority?: number;
  /** Asks the publisher to begin a group with at least this ID (§10.2.14). The track must have `dynamicGroups`. */
  readonly newGroup?: bigint;
}

export function encodeUpdate(id: bigint, u: SubscriptionUpdate, version: Version = 18): Uint8Array<ArrayBuffer> {
  return message(MessageType.REQUEST_UPDATE, (w) => {
    w.varint(id);
    const p = new ParameterWriter();
    if (u.priority !== undefined) p.add(param.subscriberPriority, (v) => v.u8(u.priority!));
    if (u.start !== undefined) p.add(param.filter, (v) => writeFilter(v, { start: u.start!, end: u.end }, version));
    if (u.newGroup !== undefined) p.add(param.newGroupRequest, (v) => v.varint(u.newGroup!));
    p.finish(w);
  });
}

/**
 * A FETCH that joins subscription `joining`, starting `groups` groups before its largest object
 * (§10.12.2). Until draft-19.
 */
export function encodeJoiningFetch(
  id: bigint,
  joining: bigint,
  groups: number,
  priority?: number,
): Uint8Array<ArrayBuffer> {
  return message(MessageType.FETCH, (w) => {
    w.varint(id);
    w.varint(2);
    w.varint(joining);
    w.varint(groups);
    const p = new ParameterWriter();
    if (priority !== undefined) p.add(param.subscriberPriority, (v) => v.u8(priority));
    p.finish(w);
  });
}

/** A range of objects in one group, inclusive. */
export interface ObjectRange {
  readonly first: number;
  readonly last: number;
}

/**
 * A FETCH of groups `first` to `last` of a track (§10.12.1), or of a range of objects in one group.
 */
export function encodeFetch(
  id: bigint, track: TrackName, first: bigint, last: bigint, priority?: number, objects?: ObjectRange,
  version: Version = 18,
): Uint8Array<ArrayBuffer> {
  return message(MessageType.FETCH, (w) => {
    w.varint(id);
    if (version >= 20) {
      writeTrack(w, track);
      const p = new ParameterWriter();
      if (priority !== undefined) p.add(param.subscriberPriority, (v) => v.u8(priority));
      p.add(param.filter, (v) => writeFilter(v, { start: first, end: last, objects }, version));
      p.finish(w);
      return;
    }
    w.varint(1);
    writeTrack(w, track);
    w.varint(first);
    w.varint(objects?.first ?? 0);
    w.varint(last);
    w.varint(objects ? objects.last + 1 : 0); // exclusive; 0 = the entire group
    const p = new ParameterWriter();
    if (priority !== undefined) p.add(param.subscriberPriority, (v) => v.u8(priority));
    p.finish(w);
  });
}

export function encodeSubscribeNamespace(id: bigint, prefix: Namespace): Uint8Array<ArrayBuffer> {
  return message(MessageType.SUBSCRIBE_NAMESPACE, (w) => {
    w.varint(id);
    writeNamespace(w, prefix);
    w.varint(0);
  });
}

export function encodePublish(id: bigint, track: TrackName, alias: bigint): Uint8Array<ArrayBuffer> {
  return message(MessageType.PUBLISH, (w) => {
    w.varint(id);
    writeTrack(w, track);
    w.varint(alias);
    w.varint(0);
  });
}

export function encodeRequestError(code: number, reason: string): Uint8Array<ArrayBuffer> {
  return message(MessageType.REQUEST_ERROR, (w) => {
    w.varint(code);
    w.varint(0);
    w.string(reason);
  });
}

export function encodeRequestOk(): Uint8Array<ArrayBuffer> {
  return message(MessageType.REQUEST_OK, (w) => w.varint(0));
}

export function encodePublishDone(code: number, reason: string): Uint8Array<ArrayBuffer> {
  return message(MessageType.PUBLISH_DONE, (w) => {
    w.varint(code);
    w.varint(0);
    w.string(reason);
  });
}

function readNamespace(r: Reader): Namespace {
  const n = r.int(MAX_NAMESPACE_FIELDS, "number of namespace fields");
  const ns: string[] = [];
  let total = 0;
  for (let i = 0; i < n; i++) {
    const before = r.pos;
    const field = r.string(MAX_FULL_NAME, "namespace field");
    if (field === "") throw violation("empty namespace field");
    total += r.pos - before;
    if (total > MAX_FULL_NAME + 2 * MAX_NAMESPACE_FIELDS) throw violation(`namespace exceeds ${MAX_FULL_NAME} bytes`);
    ns.push(field);
  }
  return ns;
}

function readLocation(r: Reader): Location {
  const group = r.varint();
  return { group, object: r.varint() };
}

const scope: Record<"subscribeOk" | "ok" | "ok20" | "update" | "update20" | "state" | "fetchOk", readonly number[]> = {
  subscribeOk: [param.expires, param.largestObject],
  fetchOk: [],
  ok: [
    param.objectDeliveryTimeout, param.subgroupDeliveryTimeout, param.expires, param.largestObject, param.forward,
    param.subscriberPriority, param.filter, param.groupOrder, param.newGroupRequest,
  ],
  update: [
    param.objectDeliveryTimeout, param.authorizationToken, param.subgroupDeliveryTimeout, param.forward,
    param.subscriberPriority, param.filter, param.newGroupRequest, param.namespacePrefix,
  ],
  // From draft-20 on.
  ok20: [param.expires, param.largestObject],
  update20: [
    param.objectDeliveryTimeout, param.authorizationToken, param.subgroupDeliveryTimeout, param.forward,
    param.subscriberPriority, param.filter, param.fill, param.newGroupRequest, param.namespacePrefix,
  ],
  state: [param.largestObject, param.forward, param.filter],
};

/** Skips the value of a filter. */
function skipFilter(r: Reader, version: Version): void {
  if (version < 22) {
    r.bytes(MAX_MESSAGE, "filter");
    return;
  }
  const type = r.int(5, "location filter type");
  for (let i = 0; i < type % 5; i++) r.varint();
}

function readParameters(r: Reader, where: keyof typeof scope, version: Version): Parameters {
  const p: Parameters = {};
  const count = r.int(MAX_MESSAGE, "number of parameters");
  let type = 0;
  for (let i = 0; i < count; i++) {
    const delta = r.int(Number.MAX_SAFE_INTEGER - type, "parameter type");
    type += delta;
    if (i > 0 && delta === 0 && type !== param.authorizationToken)
      throw violation(`parameter 0x${type.toString(16)} is repeated`);
    if (!scope[where].includes(type)) throw violation(`parameter 0x${type.toString(16)} is not allowed here`);
    switch (type) {
      case param.authorizationToken:
      case param.fill:
        r.bytes(MAX_MESSAGE, "parameter");
        break;
      case param.filter:
        skipFilter(r, version);
        break;
      case param.largestObject:
        p.largest = readLocation(r);
        break;
      case param.forward: {
        const v = r.u8();
        if (v > 1) throw violation(`forward parameter ${v}`);
        p.forward = v === 1;
        break;
      }
      case param.subscriberPriority:
      case param.groupOrder:
        r.u8();
        break;
      case param.namespacePrefix:
        readNamespace(r);
        break;
      case param.expires:
        p.expires = Number(r.varint());
        break;
      default:
        r.varint();
    }
  }
  return p;
}

const IMMUTABLE = 0x0b;
const PUBLISHER_PRIORITY = 0x0e;
const GROUP_ORDER = 0x22;
const DYNAMIC_GROUPS = 0x30;
/** Highest property type that is read; higher ones are ignored. */
const MAX_TYPE = BigInt(Number.MAX_SAFE_INTEGER);
/** An unknown mandatory track property (§2.5.1) makes the subscription unusable. */
export class UnknownMandatoryError extends Error {}

/**
 * Reads key-value pairs (§1.4.3) to the end of r, including pairs nested in Immutable Properties
 * (§12.7).
 */
export function readProperties(r: Reader, ofTrack: boolean, into: Properties = {}, nested = false): Properties {
  let type = 0n;
  try {
    while (r.left > 0) {
      type += r.varint();
      if (type >= 1n << 64n) throw violation("key-value type exceeds 2^64-1");
      if (type % 2n === 1n) {
        const value = r.bytes(MAX_PAIR, "key-value pair");
        if (Number(type) === IMMUTABLE) {
          if (nested) throw new WireError(SessionCode.KEY_VALUE_FORMATTING_ERROR, "nested immutable properties");
          into.immutable = value.slice();
          readProperties(new Reader(value), ofTrack, into, true);
        } else {
          keep(into, type, value.slice());
        }
      } else {
        readIntProperty(type, r.varint(), ofTrack, into);
      }
      if (type >= 0x4000n && type <= 0x7fffn)
        throw new UnknownMandatoryError(`mandatory track property 0x${type.toString(16)}`);
    }
  } catch (e) {
    if (e instanceof ShortError)
      throw new WireError(SessionCode.KEY_VALUE_FORMATTING_ERROR, "a key-value pair is cut off");
    throw e;
  }
  return into;
}

function readIntProperty(type: bigint, value: bigint, ofTrack: boolean, into: Properties): void {
  switch (Number(type)) {
    case PUBLISHER_PRIORITY:
      if (ofTrack && value > 255n) throw violation(`default publisher priority ${value} exceeds 255`);
      into.priority = Number(value);
      break;
    case GROUP_ORDER:
      if (ofTrack && value !== 1n && value !== 2n) throw violation(`default publisher group order ${value}`);
      break;
    case DYNAMIC_GROUPS:
      if (ofTrack && value > 1n) throw violation(`dynamic groups ${value}`);
      into.dynamicGroups = value === 1n;
      break;
    default:
      keep(into, type, value);
  }
}

function keep(into: Properties, type: bigint, value: bigint | Uint8Array): void {
  if (type <= MAX_TYPE) (into.other ??= new Map()).set(Number(type), value);
}

function readSetup(r: Reader): Message {
  let implementation = "";
  let type = 0n;
  while (r.left > 0) {
    type += r.varint();
    if (type % 2n === 0n) {
      r.varint();
      continue;
    }
    const value = r.bytes(MAX_PAIR, "setup option");
    if (type === 0x01n) throw new WireError(SessionCode.INVALID_PATH, "PATH from a server");
    if (type === 0x05n) throw new WireError(SessionCode.INVALID_AUTHORITY, "AUTHORITY from a server");
    if (type === 0x07n) implementation = new TextDecoder().decode(value);
  }
  return { type: "setup", implementation };
}

function readGoaway(r: Reader, version: Version): Message {
  const uri = r.string(MAX_URI, "new session URI");
  const timeout = Number(r.varint());
  if (r.left > 0 && version < 19) r.varint(); // the first request ID not processed
  return { type: "goaway", uri, timeout };
}

function readError(r: Reader): Message {
  const code = Number(r.varint());
  const retry = Number(r.varint());
  const reason = r.string(MAX_REASON, "reason phrase");
  if (code === 0x34) {
    r.bytes(MAX_URI, "connect URI");
    readNamespace(r);
    r.bytes(MAX_FULL_NAME, "track name");
  }
  return { type: "error", code, reason, retryAfter: retry === 0 ? undefined : retry - 1 };
}

/** Parses a control message, whose last field must end with the payload. */
export function parseMessage(type: number, payload: Uint8Array, version: Version = 18): Message {
  const r = new Reader(payload);
  let m: Message;
  try {
    switch (type) {
      case MessageType.SETUP:
        m = readSetup(r);
        break;
      case MessageType.GOAWAY:
        m = readGoaway(r, version);
        break;
      case MessageType.SUBSCRIBE_OK: {
        const alias = r.varint();
        const parameters = readParameters(r, "subscribeOk", version);
        m = { type: "subscribeOk", alias, parameters, properties: readProperties(r, true) };
        break;
      }
      case MessageType.FETCH_OK: {
        const end = r.u8();
        if (end > 1) throw violation(`end of track ${end}`);
        const location = readLocation(r);
        readParameters(r, "fetchOk", version);
        m = { type: "fetchOk", endOfTrack: end === 1, end: location, properties: readProperties(r, true) };
        break;
      }
      case MessageType.REQUEST_OK:
      case MessageType.PUBLISH_OK: {
        if (type === MessageType.PUBLISH_OK && version >= 19)
          throw violation(`unknown message type 0x${type.toString(16)}`);
        const parameters = readParameters(r, version < 20 ? "ok" : "ok20", version);
        readProperties(r, true);
        m = { type: "ok", parameters };
        break;
      }
      case MessageType.REQUEST_ERROR:
        m = readError(r);
        break;
      case MessageType.PUBLISH_DONE: {
        const code = Number(r.varint());
        const streams = r.varint();
        m = { type: "done", code, streams, reason: r.string(MAX_REASON, "reason phrase") };
        break;
      }
      case MessageType.REQUEST_UPDATE: {
        const id = r.varint();
        m = { type: "update", id, parameters: readParameters(r, version < 20 ? "update" : "update20", version) };
        break;
      }
      case MessageType.PUBLISH_STATE_NOTIFY:
        if (version < 20) throw violation(`unknown message type 0x${type.toString(16)}`);
        m = { type: "state", parameters: readParameters(r, "state", version) };
        break;
      case MessageType.NAMESPACE:
      case MessageType.NAMESPACE_DONE:
        m = { type: "namespace", added: type === MessageType.NAMESPACE, suffix: readNamespace(r) };
        break;
      default:
        if (!peerRequests.has(type)) throw violation(`unknown message type 0x${type.toString(16)}`);
        return { type: "peerRequest", code: type };
    }
  } catch (e) {
    if (e instanceof ShortError) throw violation(`message 0x${type.toString(16)} ends inside a field`);
    throw e;
  }
  if (r.left > 0) throw violation(`${r.left} bytes after the last field of message 0x${type.toString(16)}`);
  return m;
}

/** Reads one message from r. Throws ShortError if incomplete. */
export function readMessage(r: Reader, version: Version = 18): Message {
  const type = Number(r.varint());
  const known = Object.values(MessageType) as number[];
  if (!known.includes(type) && !peerRequests.has(type)) throw violation(`unknown message type 0x${type.toString(16)}`);
  const length = (r.u8() << 8) | r.u8();
  return parseMessage(type, r.take(length), version);
}
