import { name } from "../messages.ts";
import type { Stats } from "../stats.ts";
import { Graph } from "./graph.ts";

const rows: readonly (readonly [label: string, title: string, value: (s: Stats) => string])[] = [
  ["FPS", "Distinct frames shown in the last second, mean of the cameras", (s) => s.fps.toFixed(1)],
  ["Received", "Frames that arrived in the last second, mean of the cameras", (s) => s.received_fps.toFixed(1)],
  ["Pictures", "Pictures drawn in the last second, be it of new frames or of another view", (s) => s.rendered_fps.toFixed(1)],
  ["Frame delay", "Capture to picture, in a replay arrival to picture; median and 95th percentile of five seconds", (s) => `${ms(s.frame_delay_ms.p50)} / ${ms(s.frame_delay_ms.p95)}`],
  ["Points", "Points shown, of all cameras", (s) => s.points.toLocaleString("en")],
  ["Bit rate", "Payload of the last second", (s) => `${s.mbit_per_s.toFixed(1)} Mbit/s`],
  ["Lost / late", "Frames that never came, and those that came after a later one", (s) => `${s.frames_lost} / ${s.frames_late}`],
  ["Skipped / declined", "Frames that came but were overtaken before they could be shown, and those not sent as this page draws slower than they come", (s) => `${s.frames_skipped} / ${s.frames_declined}`],
  ["Clock", "Bound of the error of the relay's clock as estimated here", (s) => (s.clock.error_ms === null ? "unknown" : `± ${ms(s.clock.error_ms)}`)],
  ["Decode", "Time to decode a frame, median", (s) => ms(s.decode_ms.p50)],
];

const ms = (v: number): string => `${v.toFixed(1)} ms`;

/** The statistics beside the picture. */
export class Panel {
  readonly #values: HTMLElement[];
  readonly #title: HTMLElement;
  readonly #graph: Graph;

  constructor(readonly root: HTMLElement) {
    this.#title = root.querySelector<HTMLElement>("[data-title]")!;
    const list = root.querySelector("dl")!;
    this.#values = rows.map(([label, title]) => {
      const row = document.createElement("div");
      row.title = title;
      const dt = document.createElement("dt");
      dt.textContent = label;
      const dd = document.createElement("dd");
      row.append(dt, dd);
      list.append(row);
      return dd;
    });
    this.#graph = new Graph(root.querySelector("canvas")!);
  }

  show(s: Stats): void {
    this.#graph.push(s.fps, s.frame_delay_ms.p50);
    if (this.root.hidden) return;
    this.#title.textContent = `${s.session === undefined ? "no session" : name(s.session)} at ${name(s.relay_host)}`;
    rows.forEach(([, , value], i) => {
      const text = value(s);
      const dd = this.#values[i]!;
      if (dd.textContent !== text) dd.textContent = text;
    });
  }
}
