/** Plays one track's sound on the browser's audio thread. */
import type { FromTrack, PlayerOptions, PlayerState, ToPlayer } from "./messages.ts";
import { Playout } from "./playout.ts";

/** The AudioWorkletGlobalScope, which TypeScript's libraries lack. */
declare const sampleRate: number;
declare const currentTime: number;
declare function registerProcessor(name: string, processor: object): void;
declare class AudioWorkletProcessor {
  readonly port: MessagePort;
}

/** Interval between reports, s. */
const REPORT = 0.25;

class Player extends AudioWorkletProcessor {
  readonly #playout: Playout;
  #base: number | undefined;
  #reported = 0;
  #closed = false;

  constructor({ processorOptions }: { readonly processorOptions: PlayerOptions }) {
    super();
    this.#playout = new Playout(sampleRate, processorOptions.channels);
    this.port.onmessage = ({ data: m }: MessageEvent<ToPlayer>) => {
      switch (m.type) {
        case "clock":
          this.#base = m.base;
          break;
        case "target":
          this.#playout.target = m;
          break;
        case "source":
          m.port.onmessage = ({ data }: MessageEvent<FromTrack>) => this.#take(data);
          break;
        case "close":
          this.#closed = true;
      }
    };
  }

  #take(m: FromTrack): void {
    if (m.type === "flush") this.#playout.flush();
    else if (this.#base !== undefined) this.#playout.push(m.block);
  }

  process(_: unknown, [output]: readonly Float32Array[][]): boolean {
    if (this.#base === undefined || !output) return !this.#closed;
    this.#playout.render(output, this.#base + 1000 * currentTime);
    if (currentTime - this.#reported >= REPORT) {
      this.#reported = currentTime;
      this.port.postMessage(this.#playout.state satisfies PlayerState);
    }
    return !this.#closed;
  }
}

registerProcessor("player", Player);
