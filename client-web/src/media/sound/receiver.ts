/** Checks a track's packets, puts them in order and decodes them. */
import type { Properties } from "../../moqt/message.ts";
import { packetDuration } from "./decoder.ts";
import type { SoundTrack } from "./track.ts";

/** Properties of a packet: capture time in UNIX µs (draft-ietf-moq-loc-03), and the previous packet. */
const TIMESTAMP = 0x0a;
const PREVIOUS = 0x68636175;
/** Maximum size of a packet of one microphone (RFC 6716 §3.2.1), and of any packet, bytes. */
const MAX_OPUS = 1275;
export const MAX_PACKET = 65535;
/** Duration of a microphone's packet, µs. */
const PACKET = 10_000;
/** Maximum distance of a timestamp from the session's clock, ms. */
const MAX_SKEW = 10_000;
/** Timestamps that go back or ahead by more than this, µs, come from a restarted publisher or another round of a replay. */
const BACK = 1_000_000;
const AHEAD = 10_000_000;
/** Accepted packets per second, and how many more after a pause. */
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
  /** What the last refused packet was refused for; "" without any. */
  reason = "";
  /** Timestamp of the newest decoded packet, µs. */
  #newest = -Infinity;
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
    const stamp = p.properties.other?.get(TIMESTAMP);
    const timestamp = typeof stamp === "bigint" ? Number(stamp) : -1;
    const reason = this.#fault(p.payload) ?? fault(timestamp, clock);
    if (reason !== undefined) return this.refuse(reason);
    if (timestamp < this.#newest - BACK || (this.#newest > 0 && timestamp > this.#newest + AHEAD)) {
      this.restart();
      this.ports.restart();
    }
    const half = packetDuration(this.track, p.payload) / 2;
    if (timestamp < this.#newest + half) return void this.late++;
    const previous = p.properties.other?.get(PREVIOUS);
    if (previous instanceof Uint8Array && this.track.microphone && this.#newest > -Infinity)
      this.#repeat(timestamp - PACKET, previous);
    this.#take(timestamp, p.payload);
  }

  /** Decodes the repetition of a missing packet. */
  #repeat(timestamp: number, data: Uint8Array): void {
    if (timestamp < this.#newest + PACKET / 2) return;
    const reason = this.#fault(data);
    if (reason !== undefined) return this.refuse(reason);
    this.repeated++;
    this.#take(timestamp, data);
  }

  #take(timestamp: number, data: Uint8Array): void {
    this.#newest = timestamp;
    this.received++;
    this.ports.decode(timestamp, data.slice());
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

/** Says what is wrong with a timestamp in µs. */
function fault(timestamp: number, clock: number | undefined): string | undefined {
  if (timestamp < 0) return "no timestamp";
  const skew = clock === undefined ? 0 : timestamp / 1000 - clock;
  if (Math.abs(skew) <= MAX_SKEW) return undefined;
  const seconds = Math.round(Math.abs(skew) / 1000);
  return `a timestamp ${seconds} s ${skew > 0 ? "after" : "before"} the session's clock`;
}
