/**
 * Reassembles payloads that were split into datagrams, like internal/parts
 * (docs/spec/frames-in-datagrams.md). Every size is checked before memory is allocated. Times are
  * local, in milliseconds.
 */

import type { Datagram, ReceivedObject } from "../../moqt/index.ts";

/** Property of a payload's first part: the length of the payload in bytes. */
export const LENGTH_PROPERTY = 0x6863706c;

/** Upper bound of object IDs, exclusive. */
const MAX_OBJECTS = 1 << 16;
/** Maximum number of open groups. */
const MAX_FRAMES = 16;
/** Maximum number of gaps per group. */
const MAX_HOLES = 256;
/** Maximum number of payloads per group. */
const MAX_STARTS = 255;
/** Number of past groups remembered. */
const HISTORY = 64;
/** Memory charged per part in addition to its payload, bytes. */
const PART_COST = 128;
/** Memory limit in bytes, raised if two payloads need more. */
const ROOM = 32 << 20;
/** A part counts as lost once this many later parts of its group have arrived (RFC 9002 §6.1.1). */
const REORDERING = 3;
/**
 * A group's missing end is requested after this many ms without a new part, or after a quarter of the
 * round-trip time if that is longer. An end of more than NEARBY parts is requested when the next group
 * begins, or after LONGER times that silence.
 */
const QUIET = 8;
const LONGER = 10;
/** Missing parts that are at most this far apart share a request. */
const NEARBY = 8;
/** After this many requests for a group, the next one covers all of its missing parts. */
const MAX_REQUESTS = 16;
/** Timeout for tracks without a delivery timeout, ms. */
const DEFAULT_TIMEOUT = 2000;

/** An object received as a datagram or fetched. */
export interface Part {
  readonly group: bigint;
  readonly object: bigint;
  readonly endOfGroup: boolean;
  /** Length of the payload in bytes, set on its first part. */
  readonly length: bigint | undefined;
  readonly payload: Uint8Array;
}

export interface Payload {
  readonly group: bigint;
  /** ID of the first part. */
  readonly object: number;
  readonly payload: Uint8Array<ArrayBuffer>;
}

/** A request for objects first to last of a group. */
export interface PartsRequest {
  readonly group: bigint;
  readonly first: number;
  last: number;
}

export interface PartsCounts {
  /** Complete groups. */
  frames: number;
  /** Complete groups that needed requested parts. */
  repaired: number;
  /** Groups given up as incomplete. */
  abandoned: number;
  /** Parts missing when their group was abandoned. */
  parts_lost: number;
  /** Requests sent. */
  requests: number;
  /** Parts requested. */
  requested: number;
  /** Parts that arrived after their group was complete or abandoned. */
  late: number;
  /** Duplicate parts. */
  duplicate: number;
  /** Parts that contradict others or exceed a limit. */
  refused: number;
}

export function noParts(): PartsCounts {
  return {
    frames: 0,
    repaired: 0,
    abandoned: 0,
    parts_lost: 0,
    requests: 0,
    requested: 0,
    late: 0,
    duplicate: 0,
    refused: 0,
  };
}

/** Adds b to a. */
export function addParts(a: PartsCounts, b: PartsCounts): void {
  for (const key of Object.keys(a) as (keyof PartsCounts)[]) a[key] += b[key];
}

/** Converts an object to a part. Fetched objects do not carry the end-of-group flag. */
export function partOf(o: ReceivedObject | Datagram): Part {
  const length = o.properties.other?.get(LENGTH_PROPERTY);
  return {
    group: o.group, object: "id" in o ? o.id : o.object, endOfGroup: "endOfGroup" in o && o.endOfGroup,
    length: typeof length === "bigint" ? length : undefined, payload: o.payload,
  };
}

interface Hole {
  first: number;
  last: number;
  asked: boolean;
}

interface Start {
  readonly first: number;
  readonly last: number;
  readonly length: number;
  /** Size of every part but the last. */
  readonly size: number;
  done: boolean;
}

/** A group being reassembled. */
interface Frame {
  readonly group: bigint;
  readonly began: number;
  /** Arrival time of the last part that was not fetched. */
  newest: number;
  readonly parts: Map<number, Uint8Array>;
  /** One above the highest known ID, and one above the highest ID that arrived without being fetched. */
  next: number;
  reached: number;
  /** Missing IDs below `next`, ascending. */
  holes: Hole[];
  starts: Start[];
  /** One above the last object's ID; 0 = unknown. */
  end: number;
  requests: number;
  /** `seen` is true once a part has arrived, `fetched` once a fetched part was used. */
  seen: boolean;
  fetched: boolean;
  bytes: number;
}

export class PartsAssembler {
  readonly counts = noParts();
  #frames: Frame[] = []; // oldest first
  #past: bigint[] = []; // complete or abandoned groups, oldest first
  #begun = -Infinity; // start of the newest group
  bytes = 0;
  readonly #timeout: number;
  readonly #room: number;

  /** `maxPayload` is in bytes. `timeout` is the lifetime of an incomplete group in ms; 0 selects the default. */
  constructor(
    readonly maxPayload: number,
    timeout: number,
  ) {
    this.#timeout = timeout > 0 ? timeout : DEFAULT_TIMEOUT;
    this.#room = Math.max(2 * maxPayload, Math.min(MAX_FRAMES * maxPayload, ROOM));
  }

  /** Adds a part and returns the payloads it completes. `fetched` is true if the part answers a request. */
  add(p: Part, fetched: boolean, now: number): Payload[] {
    if (this.#past.includes(p.group)) {
      this.counts.late++;
      return [];
    }
    let f = this.#frame(p.group);
    if (
      p.object >= BigInt(MAX_OBJECTS) ||
      p.payload.length > this.maxPayload ||
      (f && f.end > 0 && Number(p.object) >= f.end)
    ) {
      this.counts.refused++;
      return [];
    }
    const id = Number(p.object);
    f ??= this.#open(p.group, now);
    if (!fetched) {
      f.newest = now;
      f.reached = Math.max(f.reached, id + 1);
    }
    if (!fill(f, id)) {
      this.counts.duplicate++;
      return [];
    }
    f.seen = true;
    f.parts.set(id, p.payload);
    this.#charge(f, p.payload.length + PART_COST);
    f.fetched ||= fetched;
    if (p.endOfGroup) {
      if (f.end > 0 || f.next > id + 1) this.counts.refused++; // the group has objects after this end
      else f.end = id + 1;
    }
    if (p.length !== undefined && !this.#begin(f, id, p.payload.length, p.length)) this.counts.refused++;
    const payloads = this.#collect(f, id);
    if (f.end > 0 && f.next >= f.end && f.holes.length === 0 && ready(f)) {
      this.#count(f);
      this.#forget(f);
    } else if (f.holes.length > MAX_HOLES) {
      this.#abandon(f);
    }
    while (this.bytes > this.#room && this.#frames.length > 0) this.#abandon(this.#frames[0]!);
    return payloads;
  }

  /** Reports that objects up to `last` of a group are being fetched already, so they are not requested. */
  expect(group: bigint, last: bigint, now: number): void {
    if (last >= BigInt(MAX_OBJECTS) || this.#frame(group) || this.#past.includes(group)) return;
    const f = this.#open(group, now);
    f.holes = [{ first: 0, last: Number(last), asked: true }];
    f.next = Number(last) + 1;
  }

  /**
   * Abandons groups past their timeout and returns up to `limit` requests to send now. Each part is
   * requested at most once, and only if an answer can arrive in time.
   */
  due(now: number, rtt: number, limit: number): PartsRequest[] {
    const list: PartsRequest[] = [];
    while (this.#frames.length > 0 && now - this.#frames[0]!.began >= this.#timeout) this.#abandon(this.#frames[0]!);
    for (const f of [...this.#frames]) {
      if (now + rtt - f.began >= this.#timeout) continue;
      const still = now - f.newest >= quietTime(rtt);
      const overtaken = this.#begun > f.newest;
      if (still && (overtaken || now >= endDue(f, rtt))) expectUpTo(f, expected(f));
      if (still && overtaken && f.holes.length === 0 && ready(f)) {
        this.#abandon(f); // complete, but its end was not signalled
        continue;
      }
      if (list.length < limit) this.#ask(f, still || overtaken, limit, list);
    }
    return list;
  }

  /** Time at which to call `due` next unless a part arrives first; undefined if nothing is pending. */
  next(rtt: number): number | undefined {
    let at: number | undefined;
    for (const f of this.#frames) {
      const deadline = f.began + this.#timeout;
      at ??= deadline;
      const due = f.holes.length === 0 ? endDue(f, rtt) : f.newest + quietTime(rtt);
      const incomplete = expected(f) > f.next || f.holes.some((h) => !h.asked);
      if (incomplete && due < at && due + rtt < deadline) at = due;
    }
    return at;
  }

  /** Abandons all groups. */
  close(): void {
    while (this.#frames.length > 0) this.#abandon(this.#frames[0]!);
  }

  #frame(group: bigint): Frame | undefined {
    return this.#frames.find((f) => f.group === group);
  }

  #open(group: bigint, now: number): Frame {
    if (this.#frames.length === MAX_FRAMES) this.#abandon(this.#frames[0]!);
    const f: Frame = {
      group,
      began: now,
      newest: now,
      parts: new Map(),
      next: 0,
      reached: 0,
      holes: [],
      starts: [],
      end: 0,
      requests: 0,
      seen: false,
      fetched: false,
      bytes: 0,
    };
    this.#frames.push(f);
    this.#begun = now;
    return f;
  }

  #charge(f: Frame, bytes: number): void {
    f.bytes += bytes;
    this.bytes += bytes;
  }

  /** Registers a part as the first of a payload. Returns false if that contradicts other parts. */
  #begin(f: Frame, id: number, size: number, announced: bigint): boolean {
    if (announced > BigInt(this.maxPayload)) return false;
    const length = Number(announced);
    if (size > length || (size === 0 && length > 0) || f.starts.length === MAX_STARTS) return false;
    const last = length > size ? id + Math.floor((length - 1) / size) : id;
    if (last >= MAX_OBJECTS || (f.end > 0 && last >= f.end)) return false;
    let i = f.starts.findIndex((s) => s.first >= id);
    if (i < 0) i = f.starts.length;
    // The range overlaps another payload's.
    if ((i > 0 && f.starts[i - 1]!.last >= id) || (i < f.starts.length && f.starts[i]!.first <= last)) return false;
    f.starts.splice(i, 0, { first: id, last, length, size, done: false });
    return true;
  }

  /** Returns the payload that part `id` completes, if any. */
  #collect(f: Frame, id: number): Payload[] {
    const payloads: Payload[] = [];
    for (const s of f.starts) {
      if (s.done || id < s.first || id > s.last || missing(f, s.first, s.last)) continue;
      s.done = true;
      const payload = new Uint8Array(s.length);
      let at = 0;
      let ok = true;
      for (let i = s.first; i <= s.last; i++) {
        const p = f.parts.get(i)!;
        ok &&= (p.length === s.size || i === s.last) && at + p.length <= s.length;
        if (ok) {
          payload.set(p, at);
          at += p.length;
        }
        f.parts.delete(i);
        this.#charge(f, -(p.length + PART_COST));
      }
      if (ok && at === s.length) payloads.push({ group: f.group, object: s.first, payload });
      else this.counts.refused += s.last - s.first + 1;
    }
    return payloads;
  }

  #count(f: Frame): void {
    this.counts.frames++;
    if (f.fetched && f.requests > 0) this.counts.repaired++;
  }

  #abandon(f: Frame): void {
    if (!f.seen) return this.#forget(f); // expected, but nothing arrived
    const n = lost(f);
    if (n === 0 && ready(f)) {
      this.#count(f);
    } else {
      this.counts.abandoned++;
      this.counts.parts_lost += n;
    }
    this.#forget(f);
  }

  #forget(f: Frame): void {
    this.bytes -= f.bytes;
    this.#frames = this.#frames.filter((o) => o !== f);
    if (this.#past.length === HISTORY) this.#past.shift();
    this.#past.push(f.group);
  }

  /**
   * Appends requests for a group's missing parts. `over` means that all parts that have not arrived
   * are lost. The last request within the limit covers all remaining gaps, which would otherwise wait
   * for an answer, possibly longer than the group's lifetime.
   */
  #ask(f: Frame, over: boolean, limit: number, list: PartsRequest[]): void {
    let open: PartsRequest | undefined;
    const from = list.length;
    for (const h of f.holes) {
      if (h.asked || (!over && h.last + REORDERING >= f.reached)) continue;
      if (open && (h.first - open.last <= NEARBY || f.requests > MAX_REQUESTS || list.length === limit)) {
        open.last = h.last;
      } else if (list.length === limit) {
        continue;
      } else {
        open = { group: f.group, first: h.first, last: h.last };
        list.push(open);
        f.requests++;
        this.counts.requests++;
      }
      h.asked = true;
    }
    for (const r of list.slice(from)) this.counts.requested += r.last - r.first + 1;
  }
}

/** Silence in a group after which its missing parts are requested. */
const quietTime = (rtt: number): number => Math.max(QUIET, rtt / 4);

/** Time at which a group's missing end is requested even if no later group has begun. */
function endDue(f: Frame, rtt: number): number {
  return f.newest + (expected(f) > f.next + NEARBY ? LONGER : 1) * quietTime(rtt);
}

/** Marks an ID as received. Returns false for a duplicate. */
function fill(f: Frame, id: number): boolean {
  if (id >= f.next) {
    expectUpTo(f, id);
    f.next = id + 1;
    return true;
  }
  const i = f.holes.findIndex((h) => h.first <= id && id <= h.last);
  if (i < 0) return false;
  const h = f.holes[i]!;
  const rest: Hole[] = [];
  if (h.first < id) rest.push({ ...h, last: id - 1 });
  if (id < h.last) rest.push({ ...h, first: id + 1 });
  f.holes.splice(i, 1, ...rest);
  return true;
}

/** Adds a gap from `next` up to `end`, exclusive. */
function expectUpTo(f: Frame, end: number): void {
  if (end <= f.next) return;
  f.holes.push({ first: f.next, last: end - 1, asked: false });
  f.next = end;
}

/** True if any ID from first to last is missing. */
function missing(f: Frame, first: number, last: number): boolean {
  return last >= f.next || f.holes.some((h) => h.first <= last && h.last >= first);
}

/** True if at least one payload is known and all known ones are complete. */
const ready = (f: Frame): boolean => f.starts.length > 0 && f.starts.every((s) => s.done);

/** One above the highest ID that must exist. */
const expected = (f: Frame): number => Math.max(f.end, (f.starts.at(-1)?.last ?? -1) + 1);

/** Number of parts known to be missing. */
function lost(f: Frame): number {
  return f.holes.reduce((n, h) => n + h.last - h.first + 1, 0) + Math.max(0, expected(f) - f.next);
}

/** Maximum number of concurrent fetches. */
const MAX_FETCHES = 8;
/** Minimum timer delay, ms. If a timer is late by five times this, the worker was busy. */
const MOMENT = 2;

/** Reassembles a track's payloads and fetches missing parts. */
export class PartsReceiver {
  readonly assembler: PartsAssembler;
  #fetching = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #due = 0;
  #closed = false;

  /** `fetch` passes the requested parts to `add` and resolves when the request is finished. */
  constructor(
    maxPayload: number,
    timeout: number,
    private readonly rtt: () => number,
    private readonly take: (payload: Payload) => void,
    private readonly fetch: (r: PartsRequest) => Promise<void>,
    private readonly now: () => number,
  ) {
    this.assembler = new PartsAssembler(maxPayload, timeout);
  }

  add(p: Part, fetched: boolean): void {
    if (this.#closed) return;
    for (const payload of this.assembler.add(p, fetched, this.now())) this.take(payload);
    this.#ask();
  }

  #ask(): void {
    if (this.#closed) return;
    const now = this.now();
    const rtt = this.rtt();
    for (const r of this.assembler.due(now, rtt, MAX_FETCHES - this.#fetching)) {
      this.#fetching++;
      const over = () => {
        this.#fetching--;
        this.#ask();
      };
      this.fetch(r).then(over, over); // parts the relay does not have are lost
    }
    const at = this.assembler.next(rtt);
    clearTimeout(this.#timer);
    if (at !== undefined) this.#wake(now, Math.max(MOMENT, at - now));
  }

  #wake(now: number, wait: number): void {
    this.#due = now + wait;
    this.#timer = setTimeout(() => {
      // After a busy period the missing parts may be waiting in the event queue, so read it first.
      const late = this.now();
      if (!this.#closed && late - this.#due > 5 * MOMENT) this.#wake(late, MOMENT);
      else this.#ask();
    }, wait);
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.assembler.close();
  }
}
