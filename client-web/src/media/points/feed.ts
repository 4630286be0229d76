/** One camera's frames on their way to its decoder. */
import type { Subscription } from "../../moqt/index.ts";
import { localTime } from "../session/clock.ts";
import { Assembler } from "./assembler.ts";
import { HEADER_LENGTH } from "./header.ts";
import type { ToDecoder } from "./messages.ts";
import { Pace } from "./pace.ts";
import { Sequence } from "./sequence.ts";
import type { CameraTrack, Transform } from "./track.ts";

type Objects = Uint8Array<ArrayBuffer>[];

interface Waiting {
  readonly objects: Objects;
  readonly arrived: number;
}

/** A frame that has taken this much longer than the quickest from capture to here is late, ms: something on the way has a queue. */
const LATE = 400;
/** The quickest is of the last two spans of so many ms: clocks drift. */
const SPAN = 10_000;
/** So far back, ms, a capture time is no late frame's. */
const BACK = 1000;
/** How long nothing more is asked for after a late frame, ms: twice as long after each that follows. */
const DRAIN = 500;
const MOST_DRAIN = 4000;
/** A late frame is shown all the same where none was for so long, ms. */
const STARVED = 5000;
/** Buffers kept for frames to be decoded to: the page may hold two. */
const BUFFERS = 2;

/** What a feed knows of its viewer. */
export interface Surroundings {
  /** Frames whose numbers go back begin anew, as those of a replay do. */
  readonly loops: boolean;
  /** Round-trip time, ms. */
  readonly rtt: number;
}

/**
 * The page says from when it has use for a frame; what is the newest then is decoded. Those between are
 * declined, which the relay does not send, or skipped where they come all the same.
 */
export class Feed {
  assembler!: Assembler;
  readonly sequence = new Sequence();
  subscription: Subscription | undefined;
  /** Counts the times that the feed's subscription was begun anew. */
  run = 0;
  skipped = 0;
  /** Local time when the newest frame arrived, and its capture time; ms. */
  arrived = localTime();
  captured = 0;
  #pace = new Pace();
  /** From when the page has use for a frame; Infinity while it has one. */
  #wanted = 0;
  #next: Waiting | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Least time from capture to arrival, on clocks that differ: of the span under way and of the one before. */
  #quickest = Infinity;
  #quickestBefore = Infinity;
  #spanned = 0;
  #capturedBefore = 0;
  #drain = DRAIN;
  /** Local time when a frame was last given to be decoded. */
  #given = 0;
  readonly #free: ArrayBuffer[] = [];

  constructor(
    readonly camera: CameraTrack,
    readonly port: Pick<MessagePort, "postMessage">,
    private readonly viewer: Surroundings,
  ) {
    this.restart();
    this.#post({ type: "setup", camera });
  }

  /** What comes now has nothing to do with what came before. */
  restart(): void {
    const assembler = new Assembler(this.camera.descriptions, (f) => {
      if (assembler === this.assembler) this.show(f.objects, f.group); // what was under way comes all the same
    });
    this.assembler = assembler;
    this.sequence.restart();
    this.#pace = new Pace();
    this.#quickest = this.#quickestBefore = Infinity;
    if (this.#next) this.skipped++;
    this.#next = undefined;
    this.arrived = localTime();
  }

  /** Goes on with another subscription. */
  follow(subscription: Subscription): void {
    this.subscription = subscription;
    this.#pace = new Pace();
  }

  /** Whether frames can be declined: a relay that cannot change subscriptions ends them when asked to. */
  get #declines(): boolean {
    return !this.subscription?.session.refusesChanges;
  }

  #count(objects: Objects, declined: number): void {
    const object = objects[0]!;
    if (object.length < HEADER_LENGTH) return;
    const header = new DataView(object.buffer, object.byteOffset);
    this.captured = Number(header.getBigUint64(20, true)) / 1000;
    this.sequence.add(header.getUint32(8, true), this.viewer.loops, declined);
  }

  /** Takes a frame that it is too late to see. */
  skip(objects: Objects): void {
    this.#count(objects, 0);
    this.skipped++;
  }

  /** Takes a frame that is to be seen now. group: of one that was subscribed to. */
  show(objects: Objects, group?: bigint): void {
    const now = (this.arrived = localTime());
    this.#count(objects, group === undefined || !this.#declines ? 0 : this.#pace.arrived(group, now));
    if (group !== undefined) {
      const late = this.#lateness(now);
      if (late > LATE) {
        // What is queued is as old. The queue is left to drain: nothing is sent that would be behind it.
        this.#start(this.#pace.behind(late + this.#drain));
        this.#drain = Math.min(2 * this.#drain, MOST_DRAIN);
        if (now - this.#given < STARVED) {
          this.skipped++;
          return;
        }
      } else {
        this.#drain = Math.max(DRAIN, this.#drain / 2);
      }
    }
    if (this.#next) this.skipped++;
    this.#next = { objects, arrived: now };
    if (this.#wanted === Infinity) this.#start(this.#pace.idle(now, this.viewer.rtt));
    else this.#deliver();
  }

  /** How much longer than the quickest the newest frame took from capture to here, ms. */
  #lateness(now: number): number {
    const took = now - this.captured;
    // A recording that begins again, or a clock that was set: what was before says nothing.
    if (this.captured < this.#capturedBefore - BACK) this.#quickest = this.#quickestBefore = Infinity;
    this.#capturedBefore = this.captured;
    if (now - this.#spanned > SPAN) {
      this.#spanned = now;
      this.#quickestBefore = this.#quickest;
      this.#quickest = took;
    }
    this.#quickest = Math.min(this.#quickest, took);
    return took - Math.min(this.#quickest, this.#quickestBefore);
  }

  /** Whether a group is worth reading: what is behind late frames in a queue is not. */
  wants(group: bigint): boolean {
    return this.assembler.wants(group) && this.#pace.wants(group);
  }

  /** The page has use for a frame from a local time on, and gives a buffer back. */
  wanted(at: number, words?: ArrayBuffer): void {
    if (words) this.give(words);
    this.#wanted = at;
    this.#start(this.#pace.wanted(at, localTime(), this.viewer.rtt));
    this.#deliver();
  }

  /** Takes a buffer back. */
  give(words: ArrayBuffer): void {
    if (this.#free.length < BUFFERS) this.#free.push(words);
  }

  /** Looks whether frames stay away that should come. */
  look(): void {
    this.#start(this.#pace.overdue(localTime(), this.viewer.rtt));
  }

  /** Moves the start of the subscription. */
  #start(group: bigint | undefined): void {
    if (group !== undefined) this.subscription?.startAt(group);
  }

  #deliver(): void {
    clearTimeout(this.#timer);
    const next = this.#next;
    if (!next || this.#wanted === Infinity) return;
    const now = localTime();
    const from = Math.max(this.#wanted, this.#pace.hold());
    if (now < from) {
      this.#timer = setTimeout(() => this.#deliver(), Math.ceil(from - now));
      this.#start(this.#pace.waits(now, this.viewer.rtt));
      return;
    }
    this.#next = undefined;
    this.#wanted = Infinity;
    this.#given = now;
    const words = this.#free.pop();
    const transfer: Transferable[] = next.objects.map((o) => o.buffer);
    if (words) transfer.push(words);
    this.#post({ type: "frame", camera: this.camera.camera, words, ...next }, transfer);
    this.#start(this.#pace.given(now, this.viewer.rtt));
  }

  #post(m: ToDecoder, transfer: Transferable[] = []): void {
    this.port.postMessage(m, transfer);
  }

  /** The camera stands elsewhere than its track said. */
  setPose(pose: Transform): void {
    this.#post({ type: "pose", camera: this.camera.camera, pose });
  }

  /** Receives nothing from now on, until it follows another subscription. */
  leave(): void {
    this.run++;
    clearTimeout(this.#timer);
    this.subscription?.cancel();
    this.restart();
  }

  close(): void {
    this.leave();
    this.#post({ type: "remove", camera: this.camera.camera });
  }
}
