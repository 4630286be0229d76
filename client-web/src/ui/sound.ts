/** Plays the session's sound. Off until the user turns it on. */
import { localTime } from "../media/session/clock.ts";
import playerScript from "../media/sound/player.worklet.ts?worker&url";
import type {
  FromSounds, PlayerOptions, PlayerState, SoundCounts, Target, ToPlayer, ToSounds,
} from "../media/sound/messages.ts";
import type { SoundTrack } from "../media/sound/track.ts";

/** Interval at which players are told the time, ms. */
const TICK = 50;
/** Weight of the newest sample of an audio clock, and the deviation that resets it, ms. */
const NEWEST = 0.05;
const RESET = 100;
/** Within this distance, in metres, sound with a position does not grow louder. */
const NEAR = 1.5;
/** Time to change the volume without a click, s. */
const GLIDE = 0.02;

export interface SoundStats {
  readonly on: boolean;
  readonly tracks: number;
  /** Names of the microphones. */
  readonly microphones: readonly string[];
  /** Delay from capture to hearing on the session's clock, ms; null in a replay and in silence. */
  readonly delay_ms: number | null;
  /** Sound waiting to be played, ms. */
  readonly buffer_ms: number;
  /** Sound synthesised for missing packets, ms. */
  readonly concealed_ms: number;
  /** Time inserted and removed by stretching, ms. */
  readonly stretched_ms: number;
  /** Delay of sound minus delay of points, ms; positive = sound is late. null without points. */
  readonly lip_offset_ms: number | null;
  /** How long points are held back for sound, ms. */
  readonly points_held_ms: number;
  readonly packets_received: number;
  /** Packets replaced by their copy in a later one. */
  readonly packets_repeated: number;
  readonly packets_played: number;
  readonly packets_late: number;
  readonly packets_refused: number;
  /** A sentence about the refused packets; "" if there are none. */
  readonly refusal: string;
  /** Current loudness, 0 to 1. */
  readonly level: number;
}

/** Position (metres) and orientation of the listener. `place` converts studio space (mm) to the listener's space. */
export interface Hearing {
  readonly eye: readonly number[];
  readonly forward: readonly number[];
  readonly up: readonly number[];
  place(position: readonly [number, number, number]): readonly number[];
}

/** An AudioContext, which plays all tracks of one sample rate. */
class Output {
  readonly context: AudioContext;
  readonly volume: GainNode;
  readonly ready: Promise<void>;
  /** Local time at which the context's time 0 is heard, ms. */
  base: number | undefined;

  constructor(sampleRate: number, volume: number) {
    this.context = new AudioContext({ sampleRate, latencyHint: "interactive" });
    this.volume = new GainNode(this.context, { gain: volume });
    this.volume.connect(this.context.destination);
    this.ready = this.context.audioWorklet.addModule(playerScript);
  }

  /** Compares the clocks. */
  measure(): void {
    const { currentTime, outputLatency, baseLatency, state } = this.context;
    if (state !== "running" || currentTime === 0) return;
    const now = localTime() + 1000 * ((outputLatency || baseLatency || 0) - currentTime);
    const off = this.base === undefined ? Infinity : now - this.base;
    this.base = Math.abs(off) > RESET ? now : this.base! + NEWEST * off;
  }
}

/** A track's player. */
class Voice {
  readonly node: AudioWorkletNode;
  readonly panner: PannerNode | undefined;
  state: PlayerState | undefined;

  constructor(
    readonly track: SoundTrack,
    readonly output: Output,
  ) {
    const processorOptions: PlayerOptions = { channels: track.channels };
    const { context } = output;
    this.node = new AudioWorkletNode(context, "player", {
      numberOfInputs: 0, outputChannelCount: [track.channels], processorOptions,
    });
    this.node.port.onmessage = ({ data }: MessageEvent<PlayerState>) => (this.state = data);
    if (track.microphone?.position)
      this.panner = new PannerNode(context, { panningModel: "HRTF", distanceModel: "inverse", refDistance: NEAR });
    if (this.panner) this.node.connect(this.panner).connect(output.volume);
    else this.node.connect(output.volume);
  }

  send(m: ToPlayer, transfer: Transferable[] = []): void {
    this.node.port.postMessage(m, transfer);
  }

  close(): void {
    this.send({ type: "close" });
    this.node.disconnect();
    this.panner?.disconnect();
  }
}

export class Sound {
  on = false;
  tracks: readonly SoundTrack[] = [];
  #volume = 1;
  readonly #outputs = new Map<number, Output>();
  readonly #voices = new Map<string, Voice>();
  #counts: SoundCounts | undefined;
  #target: Target = { offset: undefined, shift: undefined, latest: undefined, still: false };
  #ticking: ReturnType<typeof setInterval> | undefined;

  /** `target` returns the time at which sound is due. */
  constructor(
    private readonly send: (m: ToSounds, transfer?: Transferable[]) => void,
    private readonly target: () => Target,
    private readonly hearing: () => Hearing,
    private readonly failed: (e: unknown) => void,
  ) {}

  fromNetwork(m: FromSounds): void {
    if (m.type === "soundCounts") {
      this.#counts = m;
      return;
    }
    this.tracks = m.tracks;
    for (const [name, voice] of this.#voices) {
      const track = m.tracks.find((t) => t.track === name);
      if (track && JSON.stringify(track) === JSON.stringify(voice.track)) continue;
      voice.close();
      this.#voices.delete(name);
    }
    if (this.on) void this.#open();
  }

  /** Must be called from a click, which browsers require to start sound. */
  turn(on: boolean): void {
    this.on = on;
    clearInterval(this.#ticking);
    if (on) {
      void this.#open();
      this.#ticking = setInterval(() => this.#tick(), TICK);
    } else {
      for (const { context } of this.#outputs.values()) void context.suspend();
    }
    this.send({ type: "sound", on });
  }

  get volume(): number {
    return this.#volume;
  }

  /** 0 to 1. */
  set volume(volume: number) {
    this.#volume = volume;
    for (const o of this.#outputs.values())
      o.volume.gain.setTargetAtTime(volume, o.context.currentTime, GLIDE);
  }

  /** Opens outputs and players for all tracks. */
  async #open(): Promise<void> {
    for (const track of this.tracks) {
      let output = this.#outputs.get(track.sampleRate);
      if (!output) this.#outputs.set(track.sampleRate, (output = new Output(track.sampleRate, this.#volume)));
      void output.context.resume();
      try {
        await output.ready;
      } catch (e) {
        return this.failed(e);
      }
      if (!this.tracks.includes(track) || this.#voices.has(track.track)) continue;
      const voice = new Voice(track, output);
      this.#voices.set(track.track, voice);
      const { port1, port2 } = new MessageChannel();
      voice.send({ type: "target", ...this.#target });
      voice.send({ type: "source", port: port1 }, [port1]);
      this.send({ type: "player", track: track.track, port: port2 }, [port2]);
    }
  }

  #tick(): void {
    for (const o of this.#outputs.values()) o.measure();
    this.follow();
    const hearing = this.hearing();
    for (const o of this.#outputs.values()) {
      const { listener } = o.context;
      // Firefox lacks the listener's AudioParams.
      listener.setPosition(...triple(hearing.eye));
      listener.setOrientation(...triple(hearing.forward), ...triple(hearing.up));
    }
    for (const v of this.#voices.values()) {
      const { base } = v.output;
      if (base !== undefined) v.send({ type: "clock", base });
      const position = v.track.microphone?.position;
      if (!v.panner || !position) continue;
      const [x, y, z] = triple(hearing.place(position));
      v.panner.positionX.value = x;
      v.panner.positionY.value = y;
      v.panner.positionZ.value = z;
    }
  }

  /** Passes a changed target to the players. */
  follow(): void {
    const t = this.target();
    const b = this.#target;
    if (t.offset === b.offset && t.shift === b.shift && t.latest === b.latest && t.still === b.still) return;
    this.#target = t;
    for (const v of this.#voices.values()) v.send({ type: "target", ...t });
  }

  /** Shift needed by the slowest track, ms; undefined in silence. */
  get needed(): number | undefined {
    return this.on ? largest([...this.#voices.values()].map((v) => v.state?.needed)) : undefined;
  }

  /** `shift` is the points' shift, `offset` the session's clock minus the local one (undefined in a replay). */
  stats(shift: number | undefined, offset: number | undefined, held: number): SoundStats | null {
    if (this.tracks.length === 0) return null;
    const states = this.on ? [...this.#voices.values()].flatMap((v) => v.state ?? []) : [];
    const sum = (f: (s: PlayerState) => number): number => states.reduce((n, s) => n + f(s), 0);
    const heard = largest(states.map((s) => s.shift));
    const rounded = (a: number | undefined, b: number | undefined): number | null =>
      a === undefined || b === undefined ? null : Math.round(10 * (a + b)) / 10;
    return {
      on: this.on, tracks: this.tracks.length,
      microphones: this.tracks.flatMap(({ track, microphone: m }) => (m ? [m.name || track] : [])),
      delay_ms: rounded(heard, offset),
      buffer_ms: Math.round(largest(states.map((s) => s.buffered)) ?? 0),
      concealed_ms: Math.round(sum((s) => s.concealed)), stretched_ms: Math.round(sum((s) => s.stretched)),
      lip_offset_ms: rounded(heard, shift === undefined ? undefined : -shift),
      points_held_ms: Math.round(held),
      packets_received: this.#counts?.received ?? 0, packets_repeated: this.#counts?.repeated ?? 0,
      packets_played: sum((s) => s.played),
      packets_late: (this.#counts?.late ?? 0) + sum((s) => s.late),
      packets_refused: this.#counts?.refused ?? 0, refusal: this.#counts?.refusal ?? "",
      level: Math.round(1000 * (largest(states.map((s) => s.level)) ?? 0)) / 1000,
    };
  }
}

function largest(list: readonly (number | undefined)[]): number | undefined {
  const known = list.filter((v) => v !== undefined);
  return known.length > 0 ? Math.max(...known) : undefined;
}

const triple = (v: readonly number[]): [number, number, number] => [v[0]!, v[1]!, v[2]!];
