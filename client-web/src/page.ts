/** The page: draws what the workers deliver and tells how it goes. */
import { Meter, round } from "./hud/meter.ts";
import { Panel } from "./hud/panel.ts";
import type { CameraTrack } from "./live/catalog.ts";
import { localTime } from "./live/clock.ts";
import type { DecodedFrame, FromDecoder, FromNetwork, Phase, PlaybackState, Qualities, Spent } from "./live/protocol.ts";
import { Studio } from "./scene/studio.ts";
import type { Link } from "./link.ts";
import { messageFor } from "./messages.ts";
import type { Stats } from "./stats.ts";
import { PlayBar } from "./playbar.ts";
import { bindToolbar, QualityMenu } from "./toolbar.ts";
import type { Workers } from "./workers.ts";

const REFRESH = 250;
/** How long before the next picture a frame has to be on its way to the decoder, beside twice the time it takes to decode, ms. */
const AHEAD = 40;
const MOST_RAYS = 64;

export class Page {
  readonly #studio = new Studio(document.querySelector("canvas#view")!);
  readonly #meter = new Meter();
  readonly #panel = new Panel(document.querySelector<HTMLElement>("#stats")!);
  readonly #message = document.querySelector<HTMLElement>("#message")!;
  readonly #sessions = document.querySelector<HTMLElement>("#sessions")!;
  /** The newest frame of each camera that is not drawn yet. */
  readonly #pending = new Map<number, DecodedFrame>();
  readonly #onScreen: DecodedFrame[] = [];
  /** Ray tables of tracks that the page does not know yet. */
  readonly #rays = new Map<string, Extract<FromDecoder, { type: "rays" }>>();
  readonly #qualityMenu: QualityMenu;
  readonly #playBar: PlayBar;
  #cameras: readonly CameraTrack[] = [];
  #replayed = false;
  #playback: PlaybackState | undefined;
  #qualities: Qualities | undefined;
  #phase: Phase = "connecting";
  #detail = "";
  #implementation = "";
  #clock: { offset: number; error: number } | undefined;
  #traffic: Extract<FromNetwork, { type: "traffic" }> | undefined;
  #firstFrame: number | undefined;
  #badMessage = "";
  #seen = true;
  /** When the last chance to draw was, whether it was used, and the mean time until the one after a picture, ms. */
  #chance = 0;
  #drew = false;
  #gap = 0;

  /** workers: undefined where the browser has no WebTransport. */
  constructor(
    readonly link: Link,
    private readonly workers: Workers | undefined,
  ) {
    if (!workers) this.#phase = "no-webtransport";
    const fit = () => this.#studio.resize(innerWidth, innerHeight, Math.min(devicePixelRatio, 2));
    addEventListener("resize", fit);
    fit();
    // A phone may take the GPU away. What was on it is gone, and the next frames bring it all.
    this.#studio.canvas.addEventListener("webglcontextrestored", () => location.reload());
    this.#studio.renderer.setAnimationLoop(() => this.#frame());
    setInterval(() => this.#panel.show(this.stats()), REFRESH);
    this.#qualityMenu = new QualityMenu((quality) => workers?.send({ type: "quality", quality }));
    this.#playBar = new PlayBar(document.querySelector<HTMLElement>("#playback")!, (action) => workers?.send({ type: "playback", action }));
    bindToolbar(this.#studio, this.#panel.root, () => JSON.stringify(this.stats(), undefined, 2), this.#playBar);
    this.#tell();
    workers?.listen((m) => this.#fromNetwork(m), (m) => this.#fromDecoder(m));
    const { xr } = this.#studio.renderer;
    for (const change of ["sessionstart", "sessionend"] as const) xr.addEventListener(change, () => this.#look());
    document.addEventListener("visibilitychange", () => this.#look());
    this.#look();
  }

  /** Tells whether anybody sees the page, its scene in a headset included. */
  #look(): void {
    const seen = !document.hidden || this.#studio.renderer.xr.isPresenting;
    if (seen === this.#seen) return;
    this.#seen = seen;
    this.workers?.send({ type: "seen", seen });
    // What was not drawn is of the time before, and the newest comes again.
    for (const f of this.#pending.values()) this.#spend(f, localTime());
    this.#pending.clear();
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
        for (const rays of [...this.#rays.values()]) this.#takeRays(rays);
        for (const f of this.#pending.values()) {
          if (this.#shows(f.camera, f.track)) continue;
          this.#pending.delete(f.camera);
          this.#spend(f, localTime());
        }
        break;
      case "replayed":
        this.#replayed = m.replayed;
        break;
      case "playback":
        this.#playback = m;
        this.#playBar.show(m);
        break;
      case "qualities":
        this.#qualities = m;
        this.#qualityMenu.show(m.names, m.chosen, m.received);
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
        this.#meter.traffic(m.bytes, m.arrived, localTime());
    }
  }

  #fromDecoder(m: FromDecoder): void {
    switch (m.type) {
      case "frame": {
        // A frame of a track that the camera's quality was changed from, or is just changing to.
        if (this.#cameras.some((c) => c.camera === m.camera && c.track !== m.track)) {
          this.#spend(m, localTime());
          return;
        }
        this.#meter.decoded(m.camera, m.decode, localTime());
        const before = this.#pending.get(m.camera);
        if (before) {
          this.#meter.overtaken++;
          this.#spend(before, undefined);
        }
        this.#pending.set(m.camera, m);
        break;
      }
      case "rays":
        this.#takeRays(m);
        break;
      case "bad":
        this.#meter.bad++;
        if (m.message !== this.#badMessage) console.warn(`camera ${m.camera}: ${(this.#badMessage = m.message)}`);
    }
  }

  /** The catalog comes from another worker, so its word of a track may come later than the track's first. */
  #takeRays(m: Extract<FromDecoder, { type: "rays" }>): void {
    if (this.#shows(m.camera, m.track)) {
      this.#studio.setRays(m.camera, m.table);
      this.#rays.delete(m.track);
    } else {
      this.#rays.set(m.track, m);
      if (this.#rays.size > MOST_RAYS) this.#rays.delete(this.#rays.keys().next().value!);
    }
  }

  #shows(camera: number, track: string): boolean {
    return this.#cameras.some((c) => c.camera === camera && c.track === track);
  }

  /** Is done with a frame; next: local time from which another is of use. One message does for all that is to be said of a frame. */
  #spend({ camera, track, words, sequence }: DecodedFrame, next: number | undefined, delay?: number): void {
    const m: Spent = { type: "spent", camera, track, words, next, shown: delay === undefined ? undefined : { sequence, delay } };
    this.workers?.send(m, [words]);
  }

  #frame(): void {
    const now = localTime();
    if (this.#drew) this.#gap += 0.2 * (now - this.#chance - this.#gap);
    this.#chance = now;
    this.#drew = false;
    for (const f of this.#pending.values()) {
      if (!this.#shows(f.camera, f.track)) continue; // the catalog is still on its way
      this.#studio.upload(f.camera, new Uint32Array(f.words), f.points, f.subject);
      this.#onScreen.push(f);
      this.#pending.delete(f.camera);
    }
    if (!this.#studio.draw(performance.now())) return;
    this.#drew = true;
    const shown = localTime();
    this.#meter.drawn(now);
    for (const f of this.#onScreen) {
      const delay = this.#replayed ? shown - f.arrived : shown + (this.#clock?.offset ?? 0) - f.captured;
      this.#meter.shown(f.camera, f.sequence, f.points, delay, shown);
      // A renderer that is slower than the frames come draws the one that is the newest shortly before its next picture.
      this.#spend(f, Math.max(now, now + this.#gap - AHEAD - 2 * f.decode), delay);
    }
    if (this.#onScreen.length > 0 && this.#firstFrame === undefined) {
      this.#firstFrame = performance.now();
      this.#tell();
    }
    this.#onScreen.length = 0;
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
      qualities: this.#qualities?.received ?? [], quality: this.#qualities?.chosen ?? "auto",
      delay_from: this.#replayed ? "arrival" : "capture",
      playback: this.#playback?.duration
        ? {
            duration_ms: this.#playback.duration, position_ms: round(this.#playback.position, 0), playing: this.#playback.playing,
            live: this.#playback.live, waiting: this.#playback.waiting,
          }
        : null,
      ...m,
      frames_received: t?.received ?? 0, frames_lost: t?.lost ?? 0, frames_late: t?.late ?? 0,
      frames_skipped: (t?.skipped ?? 0) + m.frames_overtaken, frames_declined: t?.declined ?? 0,
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
