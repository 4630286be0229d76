/** Plays the session's sound in sync with the video. Off until the user turns it on. */
import { localTime } from "../media/session/clock.ts";
import { mediaTime, type Due, type Samples } from "../media/tiles/messages.ts";

/** Sound is scheduled up to this many ms ahead, in case the page is busy in between. */
const AHEAD = 400;
const TICK = 50;
/** A piece that is off by more than this many seconds is scheduled at its own time instead of appended. */
const APART = 0.03;
/** Maximum number of waiting pieces. */
const MAX_WAITING = 600;

interface Piece {
  /** Timestamp of its start, ms. */
  readonly at: number;
  readonly buffer: AudioBuffer;
  source: AudioBufferSourceNode | undefined;
  /** Scheduled end on the context's clock, s. */
  end: number;
}

export interface SoundStats {
  readonly on: boolean;
  /** Pieces scheduled. */
  readonly played: number;
  /** Pieces that arrived too late. */
  readonly late: number;
  /** Offset of the newest piece from its due time, as reported by the browser, ms; positive = late. */
  readonly offset_ms: number | null;
  /** Current loudness, 0 to 1. */
  readonly level: number;
}

export class Sound {
  on = false;
  #context: AudioContext | undefined;
  #meter: AnalyserNode | undefined;
  #due: Due | undefined;
  #pieces: Piece[] = [];
  /** End of the last scheduled piece on the context's clock, s. */
  #end = 0;
  #played = 0;
  #late = 0;
  #offset: number | null = null;
  #ticking: ReturnType<typeof setInterval> | undefined;

  /** Must be called from a click, which browsers require to start sound. */
  turn(on: boolean): void {
    this.on = on;
    clearInterval(this.#ticking);
    if (on) {
      this.#context ??= new AudioContext({ latencyHint: "interactive" });
      this.#meter ??= new AnalyserNode(this.#context, { fftSize: 512 });
      this.#meter.connect(this.#context.destination);
      void this.#context.resume();
      this.#ticking = setInterval(() => this.#tick(), TICK);
    } else {
      this.drop();
      void this.#context?.suspend();
    }
  }

  /** Sets the playout clock. */
  set due(due: Due) {
    const stands = due.still !== undefined;
    if (stands && this.#due?.still === undefined) this.#hush();
    this.#due = due;
  }

  /** Discards all sound not yet heard. */
  drop(): void {
    this.#hush();
    this.#pieces = [];
  }

  /** Cancels scheduled pieces. */
  #hush(): void {
    for (const p of this.#pieces) {
      p.source?.stop();
      p.source = undefined;
    }
    this.#end = 0;
  }

  add(m: Samples): void {
    const [first] = m.channels;
    if (!this.on || !this.#context || !first || first.length === 0) return;
    const buffer = new AudioBuffer({
      numberOfChannels: m.channels.length,
      length: first.length,
      sampleRate: m.sampleRate,
    });
    m.channels.forEach((c, i) => buffer.copyToChannel(c, i));
    this.#pieces.push({ at: m.timestamp / 1000, buffer, source: undefined, end: 0 });
    if (this.#pieces.length > MAX_WAITING) this.#pieces.shift();
    this.#tick();
  }

  /** Schedules the pieces due soon. */
  #tick(): void {
    const context = this.#context;
    const due = this.#due;
    if (!context || !due || due.still !== undefined || context.state !== "running") return;
    const now = mediaTime(due, localTime());
    const { currentTime } = context;
    const latency = context.outputLatency || context.baseLatency || 0;
    this.#pieces = this.#pieces.filter((p) =>
      p.source ? p.end > currentTime : p.at + 1000 * p.buffer.duration > now || this.#missed(),
    );
    for (const p of this.#pieces) {
      if (p.source) continue;
      if (p.at - now > AHEAD) break;
      const wanted = currentTime + (p.at - now) / 1000 - latency;
      const start = Math.abs(wanted - this.#end) < APART ? this.#end : wanted;
      if (start < currentTime - p.buffer.duration) continue; // removed above once it has ended
      p.source = new AudioBufferSourceNode(context, { buffer: p.buffer });
      p.source.connect(this.#meter!);
      p.source.start(Math.max(start, currentTime), Math.max(0, currentTime - start));
      p.end = this.#end = start + p.buffer.duration;
      this.#played++;
      this.#offset = 1000 * (start - wanted);
    }
  }

  #missed(): false {
    this.#late++;
    return false;
  }

  stats(): SoundStats {
    let level = 0;
    if (this.#meter) {
      const wave = new Float32Array(this.#meter.fftSize);
      this.#meter.getFloatTimeDomainData(wave);
      for (const v of wave) level = Math.max(level, Math.abs(v));
    }
    const offset_ms = this.#offset === null ? null : Math.round(this.#offset);
    return { on: this.on, played: this.#played, late: this.#late, offset_ms, level: Math.round(1000 * level) / 1000 };
  }
}
