/** Records the sound of the page. */
import type { Lab } from "./lab.ts";

declare global {
  interface Window {
    /** Callbacks for decoded sound, and for played sound about ten times a second. */
    ear?: {
      /** Needs reportDecoded. `begin` is the timestamp of the first sample, ms. */
      decoded?(samples: Float32Array, rate: number, begin: number): void;
      /** `begin` is the local time at which the first sample is heard, ms. */
      heard?(samples: Float32Array, rate: number, begin: number): void;
      /** Loudness at the left and the right ear in the last 0.7 s. */
      loudness(): [left: number, right: number];
    };
  }
}

/** Sample rate of the decoded sound, Hz. */
const RATE = 48_000;

/** Makes the pages of a lab report decoded sound. */
export function reportDecoded(lab: Lab): void {
  lab.patches.set("network.worker", `{
    const { postMessage } = MessagePort.prototype;
    MessagePort.prototype.postMessage = function (m, ...rest) {
      if (m?.type === "block")
        self.postMessage({ type: "decoded", begin: m.block.timestamp, samples: m.block.channels[0].slice() });
      return postMessage.call(this, m, ...rest);
    };
  }`);
}

/** Init script that fills window.ear. */
export const listens = `{
  const ear = (window.ear = {});
  const SAMPLES = 32768;
  const tap = (node) => {
    const { context } = node;
    const rate = context.sampleRate;
    const meter = new AnalyserNode(context, { fftSize: SAMPLES });
    connect.call(node, meter);
    const data = new Float32Array(SAMPLES);
    let end = context.currentTime;
    setInterval(() => {
      const now = context.currentTime;
      const n = Math.min(SAMPLES, Math.round((now - end) * rate));
      if (n <= 0) return;
      end = now;
      meter.getFloatTimeDomainData(data);
      const latency = context.outputLatency || context.baseLatency || 0;
      const local = performance.timeOrigin + performance.now();
      ear.heard?.(data.slice(SAMPLES - n), rate, local + 1000 * (latency - n / rate));
    }, 100);
  };
  /** Taps both ears' signals after the GainNode for the volume. */
  const tapEars = (node) => {
    const { context } = node;
    const splitter = new ChannelSplitterNode(context, { numberOfOutputs: 2 });
    connect.call(node, splitter);
    const ears = [0, 1].map((channel) => {
      const ear = new AnalyserNode(context, { fftSize: SAMPLES });
      connect.call(splitter, ear, channel);
      return ear;
    });
    const data = new Float32Array(SAMPLES);
    ear.loudness = () =>
      ears.map((e) => {
        e.getFloatTimeDomainData(data);
        return Math.sqrt(data.reduce((sum, v) => sum + v * v, 0) / SAMPLES);
      });
  };
  window.Worker = class extends Worker {
    constructor(...args) {
      super(...args);
      this.addEventListener("message", ({ data: { type, samples, begin } }) => {
        if (type === "decoded") ear.decoded?.(samples, ${RATE}, begin);
      });
    }
  };
  const tapped = new WeakSet();
  const { connect } = AudioNode.prototype;
  AudioNode.prototype.connect = function (...args) {
    const tapFor = this instanceof AudioWorkletNode ? tap : this instanceof GainNode ? tapEars : undefined;
    if (tapFor && !tapped.has(this)) {
      tapped.add(this);
      tapFor(this);
    }
    return connect.apply(this, args);
  };
}`;
