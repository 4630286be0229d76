/**
 * Plays decoded sound when it is due (docs/spec/sound.md): follows the buffer's decisions, conceals missing packets and
 * stretches time. Independent of the browser. Times are in ms: timestamps on the session's clock, times of hearing on
 * the local clock.
 */
import { SoundBuffer } from "./buffer.ts";
import type { Block, PlayerState, Target } from "./messages.ts";
import { lagsAt, period, prolong, shorten } from "./stretch.ts";

/** Longest time from a decision until its sound is heard, excluding the device's latency: two render quanta, µs. */
const LEAD = 6000;
/** Concealed sound fades out over this time. */
const FADE_OUT = 60;
/** Duration of past sound kept for concealment. */
const PAST = 30;
/** Duration of the pieces of silence that fill a pause. */
const QUIET = 2.5;
/** Decay of the loudness per ms. */
const DECAY = 0.99;

type Sound = readonly Float32Array<ArrayBuffer>[];

export class Playout {
  /** Undefined until the first block shows the duration of packets, in samples. */
  #buffer: SoundBuffer<Sound> | undefined;
  #packet = 0;
  readonly #lags;
  #target: Target = { offset: undefined, shift: undefined, latest: undefined, still: false };
  /** Offset of a replay's clock, which the first block defines. */
  #origin: number | undefined;
  /** Samples ready to play, and how many of them were played. */
  #ready: Float32Array<ArrayBuffer>[];
  #used = 0;
  #past: Float32Array<ArrayBuffer>[];
  /** The waveform repeated since the last packet, and the number of samples it has filled. */
  #repeated: Float32Array[] | undefined;
  #gap = 0;
  /** True if the last samples did not come from a packet. */
  #broken = true;
  #heard: number | undefined;
  #shift: number | undefined;
  #stretched = 0;
  #level = 0;

  /** `rate` is in Hz. */
  constructor(
    readonly rate: number,
    readonly channels: number,
  ) {
    this.#lags = lagsAt(rate);
    this.#ready = this.#silence(0);
    this.#past = this.#silence(this.#samples(PAST));
  }

  #samples(ms: number): number {
    return Math.round((ms * this.rate) / 1000);
  }

  #ms(samples: number): number {
    return (1000 * samples) / this.rate;
  }

  #silence(samples: number): Float32Array<ArrayBuffer>[] {
    return Array.from({ length: this.channels }, () => new Float32Array(samples));
  }

  set target(target: Target) {
    // Delays on different clocks are not comparable.
    if ((target.offset === undefined) !== (this.#target.offset === undefined)) this.#buffer?.forget();
    this.#target = target;
  }

  /** The session's clock minus the local one. */
  get #offset(): number | undefined {
    return this.#target.offset ?? this.#origin;
  }

  push({ timestamp, channels }: Block): void {
    const n = channels[0]?.length ?? 0;
    if (this.#heard === undefined || n === 0) return;
    this.#origin ??= timestamp - this.#heard;
    const all = Array.from({ length: this.channels }, (_, c) => channels[Math.min(c, channels.length - 1)]!);
    if (n !== this.#packet) this.#buffer = undefined;
    this.#packet = n;
    this.#buffer ??= new SoundBuffer(micros(this.#ms(n)), LEAD, this.rate, Infinity);
    this.#buffer.add(micros(this.#heard + this.#offset!), micros(timestamp), all);
  }

  /** Discards all blocks. */
  flush(): void {
    this.#buffer?.forget();
    this.#origin = undefined;
  }

  /** Writes the next samples. `heard` is the local time at which the first is heard. */
  render(out: readonly Float32Array[], heard: number): void {
    this.#heard = heard;
    const n = out[0]?.length ?? 0;
    while (this.#left < n) this.#refill(heard + this.#ms(this.#left));
    let peak = 0;
    out.forEach((o, c) => {
      o.set(this.#ready[Math.min(c, this.channels - 1)]!.subarray(this.#used, this.#used + n));
      for (const v of o) peak = Math.max(peak, Math.abs(v));
    });
    this.#level = Math.max(peak, this.#level * DECAY ** this.#ms(n));
    this.#used += n;
  }

  get #left(): number {
    return this.#ready[0]!.length - this.#used;
  }

  /** Prepares samples to be heard from local time `heard` on. */
  #refill(heard: number): void {
    const offset = this.#offset;
    const { shift, latest, still } = this.#target;
    this.#shift = undefined;
    const buffer = this.#buffer;
    if (still || !buffer || offset === undefined) return this.#break(this.#silence(this.#samples(QUIET)));
    const pictures = shift === undefined ? undefined : micros(shift + offset);
    const most = latest === undefined ? Infinity : micros(latest + offset);
    const least = buffer.target(pictures);
    const target = shift === latest ? Math.min(least, most) : buffer.limit(least, most);
    const d = buffer.decide(micros(heard + offset), target);
    switch (d.kind) {
      case "play":
        this.#shift = (buffer.error + target) / 1000 - offset;
        return this.#play(d.packet!.data, d.jump, d.stretch);
      case "silence":
        return this.#break(this.#silence(d.samples));
      default: // browsers' decoders have no error correction
        this.#append(this.#repeat(d.samples));
        this.#broken = true;
    }
  }

  #play(sound: Sound, jump: boolean, stretch: number): void {
    const from = jump || this.#broken ? this.#repeat(this.#lags.fade) : undefined;
    let out: Sound | undefined;
    if (!from && stretch !== 0)
      out = stretch < 0 ? shorten(sound, this.#lags) : prolong(sound, this.#past, this.#lags);
    if (out) {
      const n = Math.abs(out[0]!.length - sound[0]!.length);
      this.#buffer!.stretched(n);
      this.#stretched += this.#ms(n);
    }
    out ??= from ? faded(from, sound) : sound;
    this.#append(out);
    this.#broken = false;
    this.#gap = 0;
    this.#repeated = undefined;
  }

  /** Fades to samples that do not come from a packet. */
  #break(sound: Sound): void {
    this.#append(this.#broken && this.#gap === 0 ? sound : faded(this.#repeat(this.#lags.fade), sound));
    this.#broken = true;
    this.#gap = 0;
    this.#repeated = undefined;
  }

  /** Continues the past sound for n samples by repeating its last period, ever more quietly. */
  #repeat(n: number): Float32Array<ArrayBuffer>[] {
    this.#repeated ??= period(this.#past, this.#lags);
    const fade = this.#samples(FADE_OUT);
    const out = this.#repeated.map((p) => {
      const c = new Float32Array(n);
      for (let i = 0; i < n; i++) {
        const k = this.#gap + i;
        c[i] = p[k % p.length]! * Math.max(0, 1 - k / fade);
      }
      return c;
    });
    this.#gap += n;
    return out;
  }

  /** Appends samples to the ready ones, and remembers them as past. */
  #append(unit: Sound): void {
    this.#ready = this.#ready.map((c, i) => joined(c.subarray(this.#used), unit[i]!));
    this.#used = 0;
    const n = this.#samples(PAST);
    this.#past = this.#past.map((c, i) => joined(c, unit[i]!).slice(-n));
  }

  get state(): PlayerState {
    const buffer = this.#buffer;
    const offset = this.#offset;
    const known = buffer && offset !== undefined && buffer.stats.received > 0;
    return {
      shift: this.#shift, needed: known ? buffer.own / 1000 - offset : undefined,
      buffered: (buffer?.fill ?? 0) / 1000 + this.#ms(this.#left),
      played: buffer?.stats.played ?? 0, late: buffer?.stats.late ?? 0,
      concealed: buffer ? (buffer.stats.concealed_us + buffer.stats.corrected_us) / 1000 : 0,
      stretched: this.#stretched, level: this.#level,
    };
  }
}

const micros = (ms: number): number => Math.round(1000 * ms);

function joined(a: Float32Array, b: Float32Array): Float32Array<ArrayBuffer> {
  const out = new Float32Array(a.length + b.length);
  out.set(a);
  out.set(b, a.length);
  return out;
}

/** Fades from other samples to sound. */
function faded(from: readonly Float32Array[], sound: Sound): Sound {
  return sound.map((c, i) => {
    const out = c.slice();
    const n = Math.min(from[i]!.length, c.length);
    for (let k = 0; k < n; k++) {
      const mix = (k + 1) / (n + 1);
      out[k] = mix * c[k]! + (1 - mix) * from[i]![k]!;
    }
    return out;
  });
}
