/**
 * Predicts which of a camera's frames the page can draw, so that the others need not be sent. Frames arrive at an
 * even rate, one a group; a page that draws at a lower rate uses only the newest at each of its pictures. Times are
 * local milliseconds.
 */

/** Least and greatest span of arrivals that the frame interval is measured over. */
const SPAN = 300;
const MOST_SPAN = 2000;
/** Shares of a frame interval: how late a frame may be for the page's time, and how long one that is due is waited for. */
const LATE = 0.15;
const HOLD = 0.5;
/** Weight of the newest sample in the mean of the page's interval. */
const NEWEST = 0.25;
/** A page that draws nothing for so many of its intervals, and so many ms, is taken to be idle. */
const PATIENCE = 3;
const LEAST_PATIENCE = 500;
/** Longest time declined at once: an idle page receives a fresh frame this often. */
const MOST = 1000;
/** A frame this late may never arrive: group IDs may have changed. */
const OVERDUE = 500;
/** A group this far from the newest belongs to a restarted publisher. */
const ANEW = 1000n;

interface Arrival {
  readonly group: bigint;
  readonly at: number;
}

export class Pace {
  #newest: Arrival | undefined;
  /** Arrivals that the frame interval is measured from; the older is in use. */
  #from: Arrival | undefined;
  #after: Arrival | undefined;
  /** Time from one group to the next, 0 = unknown. */
  #interval = 0;
  /** When the page last requested a frame for, and the mean interval of these moments. */
  #wanted: number | undefined;
  #cycle = 0;
  /** When a frame was last handed to the page. */
  #given = 0;
  /** First group to be sent, and its greatest value so far. */
  #start = 0n;
  #reach = 0n;
  /** First group after a queue was left to drain. */
  #drained = 0n;

  /** A frame arrived. Returns how many groups between it and the one before were declined. */
  arrived(group: bigint, at: number): number {
    const last = this.#newest;
    const now = { group, at };
    if (last && group <= last.group && group + ANEW > last.group) return 0; // late
    this.#newest = now;
    if (!last || group < last.group || group - last.group > ANEW || at - last.at > 2 * MOST) {
      this.#from = this.#after = now;
      this.#interval = 0;
      if (last && group < last.group) this.#start = this.#reach = this.#drained = 0n;
      return 0;
    }
    if (at - this.#after!.at > MOST_SPAN / 2) {
      this.#from = this.#after;
      this.#after = now;
    }
    const span = at - this.#from!.at;
    if (span >= SPAN) this.#interval = span / Number(group - this.#from!.group);
    const declined = (this.#reach < group ? this.#reach : group) - last.group - 1n;
    return declined > 0n ? Number(declined) : 0;
  }

  /**
   * The page requests a frame from `at` on, which may be earlier or later than predicted. Returns the
   * subscription's new start where a declined group is needed after all, or more can be declined.
   */
  wanted(at: number, now: number, rtt: number): bigint | undefined {
    if (this.#wanted !== undefined) {
      const cycle = Math.min(MOST, Math.max(0, at - this.#wanted));
      this.#cycle += (this.#cycle === 0 ? 1 : NEWEST) * (cycle - this.#cycle);
    }
    this.#wanted = at;
    const start = this.#startFor(at, now, rtt);
    if (start >= this.#start) return this.#decline(at, now, rtt);
    return this.#waiting ? this.#move(start) : undefined;
  }

  /** The page is given the newest frame. Returns the subscription's new start where frames until the next can be declined. */
  given(now: number, rtt: number): bigint | undefined {
    this.#given = now;
    return this.#declineCycle(now, rtt);
  }

  /** The newest frame waits for its time. Returns the same as `given` where no other is to come before that. */
  waits(now: number, rtt: number): bigint | undefined {
    const next = this.#newest && this.#interval > 0 ? this.#newest.at + (1 - LATE) * this.#interval : now;
    return this.#wanted !== undefined && next > this.#wanted ? this.#declineCycle(now, rtt) : undefined;
  }

  /** Until when the newest frame is better held back, as one that is fresher by far is due. */
  hold(): number {
    if (this.#wanted === undefined) return -Infinity;
    const due = this.#due;
    return this.#waiting && due > this.#wanted && due - this.#wanted < HOLD * this.#interval ? due + HOLD * this.#interval : this.#wanted;
  }

  /** A frame arrived that the page has no use for so far. Returns a new start where it draws nothing for long, as in a tab that is not seen. */
  idle(now: number, rtt: number): bigint | undefined {
    const since = now - this.#given;
    return since > Math.max(LEAST_PATIENCE, PATIENCE * this.#cycle) ? this.#decline(now + Math.min(MOST, since), now, rtt) : undefined;
  }

  /**
   * The newest frame arrived `late` ms late, behind others in a queue. Returns the subscription's new start where
   * frames can be declined: what is published when so much time has passed again.
   */
  behind(late: number): bigint | undefined {
    if (!this.#newest || this.#interval === 0) return undefined;
    const start = this.#newest.group + BigInt(Math.ceil((2 * late) / this.#interval));
    if (start <= this.#start) return undefined;
    this.#drained = start;
    return this.#move(start);
  }

  /** Whether a group is not one that would be behind late ones. */
  wants(group: bigint): boolean {
    return group >= this.#drained || group + ANEW < this.#drained;
  }

  /** Returns the subscription's new start where a frame that was not declined should have come long ago. */
  overdue(now: number, rtt: number): bigint | undefined {
    if (!this.#waiting) return undefined;
    if (now < this.#due + rtt + OVERDUE) return undefined;
    this.#interval = 0;
    this.#drained = 0n;
    return this.#move(0n);
  }

  /** Whether groups that were declined are still to come. */
  get #waiting(): boolean {
    return this.#newest !== undefined && this.#start > this.#newest.group + 1n;
  }

  /** When the first group that was not declined is due. */
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
    if (start > this.#reach) this.#reach = start;
    return start;
  }

  /** The group that is the newest at `due`; the one after the newest so far where none between can be declined any more. */
  #startFor(due: number, now: number, rtt: number): bigint {
    if (!this.#newest) return 0n;
    const { group, at } = this.#newest;
    if (this.#interval === 0) return group + 1n;
    const ahead = Math.floor(Math.min(due - at, MOST) / this.#interval + LATE);
    const underWay = Math.max(0, Math.floor((now + rtt - at) / this.#interval));
    return ahead - underWay >= 2 ? group + BigInt(ahead) : group + 1n;
  }
}
