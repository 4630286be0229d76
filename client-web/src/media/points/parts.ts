/**
 * Puts payloads that come in datagrams together, as internal/parts does (docs/spec/frames-in-datagrams.md). All input is
 * bounded before memory is allocated for it. Times are local milliseconds.
 */

import type { Datagram, ReceivedObject } from "../../moqt/index.ts";

/** Property of a payload's first part: the payload's length in bytes. */
export const LENGTH_PROPERTY = 0x6863706c;

/** Object IDs are below this. */
const MAX_OBJECTS = 1 << 16;
/** Bounds of what is held: groups, gaps in the IDs of one, payloads of one, groups remembered afterwards. */
const MAX_FRAMES = 16;
const MAX_HOLES = 256;
const MAX_STARTS = 255;
const HISTORY = 64;
/** Bytes of memory besides a part's payload, and in all, unless two payloads need more. */
const PART_COST = 128;
const ROOM = 32 << 20;
/** So many later parts of a group tell that one was lost (RFC 9002 §6.1.1). */
const REORDERING = 3;
/**
 * How long nothing of a group has come before its missing end is asked for; a quarter of the round-trip time if that is longer.
 * An end of more than NEARBY parts waits until another group has begun, or for LONGER times as long.
 */
const QUIET = 8;
const LONGER = 10;
/** Requests for parts nearer to each other than this are one. */
const NEARBY = 8;
/** Further requests of a group ask for everything from the first missing part to the last. */
const MAX_REQUESTS = 16;
/** Of tracks without a delivery timeout, ms. */
const DEFAULT_TIMEOUT = 2000;

/** An object that came in a datagram, or was fetched. */
export interface Part {
  readonly group: bigint;
  readonly object: bigint;
  readonly endOfGroup: boolean;
  /** Of a payload's first part. */
  readonly length: bigint | undefined;
  readonly payload: Uint8Array;
}

export interface Whole {
  readonly group: bigint;
  /** ID of the first part. */
  readonly object: number;
  readonly payload: Uint8Array<ArrayBuffer>;
}

/** Asks for the objects of a group from first to last. */
export interface PartsRequest {
  readonly group: bigint;
  readonly first: number;
  last: number;
}

export interface PartsCounts {
  /** Groups that came whole; those of them that parts asked for made whole; groups given up. */
  frames: number;
  repaired: number;
  abandoned: number;
  /** Parts that had not come when their group was given up. */
  parts_lost: number;
  /** Requests for missing parts, and the parts asked for. */
  requests: number;
  requested: number;
  /** Parts of groups that were whole or given up, that were there already, and that contradict others or exceed a bound. */
  late: number;
  duplicate: number;
  refused: number;
}

export function noParts(): PartsCounts {
  return { frames: 0, repaired: 0, abandoned: 0, parts_lost: 0, requests: 0, requested: 0, late: 0, duplicate: 0, refused: 0 };
}

/** Adds the counters of b to a. */
export function addParts(a: PartsCounts, b: PartsCounts): void {
  for (const key of Object.keys(a) as (keyof PartsCounts)[]) a[key] += b[key];
}

/** An object's part; fetched objects do not say that they end their group. */
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
  /** Of each part but the last. */
  readonly size: number;
  done: boolean;
}

/** A group being put together. */
interface Frame {
  readonly group: bigint;
  readonly began: number;
  /** When the last part came that was not fetched. */
  newest: number;
  readonly parts: Map<number, Uint8Array>;
  /** One above the greatest ID that came or is known to be, and that came unfetched. */
  next: number;
  reached: number;
  /** Below next, ascending. */
  holes: Hole[];
  starts: Start[];
  /** One above the last object's ID; 0 = unknown. */
  end: number;
  requests: number;
  /** A part came; a fetched part was of use. */
  seen: boolean;
  fetched: boolean;
  bytes: number;
}

export class PartsAssembler {
  readonly counts = noParts();
  #frames: Frame[] = []; // oldest first
  #past: bigint[] = []; // groups that are no longer taken, oldest first
  #begun = -Infinity; // when the newest group began
  bytes = 0;
  readonly #timeout: number;
  readonly #room: number;

  /** maxPayload: the greatest payload taken, bytes. timeout: how long after its first part a group is given up; 0 = default. */
  constructor(
    readonly maxPayload: number,
    timeout: number,
  ) {
    this.#timeout = timeout > 0 ? timeout : DEFAULT_TIMEOUT;
    this.#room = Math.max(2 * maxPayload, Math.min(MAX_FRAMES * maxPayload, ROOM));
  }

  /** Takes a part and returns the payloads that it made whole. fetched: it is the answer to a request. */
  add(p: Part, fetched: boolean, now: number): Whole[] {
    if (this.#past.includes(p.group)) {
      this.counts.late++;
      return [];
    }
    let f = this.#frame(p.group);
    if (p.object >= BigInt(MAX_OBJECTS) || p.payload.length > this.maxPayload || (f && f.end > 0 && Number(p.object) >= f.end)) {
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
      if (f.end > 0 || f.next > id + 1) this.counts.refused++; // the group has gone on behind this end
      else f.end = id + 1;
    }
    if (p.length !== undefined && !this.#begin(f, id, p.payload.length, p.length)) this.counts.refused++;
    const whole = this.#collect(f, id);
    if (f.end > 0 && f.next >= f.end && f.holes.length === 0 && ready(f)) {
      this.#count(f);
      this.#forget(f);
    } else if (f.holes.length > MAX_HOLES) {
      this.#abandon(f);
    }
    while (this.bytes > this.#room && this.#frames.length > 0) this.#abandon(this.#frames[0]!);
    return whole;
  }

  /** The objects of a group up to last are on their way, fetched: they are not asked for. */
  expect(group: bigint, last: bigint, now: number): void {
    if (last >= BigInt(MAX_OBJECTS) || this.#frame(group) || this.#past.includes(group)) return;
    const f = this.#open(group, now);
    f.holes = [{ first: 0, last: Number(last), asked: true }];
    f.next = Number(last) + 1;
  }

  /**
   * Gives up the groups whose time is over and returns what is to be asked for now, at most limit requests. Each part
   * is asked for once, and only if an answer can come in time.
   */
  due(now: number, rtt: number, limit: number): PartsRequest[] {
    const list: PartsRequest[] = [];
    while (this.#frames.length > 0 && now - this.#frames[0]!.began >= this.#timeout) this.#abandon(this.#frames[0]!);
    for (const f of [...this.#frames]) {
      if (now + rtt - f.began >= this.#timeout) continue;
      const still = now - f.newest >= patience(rtt);
      const overtaken = this.#begun > f.newest;
      if (still && (overtaken || now >= endDue(f, rtt))) expectUpTo(f, expected(f));
      if (still && overtaken && f.holes.length === 0 && ready(f)) {
        this.#abandon(f); // whole, but for the word that nothing follows
        continue;
      }
      if (list.length < limit) this.#ask(f, still || overtaken, limit, list);
    }
    return list;
  }

  /** When to call due, if no part comes before; undefined while there is nothing to wait for. */
  next(rtt: number): number | undefined {
    let at: number | undefined;
    for (const f of this.#frames) {
      const deadline = f.began + this.#timeout;
      at ??= deadline;
      const due = f.holes.length === 0 ? endDue(f, rtt) : f.newest + patience(rtt);
      const incomplete = expected(f) > f.next || f.holes.some((h) => !h.asked);
      if (incomplete && due < at && due + rtt < deadline) at = due;
    }
    return at;
  }

  /** Gives up what is held. */
  close(): void {
    while (this.#frames.length > 0) this.#abandon(this.#frames[0]!);
  }

  #frame(group: bigint): Frame | undefined {
    return this.#frames.find((f) => f.group === group);
  }

  #open(group: bigint, now: number): Frame {
    if (this.#frames.length === MAX_FRAMES) this.#abandon(this.#frames[0]!);
    const f: Frame = {
      group, began: now, newest: now, parts: new Map(), next: 0, reached: 0, holes: [], starts: [], end: 0, requests: 0, seen: false, fetched: false, bytes: 0,
    };
    this.#frames.push(f);
    this.#begun = now;
    return f;
  }

  #charge(f: Frame, bytes: number): void {
    f.bytes += bytes;
    this.bytes += bytes;
  }

  /** Notes that a part begins a payload; false if that cannot be. */
  #begin(f: Frame, id: number, size: number, announced: bigint): boolean {
    if (announced > BigInt(this.maxPayload)) return false;
    const length = Number(announced);
    if (size > length || (size === 0 && length > 0) || f.starts.length === MAX_STARTS) return false;
    const last = length > size ? id + Math.floor((length - 1) / size) : id;
    if (last >= MAX_OBJECTS || (f.end > 0 && last >= f.end)) return false;
    let i = f.starts.findIndex((s) => s.first >= id);
    if (i < 0) i = f.starts.length;
    // Inside another payload, or around one.
    if ((i > 0 && f.starts[i - 1]!.last >= id) || (i < f.starts.length && f.starts[i]!.first <= last)) return false;
    f.starts.splice(i, 0, { first: id, last, length, size, done: false });
    return true;
  }

  /** Takes the payload that the part id made whole, if it did. */
  #collect(f: Frame, id: number): Whole[] {
    const whole: Whole[] = [];
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
      if (ok && at === s.length) whole.push({ group: f.group, object: s.first, payload });
      else this.counts.refused += s.last - s.first + 1;
    }
    return whole;
  }

  #count(f: Frame): void {
    this.counts.frames++;
    if (f.fetched && f.requests > 0) this.counts.repaired++;
  }

  #abandon(f: Frame): void {
    if (!f.seen) return this.#forget(f); // it was expected, and did not come
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
   * Appends the requests for what a group lacks. over: what has not come will not. The last request that limit allows takes all
   * of it: what is left would wait for an answer, and at a relay that bounds requests for longer than the group has.
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

/** How long nothing of a group has come before what it lacks is asked for. */
const patience = (rtt: number): number => Math.max(QUIET, rtt / 4);

/** When a group's missing end is asked for though no other group has begun. */
function endDue(f: Frame, rtt: number): number {
  return f.newest + (expected(f) > f.next + NEARBY ? LONGER : 1) * patience(rtt);
}

/** Notes that an object came; false if it was there. */
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

/** Makes a hole of the IDs from next to one below end. */
function expectUpTo(f: Frame, end: number): void {
  if (end <= f.next) return;
  f.holes.push({ first: f.next, last: end - 1, asked: false });
  f.next = end;
}

/** Whether any of the IDs from first to last has not come. */
function missing(f: Frame, first: number, last: number): boolean {
  return last >= f.next || f.holes.some((h) => h.first <= last && h.last >= first);
}

/** Whether each payload whose beginning is known is whole, and there is one. */
const ready = (f: Frame): boolean => f.starts.length > 0 && f.starts.every((s) => s.done);

/** One above the last ID that is known to exist. */
const expected = (f: Frame): number => Math.max(f.end, (f.starts.at(-1)?.last ?? -1) + 1);

/** The parts that have not come, as far as is known. */
function lost(f: Frame): number {
  return f.holes.reduce((n, h) => n + h.last - h.first + 1, 0) + Math.max(0, expected(f) - f.next);
}

/** Fetches under way at a time. */
const MAX_FETCHES = 8;
/** How late the timer may be before the worker is taken to have been busy, and what it then waits, ms. */
const MOMENT = 2;

/** Puts the payloads of one track together and has what is missing fetched. */
export class PartsReceiver {
  readonly assembler: PartsAssembler;
  #fetching = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #due = 0;
  #closed = false;

  /** fetch settles when the answer to a request is over; what it brings goes to add. */
  constructor(
    maxPayload: number,
    timeout: number,
    private readonly rtt: () => number,
    private readonly take: (whole: Whole) => void,
    private readonly fetch: (r: PartsRequest) => Promise<void>,
    private readonly now: () => number,
  ) {
    this.assembler = new PartsAssembler(maxPayload, timeout);
  }

  add(p: Part, fetched: boolean): void {
    if (this.#closed) return;
    for (const whole of this.assembler.add(p, fetched, this.now())) this.take(whole);
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
      this.fetch(r).then(over, over); // what the relay does not have is lost
    }
    const at = this.assembler.next(rtt);
    clearTimeout(this.#timer);
    if (at !== undefined) this.#wake(now, Math.max(MOMENT, at - now));
  }

  #wake(now: number, wait: number): void {
    this.#due = now + wait;
    this.#timer = setTimeout(() => {
      // Where the timer is late, what seems not to have come may be waiting here: it gets a moment more.
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
