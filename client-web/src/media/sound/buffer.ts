/**
 * Decides, packet by packet, what to play next, like internal/jitter; both pass internal/jitter/testdata/vectors.json.
 * Independent of clocks and decoders. Times are whole µs on the session's clock.
 */

/** Limits in µs unless noted. FAR is the largest distance of a timestamp from the clock. */
const FAR = 10_000_000;
const MAX_PACKETS = 128;
const MAX_TARGET = 1_000_000;
/** Delay error up to which sound is not stretched, and above which playback jumps instead. */
const TOLERANCE = 5000;
const JUMP = 200_000;
/** Margin added to the 99th percentile of the delays, and a further margin until FIRST packets have arrived. */
const HEADROOM = 5000;
const EARLY = 20_000;
const FIRST = 32;
/** Number of arrivals that determine the delay. */
const WINDOW = 512;
/**
 * A packet that needs over SURPLUS more than the target was delayed by a stall. Stalls are over APART arrivals apart,
 * and recur within RECURRENCE.
 */
const SURPLUS = 50_000;
const APART = 100;
const RECURRENCE = 1000;
const MAX_CONCEAL = 100_000;
/** Playback ends after this much concealment without a waiting packet. */
const END_AFTER = 1_000_000;
/** A stretch by n samples is followed by at least 20 n samples without another. */
const SLOWEST = 20;
/** The same while sound hurries, from a delay error of HURRY_FROM to one of HURRY_TO. */
const HURRIED = 2;
const HURRY_FROM = 50_000;
const HURRY_TO = 20_000;
/** Longest time to hold pictures back for sound. */
export const MAX_POSTPONED = 80_000;
const MISSED = 64;
/** This many successive packets older than the played ones, not in a burst, mean that the clock was set back. */
const SET_BACK = 16;

/** A packet with its sound or encoded bytes. */
export interface SoundPacket<Data> {
  /** Capture time of its first sample. */
  readonly timestamp: number;
  readonly data: Data;
  /** Received as the copy carried by the next packet. */
  readonly repeated: boolean;
}

/** Content of the next samples. */
export type Kind =
  /** The packet. */
  | "play"
  /** The missing packet, recovered from the in-band error correction of `packet`, its successor. */
  | "correct"
  /** A continuation of the earlier samples. */
  | "conceal"
  | "silence";

export interface Decision<Data> {
  readonly kind: Kind;
  /** Set to play or correct. */
  readonly packet: SoundPacket<Data> | undefined;
  /** Per channel. */
  readonly samples: number;
  /** The samples do not continue the previous ones. */
  readonly jump: boolean;
  /** 1 to lengthen the packet by a splice, −1 to shorten it, 0 for neither. The caller reports it to `stretched`. */
  readonly stretch: -1 | 0 | 1;
}

/**
 * The delay within which 99 % of the recent packets arrive. Ignores a stall of the network, after which packets arrive
 * in a burst, unless stalls recur.
 */
class Delay {
  readonly #recent: number[] = [];
  readonly #sorted: number[] = [];
  #at = 0;
  #count = 0;
  target = 0;
  /** Count at the newest packet that a stall delayed. */
  #stall = 0;
  /** True if another stall preceded it by less than RECURRENCE. */
  #recurs = false;
  /** True while packets arrive together after a stall. */
  #burst = false;

  /** `bunched` tells that a packet arrived together with the one before. */
  observe(v: number, bunched: boolean): void {
    this.#count++;
    if (this.#stalled(v, bunched)) return;
    if (this.#recent.length < WINDOW) this.#recent.push(v);
    else {
      this.#sorted.splice(search(this.#sorted, this.#recent[this.#at]!), 1);
      this.#recent[this.#at] = v;
    }
    this.#sorted.splice(search(this.#sorted, v), 0, v);
    this.#at = (this.#at + 1) % WINDOW;
    let wanted = this.#sorted[Math.floor((99 * this.#sorted.length + 99) / 100) - 1]! + HEADROOM;
    if (this.#count < FIRST) wanted += EARLY;
    wanted = Math.min(wanted, MAX_TARGET);
    // Each change is audible as a stretch, so small reductions wait.
    if (this.#count <= FIRST || wanted > this.target || wanted < this.target - 2 * HEADROOM) this.target = wanted;
  }

  /** The delay within which 90 % of the recent packets arrive. */
  get usual(): number {
    const v = this.#sorted[Math.floor((90 * this.#sorted.length + 99) / 100) - 1];
    return v === undefined ? 0 : Math.min(v + HEADROOM, MAX_TARGET);
  }

  /** True if a packet belongs to the burst after a stall that does not recur. */
  #stalled(v: number, bunched: boolean): boolean {
    this.#burst &&= bunched;
    if (this.#count > FIRST && v > this.target + SURPLUS) {
      const since = this.#count - this.#stall;
      if (since > APART) this.#recurs = this.#stall > 0 && since < RECURRENCE;
      this.#stall = this.#count;
      this.#burst = true;
    }
    return this.#burst && bunched && !this.#recurs && v > this.target;
  }
}

/** Index of the first element of an ascending list that is at least v. */
function search(sorted: readonly number[], v: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle]! < v) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** How long to hold back pictures with the given delay for sound whose own delay is longer. */
export const postpone = (pictures: number, own: number): number => Math.min(Math.max(0, own - pictures), MAX_POSTPONED);

export class SoundBuffer<Data> {
  readonly stats = {
    received: 0, played: 0, repeated: 0, corrected_us: 0, concealed_us: 0, late: 0, far: 0, overflowed: 0, jumps: 0,
  };
  /** Delay of the newest decision minus its target. */
  error = 0;
  #waiting: SoundPacket<Data>[] = []; // by timestamp
  /** Time of the newest arrival, and true if it came together with the one before. */
  #arrived = 0;
  #bunched = false;
  #playing = false;
  /** Timestamp of the next sample. */
  #next = 0;
  /** Concealed since the last packet. */
  #run = 0;
  /** Samples until the next splice. */
  #rest = 0;
  /** True while sound is far too late. */
  #hurry = false;
  /** Timestamps played without their packet. */
  #missed: number[] = [];
  /** Number of successive packets older than the played ones. */
  #old = 0;
  #delay = new Delay();

  /**
   * `packet` is the duration of a packet, `lead` the longest time from a call to `decide` until its first sample is
   * heard, `rate` is in Hz, and `far` is the largest distance of a timestamp from the clock.
   */
  constructor(
    private readonly packet: number,
    private readonly lead: number,
    private readonly rate = 48_000,
    private readonly far = FAR,
  ) {}

  /** Adds a packet that arrived at `now`. `previous` is the copy of its predecessor that it carries. */
  add(now: number, timestamp: number, data: Data, previous?: Data): void {
    if (Math.abs(timestamp - now) > this.far) {
      this.stats.far++;
      return;
    }
    this.stats.received++;
    this.#bunched = now - this.#arrived < Math.floor(this.packet / 2);
    this.#arrived = now;
    if (previous !== undefined)
      this.#insert(now, { timestamp: timestamp - this.packet, data: previous, repeated: true });
    this.#insert(now, { timestamp, data, repeated: false });
  }

  #insert(now: number, p: SoundPacket<Data>): void {
    if (this.#playing && p.timestamp < this.#next - Math.floor(this.packet / 2)) {
      if (!this.#bunched) this.#old++;
      if (this.#old < SET_BACK || p.repeated) return this.#late(now, p.timestamp);
      this.forget();
    }
    this.#old = 0;
    const list = this.#waiting;
    let i = list.length;
    while (i > 0 && list[i - 1]!.timestamp > p.timestamp) i--;
    if (i > 0 && this.#same(list[i - 1]!.timestamp, p.timestamp)) return;
    if (i < list.length && this.#same(list[i]!.timestamp, p.timestamp)) return;
    if (list.length === MAX_PACKETS) {
      this.stats.overflowed++;
      if (i === MAX_PACKETS) return;
      list.pop();
    }
    list.splice(i, 0, p);
    this.#delay.observe(now - p.timestamp + this.lead, this.#bunched);
  }

  /** Counts a packet that precedes the played ones, unless it is a duplicate. */
  #late(now: number, timestamp: number): void {
    const i = this.#missed.findIndex((at) => this.#same(at, timestamp));
    if (i < 0) return;
    this.#missed.splice(i, 1);
    this.stats.late++;
    this.#delay.observe(now - timestamp + this.lead, this.#bunched);
  }

  /** True if two timestamps belong to one packet. */
  #same(x: number, y: number): boolean {
    return 2 * Math.abs(x - y) < this.packet;
  }

  /** The smallest delay from capture to sound that loses at most 1 % of the packets. */
  get own(): number {
    return this.#delay.target;
  }

  /** The delay from capture to sound. `pictures` is the pictures' delay, or undefined if there are no pictures. */
  target(pictures: number | undefined): number {
    return pictures === undefined ? this.own : Math.max(pictures, this.own);
  }

  /** Lowers a target to `latest`, but not so far that over a tenth of the packets would be concealed. */
  limit(target: number, latest: number): number {
    return Math.min(target, Math.max(latest, this.#delay.usual));
  }

  /** Duration of the waiting packets. */
  get fill(): number {
    return this.#waiting.length * this.packet;
  }

  /** Discards the waiting packets and the delay estimate, because packets of another clock or path follow. */
  forget(): void {
    this.#waiting = [];
    this.#missed = [];
    this.#old = 0;
    this.#playing = false;
    this.#delay = new Delay();
  }

  /** Decides what to play at time `at`. */
  decide(at: number, target: number): Decision<Data> {
    this.error = at - this.#next - target;
    if (this.#playing && Math.abs(this.error) > JUMP) {
      this.#playing = false;
      this.stats.jumps++;
    }
    const jump = !this.#playing;
    if (jump) {
      const wait = this.#start(at, target);
      if (wait > 0) return { kind: "silence", packet: undefined, samples: wait, jump, stretch: 0 };
    }
    if (this.error > HURRY_FROM) this.#hurry = true;
    else if (this.error <= HURRY_TO) this.#hurry = false;
    const d = this.#decide();
    this.#rest -= d.samples;
    const due = d.kind === "play" && !jump && this.#rest <= 0;
    return {
      ...d, jump, stretch: !due || Math.abs(this.error) <= TOLERANCE ? 0 : this.error > 0 ? -1 : 1,
    };
  }

  /**
   * Returns the number of samples until the first waiting packet plays, at most one packet. Starts playing if it is 0.
   */
  #start(at: number, target: number): number {
    const list = this.#waiting;
    while (list.length > 1 && list[0]!.timestamp + this.packet + target <= at) list.shift();
    let silence = this.packet;
    if (list.length > 0) silence = Math.min(silence, list[0]!.timestamp + target - at);
    const samples = Math.trunc((silence * this.rate) / 1_000_000);
    if (samples > 0) return samples;
    this.#playing = true;
    this.#next = list[0]!.timestamp;
    this.#run = this.#rest = 0;
    this.#missed = [];
    this.error = at - this.#next - target;
    return 0;
  }

  /** Decides about the packet due at `#next`, and advances `#next`. */
  #decide(): Pick<Decision<Data>, "kind" | "packet" | "samples"> {
    const samples = Math.floor((this.packet * this.rate) / 1_000_000);
    const expected = this.#next;
    const [first] = this.#waiting;
    const ahead = first && Math.max(0, first.timestamp - expected); // from the expected packet to the first waiting one
    this.#next += this.packet;
    if (first && 2 * ahead! < this.packet) {
      this.#waiting.shift();
      this.#next = first.timestamp + this.packet;
      this.#run = 0;
      this.stats.played++;
      if (first.repeated) this.stats.repeated++;
      return { kind: "play", packet: first, samples };
    }
    if (this.#missed.length === MISSED) this.#missed.shift();
    this.#missed.push(expected);
    if (first && 2 * ahead! < 3 * this.packet) {
      this.stats.corrected_us += this.packet;
      return { kind: "correct", packet: first, samples };
    }
    this.#run += this.packet;
    this.stats.concealed_us += this.packet;
    if (this.#run >= END_AFTER && !first) this.#playing = false;
    return { kind: this.#run > MAX_CONCEAL ? "silence" : "conceal", packet: undefined, samples };
  }

  /** Reports that the newest decision's samples were lengthened or shortened by n samples. */
  stretched(n: number): void {
    this.#rest = (this.#hurry ? HURRIED : SLOWEST) * n;
  }
}
