/** The page: draws what the workers deliver and tells how it goes. */
import { Meter, round } from "./hud/meter.ts";
import { Panel } from "./hud/panel.ts";
import type { CameraTrack } from "./live/catalog.ts";
import { localTime } from "./live/clock.ts";
import type { DecodedFrame, FromDecoder, FromNetwork, PageToDecoder, Phase } from "./live/protocol.ts";
import { Studio } from "./scene/studio.ts";
import type { Link } from "./link.ts";
import { messageFor } from "./messages.ts";
import type { Stats } from "./stats.ts";
import { bindToolbar } from "./toolbar.ts";
import type { Workers } from "./workers.ts";

const REFRESH = 250;
/** A frame that waited to be drawn for so many ms, and twice as long as is usual, is not worth it: the page was held up. */
const STALE = 500;
/** How long before the next picture a fresher frame is asked for, beside twice the time it takes to decode, ms. */
const AHEAD = 40;

export class Page {
  readonly #studio = new Studio(document.querySelector("canvas#view")!);
  readonly #meter = new Meter();
  readonly #panel = new Panel(document.querySelector<HTMLElement>("#stats")!);
  readonly #message = document.querySelector<HTMLElement>("#message")!;
  readonly #sessions = document.querySelector<HTMLElement>("#sessions")!;
  readonly #byCamera = new Map<number, Worker>();
  /** The newest frame of each camera that is not drawn yet. */
  readonly #pending = new Map<number, DecodedFrame>();
  readonly #onScreen: DecodedFrame[] = [];
  #cameras: readonly CameraTrack[] = [];
  #phase: Phase = "connecting";
  #detail = "";
  #implementation = "";
  #clock: { offset: number; error: number } | undefined;
  #traffic: Extract<FromNetwork, { type: "traffic" }> | undefined;
  #firstFrame: number | undefined;
  #badMessage = "";
  /** When the last chance to draw was, whether it was used, and the mean time until the one after a picture, ms. */
  #chance = 0;
  #drew = false;
  #gap = 0;
  #freshen: ReturnType<typeof setTimeout> | undefined;

  /** workers: undefined where the browser has no WebTransport. */
  constructor(
    readonly link: Link,
    private readonly workers: Workers | undefined,
  ) {
    if (!workers) this.#phase = "no-webtransport";
    workers?.listen((m) => this.#fromNetwork(m), (decoder, m) => this.#fromDecoder(decoder, m));
    const fit = () => this.#studio.resize(innerWidth, innerHeight, Math.min(devicePixelRatio, 2));
    addEventListener("resize", fit);
    fit();
    // A phone may take the GPU away. What was on it is gone, and the next frames bring it all.
    this.#studio.canvas.addEventListener("webglcontextrestored", () => location.reload());
    this.#studio.renderer.setAnimationLoop(() => this.#frame());
    setInterval(() => this.#panel.show(this.stats()), REFRESH);
    bindToolbar(this.#studio, this.#panel.root, () => JSON.stringify(this.stats(), undefined, 2));
    this.#tell();
  }

  #fromNetwork(m: FromNetwork): void {
    switch (m.type) {
      case "phase":
        this.#phase = m.phase;
        this.#detail = m.detail;
        this.#tell();
        break;
      case "cameras":
        this.#cameras = m.cameras;
        this.#studio.setCameras(m.cameras);
        this.#meter.keep(new Set(m.cameras.map((c) => c.camera)));
        break;
      case "pose":
        this.#studio.setPose(m.camera, m.pose);
        break;
      case "sessions":
        this.#list(m.sessions);
        break;
      case "relay":
        this.#implementation = m.implementation;
        break;
      case "clock":
        this.#clock = m;
        break;
      case "traffic":
        this.#traffic = m;
        this.#meter.traffic(m.bytes, localTime());
    }
  }

  #fromDecoder(from: Worker, m: FromDecoder): void {
    switch (m.type) {
      case "frame": {
        this.#byCamera.set(m.camera, from);
        this.#meter.received(m.camera, m.decode, localTime());
        const before = this.#pending.get(m.camera);
        if (before) {
          this.#meter.overtaken++;
          this.#recycle(before);
        }
        this.#pending.set(m.camera, m);
        break;
      }
      case "rays":
        this.#studio.setRays(m.camera, m.table);
        break;
      case "bad":
        this.#meter.bad++;
        if (m.message !== this.#badMessage) console.warn(`camera ${m.camera}: ${(this.#badMessage = m.message)}`);
    }
  }

  #recycle(f: DecodedFrame): void {
    const m: PageToDecoder = { type: "recycle", camera: f.camera, buffer: f.words };
    this.#byCamera.get(f.camera)?.postMessage(m, [f.words]);
  }

  #want(camera: number): void {
    this.#byCamera.get(camera)?.postMessage({ type: "want", camera } satisfies PageToDecoder);
  }

  #frame(): void {
    const now = localTime();
    if (this.#drew) this.#gap += 0.2 * (now - this.#chance - this.#gap);
    this.#chance = now;
    this.#drew = false;
    for (const f of this.#pending.values()) {
      if (now - f.decoded < Math.max(STALE, 2 * this.#gap)) {
        this.#studio.upload(f.camera, new Uint32Array(f.words), f.points, f.subject);
        this.#onScreen.push(f);
      } else {
        this.#meter.overtaken++;
      }
      this.#recycle(f);
      this.#want(f.camera);
    }
    this.#pending.clear();
    if (!this.#studio.draw(performance.now())) return;
    this.#drew = true;
    this.#askForFresher();
    const shown = localTime();
    this.#meter.drawn(now);
    for (const f of this.#onScreen) {
      const delay = shown + (this.#clock?.offset ?? 0) - f.captured;
      this.#meter.shown(f.camera, f.sequence, f.points, delay, shown);
      this.workers?.send({ type: "shown", camera: f.camera, sequence: f.sequence, delay });
    }
    if (this.#onScreen.length > 0 && this.#firstFrame === undefined) {
      this.#firstFrame = performance.now();
      this.#tell();
    }
    this.#onScreen.length = 0;
  }

  /**
   * A renderer that is slower than the frames come draws what was decoded long before. So shortly before
   * its next picture fresher frames are asked for in place of those that wait.
   */
  #askForFresher(): void {
    let ahead = AHEAD;
    for (const f of this.#onScreen) ahead = Math.max(ahead, AHEAD + 2 * f.decode);
    if (this.#gap < 2 * ahead || this.#freshen !== undefined) return;
    this.#freshen = setTimeout(() => {
      this.#freshen = undefined;
      for (const camera of this.#pending.keys()) this.#want(camera);
    }, this.#gap - ahead);
  }

  #tell(): void {
    const text = messageFor(this.#phase, this.#detail, this.link, this.#firstFrame !== undefined);
    this.#message.hidden = text === undefined;
    if (text) {
      this.#message.querySelector("h1")!.textContent = text.title;
      this.#message.querySelector("p")!.textContent = text.advice;
    }
    this.#sessions.hidden = this.#phase !== "listing";
    document.title = `${this.link.session ?? "Sessions"} · Holocast`;
  }

  #list(sessions: readonly string[]): void {
    const list = this.#sessions.querySelector("ul")!;
    list.replaceChildren(
      ...sessions.map((name) => {
        const a = document.createElement("a");
        const url = new URL(location.href);
        url.searchParams.set("session", name);
        a.href = url.href;
        a.textContent = name;
        const li = document.createElement("li");
        li.append(a);
        return li;
      }),
    );
    this.#sessions.querySelector<HTMLElement>("[data-empty]")!.hidden = sessions.length > 0;
  }

  stats(): Stats {
    const m = this.#meter.snapshot(localTime());
    const t = this.#traffic;
    return {
      session: this.link.session, relay: this.link.relay, relay_host: new URL(this.link.relay).host,
      relay_implementation: this.#implementation, phase: this.#phase, detail: this.#detail,
      cameras: this.#cameras.length,
      ...m,
      frames_received: t?.received ?? 0, frames_lost: t?.lost ?? 0, frames_late: t?.late ?? 0,
      frames_skipped: (t?.skipped ?? 0) + m.frames_overtaken,
      streams_cut: t?.cut ?? 0, streams_refused: t?.refused ?? 0, streams_malformed: t?.malformed ?? 0,
      reconnects: t?.reconnects ?? 0, rtt_ms: round(t?.rtt ?? 0, 2),
      clock: { offset_ms: this.#clock ? round(this.#clock.offset, 3) : null, error_ms: this.#clock ? round(this.#clock.error, 3) : null },
      first_frame_ms: this.#firstFrame === undefined ? null : round(this.#firstFrame, 1),
    };
  }

  get studio(): Studio {
    return this.#studio;
  }
}

declare global {
  interface Window {
    /** For tests and the console; undefined while the page loads. */
    holocast: { stats(): Stats; readonly studio: Studio } | undefined;
  }
}
