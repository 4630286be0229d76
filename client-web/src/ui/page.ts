/** The page draws the workers' output and reports statistics. */
import type { FromNetwork } from "../media/messages.ts";
import { localTime } from "../media/session/clock.ts";
import type { ClockState, Phase, PlaybackState, Traffic } from "../media/session/messages.ts";
import type { Target } from "../media/sound/messages.ts";
import type { Workers } from "../media/workers.ts";
import { Studio } from "../scene/studio.ts";
import { Meter, round } from "./hud/meter.ts";
import { Panel } from "./hud/panel.ts";
import type { Link } from "./link.ts";
import { messageFor, MUTED, tcpNotice } from "./messages.ts";
import { hideWhenIdle } from "./idle.ts";
import { PlayBar } from "./playbar.ts";
import { PointsView } from "./points.ts";
import { Sound } from "./sound.ts";
import type { Stats } from "./stats.ts";
import { bindToolbar, fitToolbar, QualityMenu, revealDetails } from "./toolbar.ts";
import { VideoView } from "./video.ts";

/** Refresh intervals of the statistics, ms: normally, and while the page is busy. */
const REFRESH = 250;
const REFRESH_BUSY = 2000;
/** A timer this late, ms, means that the page is busy. */
const LATE = 100;

export class Page {
  readonly #studio = new Studio(document.querySelector("canvas#view")!);
  readonly #meter = new Meter();
  readonly #points: PointsView;
  readonly #video: VideoView;
  readonly #sound: Sound;
  readonly #panel = new Panel(document.querySelector<HTMLElement>("#stats")!);
  readonly #message = document.querySelector<HTMLElement>("#message")!;
  readonly #sessions = document.querySelector<HTMLElement>("#sessions")!;
  readonly #qualityMenu: QualityMenu;
  readonly #playBar: PlayBar;
  #replayed = false;
  #playback: PlaybackState | undefined;
  #phase: Phase = "connecting";
  #detail = "";
  #implementation = "";
  #transport: "quic" | "tcp" | "" = "";
  #clock: ClockState | undefined;
  #traffic: Traffic | undefined;
  #firstFrame: number | undefined;
  #seen = true;
  /** True once the GPU context is lost. */
  #lost = false;
  readonly #hint = document.querySelector<HTMLElement>("#hint")!;
  readonly #notify: (text: string) => void;
  readonly #showControls: () => void;

  constructor(
    readonly link: Link,
    private readonly workers: Workers,
  ) {
    this.#points = new PointsView(this.#studio, this.#meter, (m, transfer) => workers.send(m, transfer));
    this.#video = new VideoView(this.#studio, (m) => workers.send(m));
    this.#sound = new Sound(
      (m, transfer) => workers.send(m, transfer),
      () => this.#soundDue(),
      () => this.#studio.hearing,
      (e) => this.#notify(`This browser plays no sound: ${e instanceof Error ? e.message : String(e)}`),
    );
    const fit = () => this.#studio.resize(innerWidth, innerHeight, Math.min(devicePixelRatio, 2));
    addEventListener("resize", fit);
    fit();
    // A phone may destroy the GPU context with all of its resources, so reload.
    const { canvas } = this.#studio;
    canvas.addEventListener("webglcontextrestored", () => location.reload());
    canvas.addEventListener("webglcontextlost", () => {
      this.#lost = true;
      this.#reportVisibility();
      this.#tell();
    });
    for (const type of ["pointerdown", "keydown"]) canvas.addEventListener(type, () => (this.#hint.hidden = true));
    this.#studio.renderer.setAnimationLoop(() => this.#frame());
    this.#refresh(REFRESH);
    this.#qualityMenu = new QualityMenu((quality) => workers.send({ type: "quality", quality }));
    this.#playBar = new PlayBar(document.querySelector<HTMLElement>("#playback")!, (action) =>
      workers.send({ type: "playback", action }),
    );
    const notify = bindToolbar(
      this.#studio,
      this.#panel.root,
      () => JSON.stringify(this.stats(), undefined, 2),
      this.#playBar,
      this.#sound,
    );
    this.#notify = notify;
    this.#showControls = hideWhenIdle(document.querySelector<HTMLElement>("#bottom")!, () =>
      this.#video.sphere !== undefined && this.#message.hidden && this.#playback?.playing !== false,
    );
    this.#tell();
    workers.listen((m) => this.#fromNetwork(m), (m) => this.#points.fromDecoder(m), (m) => this.#video.fromVideo(m));
    const { xr } = this.#studio.renderer;
    for (const change of ["sessionstart", "sessionend"] as const)
      xr.addEventListener(change, () => this.#reportVisibility());
    document.addEventListener("visibilitychange", () => this.#reportVisibility());
    this.#reportVisibility();
  }

  #refresh(wait: number): void {
    const due = performance.now() + wait;
    setTimeout(() => {
      const busy = performance.now() - due > LATE;
      this.#holdPoints();
      this.#panel.show(this.stats());
      this.#refresh(busy ? REFRESH_BUSY : REFRESH);
    }, wait);
  }

  /** Reports to the workers whether the page is visible, on screen or in a headset. */
  #reportVisibility(): void {
    const seen = (!document.hidden && !this.#lost) || this.#studio.renderer.xr.isPresenting;
    if (seen === this.#seen) return;
    this.#seen = seen;
    this.workers.send({ type: "seen", seen });
    this.#points.drop();
    this.#video.drop();
  }

  get #stands(): boolean {
    const p = this.#playback;
    return p !== undefined && !p.live && (!p.playing || p.waiting);
  }

  /** True for a live session or a shared replay, false for a recording at the viewer's own pace. */
  get #shared(): boolean {
    return this.#playback?.live ?? true;
  }

  /** The session's clock minus the local one, ms; undefined in a replay, which has no such clock. */
  get #offset(): number | undefined {
    return this.#replayed ? undefined : this.#clock?.offset;
  }

  /** The time at which sound is due: in step with pictures, or else with points. */
  #soundDue(): Target {
    const { due, sphere } = this.#video;
    const offset = this.#offset;
    if (sphere && due) return { offset, shift: due.shift, latest: due.shift, still: due.still !== undefined };
    const { lips } = this.#points;
    const now = localTime();
    const shift = lips.shift(now);
    return { offset, shift, latest: this.#shared ? lips.latest(now) : shift, still: this.#stands };
  }

  /** Holds points back for sound that arrives later. */
  #holdPoints(): void {
    const { lips } = this.#points;
    const before = lips.held;
    const by = lips.hold(this.#shared ? this.#sound.needed : undefined, localTime());
    if (by !== before) this.workers.send({ type: "postpone", by });
  }

  #fromNetwork(m: FromNetwork): void {
    switch (m.type) {
      case "phase":
        this.#phase = m.phase;
        this.#detail = m.detail;
        this.#tell();
        break;
      case "replayed":
        this.#replayed = m.replayed;
        break;
      case "playback":
        this.#playback = m;
        this.#playBar.show(m);
        this.#sound.follow();
        break;
      case "sessions":
        this.#list(m.sessions);
        break;
      case "relay":
        this.#implementation = m.implementation;
        // Once, since a session may reconnect often.
        if (m.tcp && m.tcp !== "link" && this.#transport !== "tcp") this.#notify(tcpNotice(m.tcp));
        this.#transport = m.tcp ? "tcp" : "quic";
        break;
      case "clock":
        this.#clock = m;
        break;
      case "traffic":
        this.#traffic = m;
        this.#meter.traffic(m.bytes, localTime());
        break;
      case "sphere":
      case "due":
      case "drop":
      case "tiles":
        if (this.#lost) break;
        this.#video.fromNetwork(m);
        if (m.type === "due") this.#sound.follow();
        this.#fit();
        break;
      case "sounds": {
        const silent = this.#sound.tracks.length === 0;
        this.#sound.fromNetwork(m);
        this.#fit();
        this.#tell();
        if (silent && m.tracks.length > 0 && !this.#sound.on) this.#notify(MUTED);
        break;
      }
      case "soundCounts":
        this.#sound.fromNetwork(m);
        break;
      case "openVideo":
        break; // only for the workers
      default:
        if (this.#lost) break;
        this.#points.fromNetwork(m);
        if (m.type === "cameras") this.#fit();
        if (m.type === "qualities") this.#qualityMenu.show(m.names, m.chosen, m.received);
    }
  }

  /** Fits the controls to the media of the session. */
  #fit(): void {
    fitToolbar(this.#studio, this.#sound);
    if (this.#points.cameras.length > 0 || this.#video.sphere)
      revealDetails(this.#panel.root, this.#points.cameras.length === 0);
  }

  #frame(): void {
    if (this.#lost) return;
    const time = performance.now();
    if (this.#studio.busy(time)) return;
    const now = localTime();
    this.#points.upload(now);
    this.#video.upload(now);
    if (!this.#studio.draw(time)) return;
    this.#meter.drawn(now);
    this.#points.drawn(now, (f, shown) =>
      this.#replayed ? shown - f.arrived : shown + (this.#clock?.offset ?? 0) - f.captured,
    );
    if (this.#firstFrame === undefined && (this.#meter.frames > 0 || this.#video.pictures > 0)) {
      this.#firstFrame = performance.now();
      this.#hint.hidden = !this.#studio.controls.inside;
      this.#showControls();
      this.#tell();
    }
  }

  #tell(): void {
    const phase = this.#lost ? "graphics" : this.#phase;
    if (phase === "live" && this.#detail !== "") this.#notify(this.#detail);
    const onlySound = this.#sound.tracks.length > 0 && this.#points.cameras.length === 0 && !this.#video.sphere;
    const text = messageFor(phase, this.#detail, this.link, this.#firstFrame !== undefined || onlySound);
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
    const { cameras, counts, qualities } = this.#points;
    return {
      session: this.link.session, relay: this.link.relay, relay_host: new URL(this.link.relay).host,
      relay_implementation: this.#implementation, transport: this.#transport, phase: this.#phase, detail: this.#detail,
      cameras: cameras.length,
      qualities: qualities?.received ?? [], quality: qualities?.chosen ?? "auto",
      depth_error_mm: cameras.map((c) => c.depthError ?? null),
      delay_from: this.#replayed ? "arrival" : "capture",
      playback: this.#playback?.duration
        ? {
            duration_ms: this.#playback.duration,
            position_ms: round(this.#playback.position, 0),
            playing: this.#playback.playing,
            live: this.#playback.live,
            waiting: this.#playback.waiting,
          }
        : null,
      ...m,
      frames_received: counts?.received ?? 0, frames_lost: counts?.lost ?? 0, frames_late: counts?.late ?? 0,
      frames_skipped: (counts?.skipped ?? 0) + m.frames_overtaken, frames_declined: counts?.declined ?? 0,
      parts: counts && Object.values(counts.parts).some((n) => n > 0) ? counts.parts : null,
      streams_cut: t?.cut ?? 0,
      streams_refused: t?.refused ?? 0,
      streams_malformed: t?.malformed ?? 0,
      encryption: t?.encryption ?? null,
      reconnects: t?.reconnects ?? 0,
      rtt_ms: round(t?.rtt ?? 0, 2),
      clock: {
        offset_ms: this.#clock ? round(this.#clock.offset, 3) : null,
        error_ms: this.#clock ? round(this.#clock.error, 3) : null,
      },
      video: this.#video.stats(),
      sound: this.#sound.stats(
        this.#video.sphere ? this.#video.due?.shift : this.#points.lips.shift(localTime()),
        this.#offset,
        this.#points.lips.held,
      ),
      draw_ms: round(this.#studio.drawing.took, 1),
      look: this.#studio.look,
      drawn_share: this.#studio.drawing.share,
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
