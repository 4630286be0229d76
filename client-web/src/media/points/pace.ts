/**
 * Predicts which of a camera's frames the page can draw, so that the relay need not send the
 * others. Frames arrive at an even rate, one per group; a page that draws more slowly uses only the
  * newest frame at each repaint. Times are local, in milliseconds.
 */

/** Minimum span of arrivals over which the frame interval is measured. */
const SPAN = 300;
/** Maximum span of arrivals over which the frame interval is measured. */
const MAX_SPAN = 2000;
/** Tolerated delay of a frame after the requested time, in frame intervals. */
const LATE = 0.15;
/** Maximum wait for a frame that is due, in frame intervals. */
const HOLD = 0.5;
/** Weight of the newest sample in the moving average of the page's interval. */
const NEWEST = 0.25;
/** A page counts as idle if it draws nothing for this many of its intervals and this many ms. */
const IDLE_CYCLES = 3;
const MIN_IDLE = 500;
/** Limit on how long frames are declined; even an idle page receives a new frame this often. */
const MAX_DECLINE = 1000;
/** A frame that is later than this may never arrive, as the group IDs may have changed. */
const OVERDUE = 500;
/** A group at this distance from the newest comes from a restarted publisher. */
const RESTART_GAP = 1000n;

interface Arrival {
  readonly group: bigint;
  readonly at: number;
}

export class Pace {
  /** Newest group, including earlier subscriptions. */
  #last: bigint | undefined;
  /** Newest arrival of this subscription. */
  #newest: Arrival | undefined;
  /** Arrivals from which the frame interval is measured; #from is in use, #after replaces it. */
  #from: Arrival | undefined;
  #after: Arrival | undefined;
  /** Time between groups; 0 = unknown. */
  #interval = 0;
  /** Time at which the page wants the frame it last requested. */
  #wanted: number | undefined;
  /** Mean interval between successive values of #wanted. */
  #cycle = 0;
  /** Time at which the page last received a frame. */
  #given = 0;
  /** First group that the relay should send. */
  #start = 0n;
  /** Largest #start so far. */
  #maxStart = 0n;
  /** First group to receive after the queue was last drained. */
  #drainedUntil = 0n;

  /** `before` is the pace of the previous subscription to the track, whose declined groups still count. */
  constructor(before?: Pace) {
    if (!before) return;
    this.#last = before.#last;
    this.#maxStart = before.#maxStart;
  }

  /** Adds an arrival. Returns the number of declined groups between it and the previous one. */
  arrived(group: bigint, at: number): number {
    const last = this.#last;
    if (last !== undefined && group <= last && group + RESTART_GAP > last) return 0; // late
    const restarted = last !== undefined && (group < last || group - last > RESTART_GAP);
    const before = this.#newest;
    const now = { group, at };
    this.#last = group;
    this.#newest = now;
    if (!before || restarted || at - before.at > 2 * MAX_DECLINE) {
      this.#from = this.#after = now;
      this.#interval = 0;
    } else {
      if (at - this.#after!.at > MAX_SPAN / 2) {
        this.#from = this.#after;
        this.#after = now;
      }
      const span = at - this.#from!.at;
      if (span >= SPAN) this.#interval = span / Number(group - this.#from!.group);
    }
    if (last === undefined) return 0;
    if (restarted) {
      if (group < last) this.#start = this.#maxStart = this.#drainedUntil = 0n;
      return 0;
    }
    const declined = (this.#maxStart < group ? this.#maxStart : group) - last - 1n;
    return declined > 0n ? Number(declined) : 0;
  }

  /**
   * The page requests a frame from `at` on, which may be earlier or later than predicted. Returns a
   * new start for the subscription if a declined group is needed after all, or if more groups can
   * be declined.
   */
  wanted(at: number, now: number, rtt: number): bigint | undefined {
    if (this.#wanted !== undefined) {
      const cycle = Math.min(MAX_DECLINE, Math.max(0, at - this.#wanted));
      this.#cycle += (this.#cycle === 0 ? 1 : NEWEST) * (cycle - this.#cycle);
    }
    this.#wanted = at;
    const start = this.#startFor(at, now, rtt);
    if (start >= this.#start) return this.#decline(at, now, rtt);
    return this.#waiting ? this.#move(start) : undefined;
  }

  /**
   * The page receives the newest frame. Returns a new start if groups before its next repaint can
   * be declined.
   */
  given(now: number, rtt: number): bigint | undefined {
    this.#given = now;
    return this.#declineCycle(now, rtt);
  }

  /**
   * The newest frame is held until the requested time. If no newer frame can arrive before then, returns a new start,
   * as `given` does.
   */
  waits(now: number, rtt: number): bigint | undefined {
    const next = this.#newest && this.#interval > 0 ? this.#newest.at + (1 - LATE) * this.#interval : now;
    return this.#wanted !== undefined && next > this.#wanted ? this.#declineCycle(now, rtt) : undefined;
  }

  /** Time until which to hold the newest frame: later than requested if a much newer one is due soon. */
  hold(): number {
    if (this.#wanted === undefined) return -Infinity;
    const due = this.#due;
    return this.#waiting && due > this.#wanted && due - this.#wanted < HOLD * this.#interval
      ? due + HOLD * this.#interval
      : this.#wanted;
  }

  /**
   * A frame arrived that the page cannot use yet. Returns a new start if the page has stopped
   * drawing, as in a hidden tab.
   */
  idle(now: number, rtt: number): bigint | undefined {
    const since = now - this.#given;
    return since > Math.max(MIN_IDLE, IDLE_CYCLES * this.#cycle)
      ? this.#decline(now + Math.min(MAX_DECLINE, since), now, rtt)
      : undefined;
  }

  /**
   * Drains a queue by declining the frames of the next `duration` ms. Returns the new start. `framerate` is the track's
   * nominal rate or 0; frames that arrive in a burst seem to have a higher one.
   */
  drain(duration: number, framerate = 0): bigint | undefined {
    if (!this.#newest || this.#interval === 0) return undefined;
    const interval = framerate > 0 ? Math.max(this.#interval, 1000 / framerate) : this.#interval;
    const start = this.#newest.group + BigInt(Math.ceil(duration / interval));
    if (start <= this.#start) return undefined;
    this.#drainedUntil = start;
    return this.#move(start);
  }

  /** False for groups that would queue behind late ones. */
  wants(group: bigint): boolean {
    return group >= this.#drainedUntil || group + RESTART_GAP < this.#drainedUntil;
  }

  /** Returns a new start if a requested frame is long overdue. */
  overdue(now: number, rtt: number): bigint | undefined {
    if (!this.#waiting) return undefined;
    if (now < this.#due + rtt + OVERDUE) return undefined;
    this.#interval = 0;
    this.#drainedUntil = 0n;
    return this.#move(0n);
  }

  /** True while the groups after the newest arrival are declined. */
  get #waiting(): boolean {
    return this.#newest !== undefined && this.#start > this.#newest.group + 1n;
  }

  /** Time at which the first requested group is due. */
  get #due(): number {
    return this.#newest ? this.#newest.at + Number(this.#start - this.#newest.group) * this.#interval : 0;
  }

  #declineCycle(now: number, rtt: number): bigint | undefined {
    if (this.#wanted === undefined || this.#cycle === 0) return undefined;
    return this.#decline(Math.max(now, this.#wanted) + this.#cycle, now, rtt);
  }

  #decline(due: number, now: number, rtt: number): bigint | undefined {
    const start = this.#startFor(due, now, rtt);
    return start > this.#start && start > this.#newest!.group + 1n ? this.#move(start) : undefined;
  }

  #move(start: bigint): bigint {
    this.#start = start;
    if (start > this.#maxStart) this.#maxStart = start;
    return start;
  }

  /**
   * The group that will be the newest at `due`, or the group after the newest so far if it is too
   * late to decline any.
   */
  #startFor(due: number, now: number, rtt: number): bigint {
    if (!this.#newest) return 0n;
    const { group, at } = this.#newest;
    if (this.#interval === 0) return group + 1n;
    const ahead = Math.floor(Math.min(due - at, MAX_DECLINE) / this.#interval + LATE);
    const underWay = Math.max(0, Math.floor((now + rtt - at) / this.#interval));
    return ahead - underWay >= 2 ? group + BigInt(ahead) : group + 1n;
  }
}
