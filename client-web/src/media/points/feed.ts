/** One camera's frames on their way to its decoder. */
import type { Subscription } from "../../moqt/index.ts";
import { localTime } from "../session/clock.ts";
import { Assembler } from "./assembler.ts";
import { DESCRIPTION, HEADER_LENGTH } from "./header.ts";
import type { ToDecoder } from "./messages.ts";
import { Pace } from "./pace.ts";
import { addParts, noParts, PartsReceiver, type PartsCounts, type PartsRequest } from "./parts.ts";
import { Sequence } from "./sequence.ts";
import type { CameraTrack, Transform } from "./track.ts";

type Objects = Uint8Array<ArrayBuffer>[];

interface Waiting {
  readonly objects: Objects;
  readonly arrived: number;
}

/** A frame whose transit exceeds the least by this much, ms, is late: there is a queue on the path. */
const LATE = 400;
/** The least transit is taken over the last two windows of so many ms, as clocks drift. */
const SPAN = 10_000;
/** A capture time this far back, ms, is not a late frame but a restart. */
const BACK = 1000;
/** Pause in the subscription after a late frame, ms; doubled after each further one. */
const DRAIN = 500;
const MOST_DRAIN = 4000;
/** Late frames are shown if nothing else was for so long, ms. */
const STARVED = 5000;
/** Buffers kept for frames to be decoded to: the page may hold two. */
const BUFFERS = 2;

/** What a feed needs to know of its session. */
export interface Surroundings {
  /** Frames whose numbers go back begin anew, as those of a replay do. */
  readonly loops: boolean;
  /** Round-trip time, ms. */
  readonly rtt: number;
}

/**
 * The page requests a frame from some moment on; the newest at that moment is decoded. Frames in between are
 * declined (the relay does not send them) or, if they arrive anyway, skipped.
 */
export class Feed {
  assembler!: Assembler;
  readonly sequence = new Sequence();
  subscription: Subscription | undefined;
  /** Counts the times that the feed's subscription was begun anew. */
  run = 0;
  skipped = 0;
  /** Of frames in datagrams: what earlier subscriptions brought, and the receivers of this one and of the next. */
  readonly #parts = noParts();
  #receiver: PartsReceiver | undefined;
  #nextReceiver: PartsReceiver | undefined;
  /** First group that the subscription brings. */
  #from = 0n;
  /** Local time when the newest frame arrived, and its capture time; ms. */
  arrived = localTime();
  captured = 0;
  #pace = new Pace();
  /** From when the page has use for a frame; Infinity while it has one. */
  #wanted = 0;
  #next: Waiting | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Least transit (local arrival minus capture time) of the current and the previous window. */
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

  /** Forgets everything received so far. */
  restart(): void {
    const assembler = new Assembler(this.camera.descriptions, (f) => {
      if (assembler === this.assembler) this.show(f.objects, f.group); // assemblers of earlier runs are ignored
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
    if (this.#nextReceiver) {
      this.#endParts();
      this.#receiver = this.#nextReceiver;
      this.#nextReceiver = undefined;
    }
    this.#pace = new Pace();
    this.#from = 0n;
    const { largest } = subscription;
    if (this.camera.datagrams && largest) this.#receiver?.assembler.expect(largest.group, largest.object, localTime());
  }

  /** Takes frames in datagrams of the subscription that is to follow. fetch asks for missing parts and hands what comes to the receiver. */
  receiveParts(maxPayload: number, fetch: (r: PartsRequest, into: PartsReceiver) => Promise<void>): PartsReceiver {
    this.#nextReceiver?.close();
    const { assembler } = this;
    const receiver: PartsReceiver = new PartsReceiver(
      maxPayload, this.camera.deliveryTimeout, () => this.viewer.rtt,
      ({ group, payload }) => {
        if (payload.length >= HEADER_LENGTH) assembler.add(group, payload[DESCRIPTION]!, payload);
      },
      // What the relay was asked not to send is not missing.
      (r) => (r.group < this.#from ? Promise.resolve() : fetch(r, receiver)), localTime,
    );
    this.#nextReceiver = receiver;
    return receiver;
  }

  #endParts(): void {
    this.#receiver?.close();
    if (this.#receiver) addParts(this.#parts, this.#receiver.assembler.counts);
    this.#receiver = undefined;
  }

  /** Counters of frames in datagrams. */
  get parts(): PartsCounts {
    const sum = { ...this.#parts };
    if (this.#receiver) addParts(sum, this.#receiver.assembler.counts);
    return sum;
  }

  /** Whether frames can be declined: some relays end a subscription when asked to change it. */
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

  /** Counts a frame that is too late to show. */
  skip(objects: Objects): void {
    this.#count(objects, 0);
    this.skipped++;
  }

  /** Takes a frame to show now. group: of a subscription's frame. */
  show(objects: Objects, group?: bigint): void {
    const now = (this.arrived = localTime());
    this.#count(objects, group === undefined || !this.#declines ? 0 : this.#pace.arrived(group, now));
    if (group !== undefined) {
      const late = this.#lateness(now);
      if (late > LATE) {
        // Everything queued is as old. Let the queue drain: decline what would queue behind it.
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
    // A looping recording, or a clock that was set: earlier transits do not apply.
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

  /** Whether a group is worth reading; groups queued behind late frames are not. */
  wants(group: bigint): boolean {
    return this.assembler.wants(group) && this.#pace.wants(group);
  }

  /** The page requests a frame from a local time on, and returns a buffer. */
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

  /** Checks for frames that are overdue. */
  look(): void {
    this.#start(this.#pace.overdue(localTime(), this.viewer.rtt));
  }

  /** Moves the start of the subscription. */
  #start(group: bigint | undefined): void {
    if (group === undefined) return;
    this.#from = group;
    this.subscription?.startAt(group);
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

  /** The camera has moved from where its track says. */
  setPose(pose: Transform): void {
    this.#post({ type: "pose", camera: this.camera.camera, pose });
  }

  /** Stops receiving until `follow`. */
  leave(): void {
    this.run++;
    clearTimeout(this.#timer);
    this.#endParts();
    this.#nextReceiver?.close();
    this.#nextReceiver = undefined;
    this.subscription?.cancel();
    this.restart();
  }

  close(): void {
    this.leave();
    this.#post({ type: "remove", camera: this.camera.camera });
  }
}
