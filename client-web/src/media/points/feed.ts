/** Receives one camera's frames and passes them to its decoder. */
import type { Subscription } from "../../moqt/index.ts";
import { localTime } from "../session/clock.ts";
import { Assembler, type Assembled } from "./assembler.ts";
import { Chain, GroupAssembler } from "./chain.ts";
import { captureTime, DESCRIPTION, HEADER_LENGTH } from "./header.ts";
import { isChained } from "./layout.ts";
import type { ToDecoder } from "./messages.ts";
import { Hold } from "./hold.ts";
import { Pace } from "./pace.ts";
import { addParts, noParts, PartsReceiver, type PartsCounts, type PartsRequest } from "./parts.ts";
import { Sequence } from "./sequence.ts";
import type { CameraTrack, Transform } from "./track.ts";

type Objects = Uint8Array<ArrayBuffer>[];

interface Waiting {
  readonly objects: Objects;
  readonly arrived: number;
}

/** A frame whose transit time exceeds the minimum by more than this many ms is late: it was queued on the path. */
const LATE = 400;
/**
 * Window of the minimum transit time, ms. The minimum covers the current and the previous window, to follow clock
 * drift.
 */
const SPAN = 10_000;
/** A capture time that goes back by more than this many ms indicates a restart. */
const RESTART = 1000;
/** Margin added to the time that a queue takes to drain, ms. */
const PAUSE = 500;
/** Maximum duration of a drain, ms. A deeper queue is drained again. */
const MAX_DRAIN = 3000;
/** Late frames are shown if nothing else has been shown for this many ms. */
const STARVED = 1000;
/** Nominal length of a group of chained objects, ms. */
const GROUP = 1000;
/** A group this far below the start comes from a restarted publisher. */
const RESTART_GAP = 1000n;
/** Number of spare output buffers to keep. The page may hold two. */
const BUFFERS = 2;

/** The part of the session's state that a feed uses. */
export interface SessionState {
  /** True for a looping replay, where lower sequence numbers start a new round. */
  readonly loops: boolean;
  /** Round-trip time, ms. */
  readonly rtt: number;
}

/**
 * Passes the newest frame to the decoder when the page can use one. Frames in between are declined
 * (the relay does not send them) or, if they arrive anyway, skipped. On a chained track, the decoder needs
 * them all, so they are passed on with the newest frame unless a later group has begun.
 */
export class Feed {
  assembler!: Assembler | GroupAssembler;
  readonly sequence = new Sequence();
  subscription: Subscription | undefined;
  /** Number of subscriptions so far. */
  run = 0;
  skipped = 0;
  /** Bytes of the frames that arrived. */
  bytes = 0;
  /** Datagram counters of earlier subscriptions, and the receivers of the current and the next one. */
  readonly #parts = noParts();
  #receiver: PartsReceiver | undefined;
  #nextReceiver: PartsReceiver | undefined;
  /** First group of the subscription. */
  #from = 0n;
  /** Local arrival time and capture time of the newest frame, ms. */
  arrived = localTime();
  captured = 0;
  /** End of the last drain, local time in ms. Earlier frames were declined. */
  resumes = 0;
  #pace = new Pace();
  /** Local time from which the page can use a frame; Infinity while it has one. */
  #wanted = 0;
  #next: Waiting | undefined;
  /** Set on a chained track; holds the objects instead of #next. */
  readonly #chain: Chain | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Minimum transit (local arrival minus capture time) in the current and the previous window. */
  #minTransit = Infinity;
  #minTransitBefore = Infinity;
  #windowStart = 0;
  #capturedBefore = 0;
  /** Local time at which the last frame was passed to the decoder. */
  #given = 0;
  readonly #free: ArrayBuffer[] = [];
  readonly #held = new Hold();

  constructor(
    readonly camera: CameraTrack,
    readonly port: Pick<MessagePort, "postMessage">,
    private readonly viewer: SessionState,
  ) {
    if (isChained(camera.layout)) this.#chain = new Chain();
    this.restart();
    this.#post({ type: "setup", camera });
  }

  /** Discards all state of received frames. */
  restart(): void {
    const ready = (f: Assembled) => {
      this.#held.add(capturedAt(f.objects[0]), () => {
        if (assembler === this.assembler) this.show(f.objects, f.group); // ignore assemblers of earlier subscriptions
      });
    };
    const broken = () => {
      this.#held.add(undefined, () => {
        if (assembler === this.assembler) this.resync();
      });
    };
    const assembler = this.#chain
      ? new GroupAssembler(ready, broken)
      : new Assembler(this.camera.descriptions, ready);
    this.assembler = assembler;
    this.sequence.restart();
    this.#pace = new Pace();
    this.#minTransit = this.#minTransitBefore = Infinity;
    this.skipped += this.#drop();
    this.arrived = localTime();
    this.resumes = 0;
  }

  /** Holds later frames back by `ms`. */
  postpone(ms: number): void {
    this.#held.by = ms;
  }

  /** Switches to a new subscription. */
  follow(subscription: Subscription): void {
    this.subscription = subscription;
    if (this.#nextReceiver) {
      this.#endParts();
      this.#receiver = this.#nextReceiver;
      this.#nextReceiver = undefined;
    }
    this.#pace = new Pace(this.#pace);
    this.#from = 0n;
    const { largest } = subscription;
    if (this.camera.datagrams && largest) this.#receiver?.assembler.expect(largest.group, largest.object, localTime());
  }

  /**
   * Prepares to receive datagrams from the next subscription. `fetch` requests missing parts and
   * adds them to the receiver.
   */
  receiveParts(maxPayload: number, fetch: (r: PartsRequest, into: PartsReceiver) => Promise<void>): PartsReceiver {
    this.#nextReceiver?.close();
    const { assembler } = this;
    const receiver: PartsReceiver = new PartsReceiver(
      maxPayload, this.camera.deliveryTimeout, () => this.viewer.rtt,
      ({ group, payload }) => {
        if (payload.length >= HEADER_LENGTH) assembler.add(group, payload[DESCRIPTION]!, payload);
      },
      // Declined groups are not missing.
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

  /** Counters of frames sent in datagrams. */
  get parts(): PartsCounts {
    const sum = { ...this.#parts };
    if (this.#receiver) addParts(sum, this.#receiver.assembler.counts);
    return sum;
  }

  /** False for a relay that ends subscriptions when asked to update them. */
  get #declines(): boolean {
    return !this.subscription?.session.refusesChanges;
  }

  #count(objects: Objects, declined: number): void {
    for (const o of objects) this.bytes += o.length;
    for (const o of this.#chain ? objects : objects.slice(0, 1)) this.#countFrame(o, declined);
  }

  #countFrame(object: Uint8Array, declined: number): void {
    if (object.length < HEADER_LENGTH) return;
    const sequence = new DataView(object.buffer, object.byteOffset).getUint32(8, true);
    this.captured = captureTime(object);
    this.sequence.add(sequence, this.viewer.loops, declined);
  }

  /** Counts a frame that arrived too late to show. */
  skip(objects: Objects): void {
    this.#count(objects, 0);
    this.skipped++;
  }

  /** Accepts a frame to show now. `group` is the frame's group, or undefined if it comes from a recording. */
  show(objects: Objects, group?: bigint): void {
    const now = (this.arrived = localTime());
    const paced = group !== undefined && this.#declines && !this.#chain;
    this.#count(objects, paced ? this.#pace.arrived(group, now) : 0);
    if (group !== undefined) {
      const late = this.#lateness(now);
      if (late > LATE) {
        const starved = now - this.#given >= STARVED;
        // Every frame in the queue arrives late. Let the queue drain by declining the groups after it.
        const duration = Math.min(2 * late + PAUSE, MAX_DRAIN);
        this.resumes = now + duration;
        if (!this.#chain) this.#start(this.#pace.drain(duration, this.camera.framerate));
        else if (!starved) this.#start(group + BigInt(Math.ceil(Math.min(late + PAUSE, MAX_DRAIN) / GROUP)));
        if (!starved) {
          this.skipped += 1 + (this.#chain ? this.#drop() : 0);
          return;
        }
      }
    }
    this.#wait(objects, now);
    if (this.#wanted === Infinity) this.#start(this.#pace.idle(now, this.viewer.rtt));
    else this.#deliver();
  }

  #wait(objects: Objects, arrived: number): void {
    if (!this.#chain) {
      if (this.#next) this.skipped++;
      this.#next = { objects, arrived };
      return;
    }
    for (const o of objects) this.skipped += this.#chain.add(o);
    this.#next = this.#chain.length > 0 ? { objects: [], arrived } : undefined;
  }

  /**
   * Skips the rest of a chained track's group after damage, and asks the publisher for a new group. No effect on other
   * tracks.
   */
  resync(): void {
    if (!(this.assembler instanceof GroupAssembler) || !this.#chain) return;
    this.skipped += this.#drop();
    const { newest } = this.assembler;
    // The group may have been cut because it was declined.
    if (this.#from <= newest) this.subscription?.requestGroup(newest + 1n);
  }

  /** Drops the waiting frames, and a chained track's further ones until the next key frame. Returns their number. */
  #drop(): number {
    const waiting = this.#next;
    this.#next = undefined;
    return this.#chain?.break() ?? Number(waiting !== undefined);
  }

  /** The newest frame's excess over the minimum transit time, ms. */
  #lateness(now: number): number {
    const took = now - this.captured;
    // The recording looped or a clock was set, so discard earlier transit times.
    if (this.captured < this.#capturedBefore - RESTART) this.#minTransit = this.#minTransitBefore = Infinity;
    this.#capturedBefore = this.captured;
    if (now - this.#windowStart > SPAN) {
      this.#windowStart = now;
      this.#minTransitBefore = this.#minTransit;
      this.#minTransit = took;
    }
    this.#minTransit = Math.min(this.#minTransit, took);
    return took - Math.min(this.#minTransit, this.#minTransitBefore);
  }

  /** False for groups that would queue behind late frames. */
  wants(group: bigint): boolean {
    const from = this.#from;
    return (
      this.assembler.wants(group) &&
      (this.#chain ? group >= from || group + RESTART_GAP < from : this.#pace.wants(group))
    );
  }

  /** The page requests a frame for local time `at` or later. It may return a buffer with the request. */
  wanted(at: number, words?: ArrayBuffer): void {
    if (words) this.give(words);
    this.#wanted = at;
    this.#start(this.#pace.wanted(at, localTime(), this.viewer.rtt));
    this.#deliver();
  }

  /** Takes back a buffer. */
  give(words: ArrayBuffer): void {
    if (this.#free.length < BUFFERS) this.#free.push(words);
  }

  /** Checks for overdue frames. Call every 250 ms. */
  checkOverdue(): void {
    if (this.assembler instanceof GroupAssembler) this.assembler.check();
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
    let next = this.#next;
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
    if (this.#chain) {
      next = { ...next, objects: this.#chain.take() };
      this.skipped += next.objects.length - 1;
    }
    const words = this.#free.pop();
    const transfer: Transferable[] = next.objects.map((o) => o.buffer);
    if (words) transfer.push(words);
    this.#post({ type: "frame", camera: this.camera.camera, words, ...next }, transfer);
    this.#start(this.#pace.given(now, this.viewer.rtt));
  }

  #post(m: ToDecoder, transfer: Transferable[] = []): void {
    this.port.postMessage(m, transfer);
  }

  /** Passes on a pose that differs from the catalog's. */
  setPose(pose: Transform): void {
    this.#post({ type: "pose", camera: this.camera.camera, pose });
  }

  /** Stops receiving until `follow` is called. */
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

/** Capture time of an object, ms; undefined for a damaged one. */
function capturedAt(object: Uint8Array | undefined): number | undefined {
  return object && object.length >= HEADER_LENGTH ? captureTime(object) : undefined;
}
