import { name } from "../messages.ts";
import type { Stats } from "../stats.ts";
import { Graph } from "./graph.ts";
import { TileMap } from "./tilemap.ts";

type Row = readonly [label: string, title: string, value: (s: Stats) => string, shown?: (s: Stats) => boolean];

/** Rows for point clouds, for 360° video, for sound, and for all. */
const points: readonly Row[] = [
  ["FPS", "Distinct frames shown in the last second, averaged over the cameras", (s) => s.fps.toFixed(1)],
  ["Received", "Frames that arrived in the last second, averaged over the cameras", (s) => s.received_fps.toFixed(1)],
  [
    "Frame delay",
    "Capture to display (replay: arrival to display), median and 95th percentile of five seconds",
    (s) => `${ms(s.frame_delay_ms.p50)} / ${ms(s.frame_delay_ms.p95)}`,
  ],
  ["Points", "Points shown, over all cameras", (s) => s.points.toLocaleString("en")],
  [
    "Lost / late",
    "Frames that never arrived, and frames that arrived after a later one",
    (s) => `${s.frames_lost} / ${s.frames_late}`,
  ],
  [
    "Skipped / declined",
    "Frames received but superseded before they could be shown, and frames not sent because this page draws too slowly",
    (s) => `${s.frames_skipped} / ${s.frames_declined}`,
  ],
  [
    "Repaired / lost parts",
    "Frames completed by fetching missing datagrams, and parts that arrived too late or never",
    (s) => `${s.parts!.repaired} / ${s.parts!.parts_lost}`,
    (s) => s.parts !== null,
  ],
  [
    "Cameras",
    "Quality and data rate of each camera",
    (s) => s.per_camera.map((c, i) => `${s.qualities[i] ?? ""} ${c.mbit_per_s.toFixed(1)}`).join(", ") + " Mbit/s",
    (s) => s.per_camera.length > 0,
  ],
  [
    "Depth error",
    "Root mean square error that coding with loss adds to each camera's depth",
    (s) => s.depth_error_mm.map((e) => (e === null ? "–" : e.toFixed(1))).join(", ") + " mm",
    (s) => s.depth_error_mm.some((e) => e !== null),
  ],
  [
    "Drawn as",
    "On a GPU too slow for all points, only a share of them is drawn",
    (s) => s.look + (s.drawn_share < 1 ? `, 1 in ${Math.round(1 / s.drawn_share)} points` : ""),
  ],
  ["Decode", "Time to decode a frame, median", (s) => ms(s.decode_ms.p50)],
];
const video: readonly Row[] = [
  [
    "Sharpness",
    "Quality of the view: 0 % is the low-resolution sphere, 100 % the best quality everywhere",
    (s) => percent(s.video!.viewport_quality),
  ],
  ["Sharp so far", "Share of the view, over time, sharper than the low-resolution sphere", (s) => percent(s.video!.tile_hits)],
  [
    "Sharp after a turn",
    "From the last turn of the view until it was sharp",
    (s) => (s.video!.motion_to_quality_ms === null ? "–" : seconds(s.video!.motion_to_quality_ms)),
  ],
  ["Interruptions", "How often the video stopped for lack of data", (s) => String(s.video!.stalls)],
  ["Delay", "Capture to display", (s) => seconds(s.video!.delay_ms)],
];
const sound: readonly Row[] = [
  [
    "Microphones",
    "The session's microphones",
    (s) => s.sound!.microphones.join(", "),
    (s) => s.sound!.microphones.length > 0,
  ],
  ["Sound", "Sound is off until you turn it on", () => "muted, M turns it on", (s) => !s.sound!.on],
  [
    "Sound delay",
    "Capture to hearing",
    (s) => (s.sound!.delay_ms === null ? "–" : ms(s.sound!.delay_ms)),
    (s) => s.sound!.on,
  ],
  [
    "Lip offset",
    "Delay of sound minus delay of pictures; positive: sound is late",
    (s) => (s.sound!.lip_offset_ms === null ? "–" : ms(s.sound!.lip_offset_ms)),
    (s) => s.sound!.on,
  ],
  [
    "Sound buffer / concealed",
    "Sound waiting to be played, and sound made up for missing packets",
    (s) => `${s.sound!.buffer_ms} ms / ${s.sound!.concealed_ms} ms`,
    (s) => s.sound!.on,
  ],
  ["Sound refused", "Packets of sound that were not played", (s) => s.sound!.refusal, (s) => s.sound!.refusal !== ""],
];
const both: readonly Row[] = [
  ["Drawn per second", "Pictures drawn, for new frames or a changed view", (s) => s.rendered_fps.toFixed(0)],
  ["Data rate", "Media received in the last second", (s) => `${s.mbit_per_s.toFixed(1)} Mbit/s`],
  [
    "Clock error",
    "Error bound of the estimate of the relay's clock",
    (s) => (s.clock.error_ms === null ? "unknown" : `± ${ms(s.clock.error_ms)}`),
  ],
];

const percent = (v: number): string => `${Math.round(100 * v)} %`;
const seconds = (v: number): string => `${(v / 1000).toFixed(1)} s`;
const ms = (v: number): string => `${v.toFixed(1)} ms`;

type Medium = "points" | "video" | "sound" | "both";

/** True if a session has a medium. Points are assumed until there is video. */
function has(s: Stats, medium: Medium): boolean {
  if (medium === "video") return s.video !== null;
  if (medium === "sound") return s.sound !== null;
  return medium === "both" || s.video === null || s.cameras > 0;
}

/** The panel with details of the session. */
export class Panel {
  readonly #rows: {
    readonly row: HTMLElement;
    readonly value: HTMLElement;
    readonly text: (s: Stats) => string;
    readonly shown: (s: Stats) => boolean;
    readonly of: Medium;
  }[] = [];
  readonly #map: TileMap;
  readonly #title: HTMLElement;
  readonly #graph: Graph;
  readonly #graphBox: HTMLElement;

  constructor(readonly root: HTMLElement) {
    this.#title = root.querySelector<HTMLElement>("[data-title]")!;
    const list = root.querySelector("dl")!;
    for (const [of, group] of [["points", points], ["video", video], ["sound", sound], ["both", both]] as const) {
      for (const [i, [label, title, text, shown = () => true]] of group.entries()) {
        const row = document.createElement("div");
        row.title = title;
        row.hidden = of === "video" || of === "sound"; // until the first video statistics
        row.classList.toggle("minor", of === "both" || of === "sound" || i >= 5); // hidden on phones
        const dt = document.createElement("dt");
        dt.textContent = label;
        const value = document.createElement("dd");
        row.append(dt, value);
        list.append(row);
        this.#rows.push({ row, value, text, shown, of });
      }
    }
    this.#map = new TileMap(root.querySelector("#tiles canvas")!);
    this.#graphBox = root.querySelector<HTMLElement>("#graph")!;
    this.#graph = new Graph(root.querySelector("#graph canvas")!);
  }

  show(s: Stats): void {
    this.#graph.push(s.fps, s.frame_delay_ms.p50);
    if (this.root.hidden) return;
    this.#title.textContent = `${s.session === undefined ? "no session" : name(s.session)} at ${name(s.relay_host)}`;
    for (const { row, value, text, shown, of } of this.#rows) {
      row.hidden = !has(s, of) || !shown(s);
      if (row.hidden) continue;
      const t = text(s);
      if (value.textContent !== t) value.textContent = t;
    }
    this.#graphBox.hidden = s.video !== null && s.cameras === 0;
    this.#map.show(s.video, s.video ? s.video.qualities - 1 : 0);
  }
}
