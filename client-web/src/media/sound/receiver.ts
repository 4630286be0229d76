/** Checks a track's packets, puts them in order and decodes them. */
import type { Properties } from "../../moqt/message.ts";
import { timestampOf } from "../session/loc.ts";
import { packetDuration } from "./decoder.ts";
import type { SoundTrack } from "./track.ts";

/** Property of a packet: the previous packet. */
const PREVIOUS = 0x68636175;
/** Maximum size of a packet of one microphone (RFC 6716 §3.2.1), and of any packet, bytes. */
const MAX_OPUS = 1275;
export const MAX_PACKET = 65535;
/** Duration of a microphone's packet, µs. */
const PACKET = 10_000;
/** Maximum distance of a timestamp from the session's clock, ms. */
const MAX_SKEW = 10_000;
/** Timestamps that go back or ahead by more than this, µs, belong to a restarted publisher or a replay's next round. */
const BACK = 1_000_000;
const AHEAD = 10_000_000;
/**
 * Time to wait for a missing packet, since streams arrive in any order, and maximum number of packets waiting
 * meanwhile.
 */
const PATIENCE = 40;
const MAX_WAITING = 50;
/** Accepted packets per second, and the burst allowed after a pause. */
const RATE = 200;
const BURST = 400;

/** A packet's object. */
export interface Packet {
  readonly properties: Properties;
  readonly payload: Uint8Array;
}

export interface ReceiverPorts {
  /** Decodes a packet. Packets come in order. */
  decode(timestamp: number, data: Uint8Array<ArrayBuffer>): void;
  /** Discards earlier packets, because the following ones are not their continuation. */
  restart(): void;
}

export class Receiver {
  received = 0;
  repeated = 0;
  late = 0;
  refused = 0;
  /** Cause of the last refusal; "" if there was none. */
  reason = "";
  /** Timestamp of the newest decoded packet, µs. */
  #newest = -Infinity;
  /** Packets after a missing one, in order. */
  #waiting: { readonly timestamp: number; readonly data: Uint8Array<ArrayBuffer>; readonly repeated: boolean }[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  #allowance = BURST;
  #counted = 0;

  constructor(
    private readonly track: Pick<SoundTrack, "codec" | "sampleRate" | "channels" | "microphone">,
    private readonly ports: ReceiverPorts,
  ) {}

  /** Largest acceptable packet, bytes. */
  get maxPacket(): number {
    return this.track.microphone ? MAX_OPUS : MAX_PACKET;
  }

  /** Accepts packets of any time again, as after a seek. */
  restart(): void {
    this.#newest = -Infinity;
    this.#waiting = [];
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  refuse(reason: string): void {
    this.refused++;
    this.reason = reason;
  }

  /**
   * Adds a packet at local time `now`, ms. `clock` is the time on the session's clock in ms, or undefined if timestamps
   * need not be near it. `live` packets are limited to 200 per second.
   */
  add(p: Packet, now: number, clock: number | undefined, live: boolean): void {
    if (live && !this.#allowed(now)) return this.refuse(`more than ${RATE} packets per second`);
    const timestamp = Number(timestampOf(p.properties) ?? -1n);
    const reason = this.#fault(p.payload) ?? fault(timestamp, clock);
    if (reason !== undefined) return this.refuse(reason);
    if (timestamp < this.#newest - BACK || (this.#newest > 0 && timestamp > this.#newest + AHEAD)) {
      this.restart();
      this.ports.restart();
    }
    const previous = p.properties.other?.get(PREVIOUS);
    if (previous instanceof Uint8Array && this.track.microphone && this.#newest > -Infinity) {
      const reason = this.#fault(previous);
      if (reason !== undefined) this.refuse(reason);
      else this.#insert(timestamp - PACKET, previous, true);
    }
    this.#insert(timestamp, p.payload, false);
    this.#drain();
  }

  #insert(timestamp: number, data: Uint8Array, repeated: boolean): void {
    const half = packetDuration(this.track, data) / 2;
    if (timestamp < this.#newest + half) {
      if (!repeated) this.late++;
      return;
    }
    const list = this.#waiting;
    let i = list.length;
    while (i > 0 && list[i - 1]!.timestamp > timestamp) i--;
    const near = (at: number): boolean => Math.abs((list[at]?.timestamp ?? Infinity) - timestamp) < half;
    if (near(i - 1) || near(i)) return;
    list.splice(i, 0, { timestamp, data: data.slice(), repeated });
  }

  /** Decodes packets up to the first missing one and waits for that. */
  #drain(): void {
    const list = this.#waiting;
    while (list.length > MAX_WAITING || (list.length > 0 && this.#follows(list[0]!))) this.#take();
    if (list.length === 0) {
      clearTimeout(this.#timer);
      this.#timer = undefined;
    } else {
      this.#timer ??= setTimeout(() => {
        this.#timer = undefined;
        this.#take();
        this.#drain();
      }, PATIENCE);
    }
  }

  /** True if a packet is the first or continues the newest decoded one. */
  #follows({ timestamp, data }: { readonly timestamp: number; readonly data: Uint8Array }): boolean {
    return this.#newest === -Infinity || timestamp < this.#newest + 1.5 * packetDuration(this.track, data);
  }

  #take(): void {
    const { timestamp, data, repeated } = this.#waiting.shift()!;
    this.#newest = timestamp;
    this.received++;
    if (repeated) this.repeated++;
    this.ports.decode(timestamp, data);
  }

  #allowed(now: number): boolean {
    this.#allowance = Math.min(BURST, this.#allowance + (RATE * Math.max(0, now - this.#counted)) / 1000);
    this.#counted = now;
    if (this.#allowance < 1) return false;
    this.#allowance--;
    return true;
  }

  #fault(data: Uint8Array): string | undefined {
    if (data.length === 0) return "no bytes";
    if (data.length > this.maxPacket) return tooLarge(data.length, this.maxPacket);
    if (!this.track.microphone) return undefined;
    const duration = packetDuration(this.track, data);
    if (duration !== PACKET) return `${duration / 1000} ms of sound instead of ${PACKET / 1000}`;
    const channels = (data[0]! & 4) === 0 ? 1 : 2;
    if (channels !== this.track.channels) return `${channels} channels instead of ${this.track.channels}`;
    return undefined;
  }
}

export const tooLarge = (bytes: number | bigint, most: number): string => `${bytes} bytes, more than ${most}`;

/** Says what is wrong with a timestamp, in µs; undefined if nothing is. */
function fault(timestamp: number, clock: number | undefined): string | undefined {
  if (timestamp < 0) return "no timestamp";
  const skew = clock === undefined ? 0 : timestamp / 1000 - clock;
  if (Math.abs(skew) <= MAX_SKEW) return undefined;
  const seconds = Math.round(Math.abs(skew) / 1000);
  return `a timestamp ${seconds} s ${skew > 0 ? "after" : "before"} the session's clock`;
}
