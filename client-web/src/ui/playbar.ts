import type { PlaybackAction, PlaybackState } from "../media/session/messages.ts";

/** Step of an arrow key, and minimum interval between seeks while dragging, ms. */
const STEP = 5000;
const DRAG = 150;

/** Formats 75 s as 1:15. */
export function clockTime(ms: number): string {
  const s = Math.floor(ms / 1000);
  const minutes = Math.floor(s / 60) % 60;
  const seconds = String(s % 60).padStart(2, "0");
  return s < 3600 ? `${minutes}:${seconds}` : `${Math.floor(s / 3600)}:${String(minutes).padStart(2, "0")}:${seconds}`;
}

/** Formats a position and a duration in ms. Durations omit the last frame: ten seconds at 30 FPS give 9.97 s. */
export function progress(position: number, duration: number): [position: string, duration: string] {
  const end = 1000 * Math.round(duration / 1000);
  return [clockTime(position >= duration ? end : position), clockTime(end)];
}

/** Play, pause and seek controls for a replayed recording; hidden without a seekable recording. */
export class PlayBar {
  readonly #play: HTMLButtonElement;
  readonly #position: HTMLInputElement;
  readonly #time: HTMLElement;
  readonly #live: HTMLButtonElement;
  #state: PlaybackState | undefined;
  #held = false;
  #sent = 0;

  constructor(
    readonly root: HTMLElement,
    private readonly act: (action: PlaybackAction) => void,
  ) {
    this.#play = root.querySelector<HTMLButtonElement>("#play")!;
    this.#position = root.querySelector<HTMLInputElement>("#position")!;
    this.#time = root.querySelector<HTMLElement>("#time")!;
    this.#live = root.querySelector<HTMLButtonElement>("#golive")!;
    this.#play.addEventListener("click", () => this.toggle());
    this.#live.addEventListener("click", () => this.act("live"));
    this.#position.addEventListener("input", () => {
      this.#held = true;
      this.#label(Number(this.#position.value));
      if (performance.now() - this.#sent >= DRAG) this.#seek();
    });
    this.#position.addEventListener("change", () => {
      this.#seek();
      this.#held = false;
    });
    this.#position.addEventListener("keydown", (e) => {
      const way = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[e.key];
      if (way === undefined || !this.#state) return;
      e.preventDefault();
      const step = Math.min(STEP, this.#state.duration / 20);
      this.#position.value = String(Number(this.#position.value) + way * step);
      this.#seek();
    });
  }

  #seek(): void {
    this.#sent = performance.now();
    this.#label(Number(this.#position.value));
    this.act({ seek: Number(this.#position.value) });
  }

  toggle(): void {
    if (this.#state?.duration) this.act(this.#state.playing ? "pause" : "play");
  }

  show(s: PlaybackState): void {
    this.#state = s;
    this.root.hidden = s.duration === 0;
    this.#play.textContent = s.playing ? "Pause" : "Play";
    this.#live.setAttribute("aria-pressed", String(s.live));
    this.root.classList.toggle("waits", s.waiting);
    if (this.#held) return;
    this.#position.max = String(s.duration);
    this.#position.value = String(s.position);
    this.#label(s.position);
  }

  #label(position: number): void {
    const [now, end] = progress(position, this.#state?.duration ?? 0);
    const text = `${now} / ${end}`;
    if (this.#time.textContent === text) return;
    this.#time.textContent = text;
    this.#position.setAttribute("aria-valuetext", `${now} of ${end}`);
  }
}
