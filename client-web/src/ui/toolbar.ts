import { Gyroscope } from "../scene/gyroscope.ts";
import type { Studio } from "../scene/studio.ts";
import { enterXR, supportedXR, type XRMode } from "../scene/xr.ts";

/** Display time of a notice, ms. */
const NOTICE_TIME = 5000;
/** Local storage key: "off" disables single-letter shortcuts. */
const LETTERS = "holocast.letters";
/** Session storage key: whether the user turned the details "on" or "off". */
const DETAILS = "holocast.details";

/** The session's sound. */
interface Sounding {
  readonly on: boolean;
  readonly tracks: readonly object[];
  /** 0 to 1. */
  volume: number;
  turn(on: boolean): void;
}

function toggle(id: string, get: () => boolean, set: (on: boolean) => void): () => void {
  const b = document.querySelector<HTMLButtonElement>(`button#${id}`)!;
  const show = () => b.setAttribute("aria-pressed", String(get()));
  const flip = () => {
    set(!get());
    show();
  };
  b.addEventListener("click", flip);
  show();
  return flip;
}

/** Connects buttons and keys to the scene and the details. Returns a function that shows a notice. */
export function bindToolbar(
  studio: Studio,
  stats: HTMLElement,
  json: () => string,
  playback: { toggle(): void },
  sound: Sounding,
): (text: string) => void {
  const notice = document.querySelector<HTMLElement>("#notice")!;
  let clearing: ReturnType<typeof setTimeout> | undefined;
  const notify = (text: string): void => {
    notice.textContent = text;
    clearTimeout(clearing);
    clearing = setTimeout(() => (notice.textContent = ""), NOTICE_TIME);
  };
  if (matchMedia("(prefers-color-scheme: light)").matches) studio.setTheme("light");
  applyTheme(studio);

  // On a phone the panel would cover the subject.
  stats.hidden = matchMedia("(max-width: 560px), (max-height: 480px)").matches;
  const chosen = remembered(DETAILS, () => sessionStorage);
  if (chosen !== null) {
    stats.hidden = chosen === "off";
    stats.classList.remove("early");
  }

  const actions: Record<string, () => void> = {
    KeyF: toggle("follow", () => studio.follow, (on) => (studio.follow = on)),
    KeyV: toggle("walk", () => studio.controls.mode === "walk", (on) => (studio.controls.mode = on ? "walk" : "orbit")),
    KeyU: toggle("surface", () => studio.look === "surface", (on) => (studio.look = on ? "surface" : "points")),
    KeyG: toggle("grid", () => studio.grid, (on) => (studio.grid = on)),
    KeyH: toggle("figures", () => !stats.hidden, (on) => {
      stats.hidden = !on;
      stats.classList.remove("early");
      remember(DETAILS, on ? "on" : "off", () => sessionStorage);
    }),
    KeyM: toggle("sound", () => sound.on, (on) => {
      sound.turn(on);
      fitVolume(sound);
    }),
    KeyL: toggle("light", () => studio.theme === "light", (on) => {
      studio.setTheme(on ? "light" : "dark");
      applyTheme(studio);
    }),
  };
  const click = (id: string, key: string, act: () => void) => {
    document.querySelector(`button#${id}`)!.addEventListener("click", act);
    actions[key] = act;
  };
  // Single-letter shortcuts can be turned off (WCAG 2.1.4).
  studio.controls.letters = remembered(LETTERS) !== "off";
  toggle("letters", () => studio.controls.letters, (on) => {
    studio.controls.letters = on;
    remember(LETTERS, on ? "on" : "off");
  });
  click("home", "KeyR", () => studio.frame());
  click("picture", "KeyP", () => void savePicture(studio).then(() => notify("Picture saved."), report));
  click("copy", "KeyC", () => void copy(json()).then(() => notify("Details copied."), report));
  if (document.fullscreenEnabled) {
    const full = document.querySelector<HTMLButtonElement>("button#full")!;
    full.hidden = false;
    click(
      "full",
      "KeyX",
      () =>
        void (
          document.fullscreenElement ? document.exitFullscreen() : document.documentElement.requestFullscreen()
        ).catch(report),
    );
    document.addEventListener("fullscreenchange", () =>
      full.setAttribute("aria-pressed", String(document.fullscreenElement !== null)),
    );
  }
  actions["KeyK"] = () => playback.toggle();
  const volume = document.querySelector<HTMLInputElement>("input#volume")!;
  volume.addEventListener("input", () => (sound.volume = Number(volume.value) / 100));
  function report(e: unknown): void {
    notify(e instanceof Error ? e.message : String(e));
  }
  addEventListener("keydown", (e) => {
    const act = actions[e.code];
    const typing = e.target instanceof HTMLSelectElement;
    if (!act || !studio.controls.letters || typing || e.ctrlKey || e.metaKey || e.altKey || e.repeat) return;
    act();
  });
  offerMotion(studio, report);
  void offerXR(studio, report);
  return notify;
}

/** Makes the page dark inside 360° video, where there is no background and a dark page disturbs the picture least. */
function applyTheme(studio: Studio): void {
  document.documentElement.dataset["theme"] = studio.controls.inside ? "dark" : studio.theme;
}

/**
 * Unless the user has chosen, shows the details if the first media are point clouds and hides them
 * if they are 360° video.
 */
export function revealDetails(stats: HTMLElement, sphere: boolean): void {
  if (!stats.classList.contains("early")) return;
  stats.classList.remove("early");
  stats.hidden ||= sphere;
  document.querySelector("button#figures")!.setAttribute("aria-pressed", String(!stats.hidden));
}

function fitVolume(sound: Sounding): void {
  document.querySelector<HTMLElement>("input#volume")!.hidden = !sound.on || sound.tracks.length === 0;
}

/** Hides buttons that have no effect in this session, such as those for walking inside 360° video. */
export function fitToolbar(studio: Studio, sound: Sounding): void {
  const { inside } = studio.controls;
  applyTheme(studio);
  for (const id of ["home", "follow", "walk", "surface", "grid", "light"])
    document.querySelector<HTMLElement>(`button#${id}`)!.hidden = inside;
  document.querySelector<HTMLElement>("button#sound")!.hidden = sound.tracks.length === 0;
  fitVolume(sound);
  document.querySelector<HTMLElement>("button#motion")!.hidden = !inside || !Gyroscope.likely;
}

/** Offers to turn the view with the phone. */
function offerMotion(studio: Studio, report: (e: unknown) => void): void {
  const b = document.querySelector<HTMLButtonElement>("button#motion")!;
  let gyroscope: Gyroscope | undefined;
  const heading = (): number => {
    const d = studio.camera.getWorldDirection(studio.camera.position.clone());
    return Math.atan2(d.x, -d.z);
  };
  b.addEventListener("click", () => {
    if (gyroscope) {
      gyroscope.stop();
      gyroscope = undefined;
      b.setAttribute("aria-pressed", "false");
      return;
    }
    Gyroscope.start(studio.controls, heading).then((g) => {
      gyroscope = g;
      b.setAttribute("aria-pressed", "true");
    }, report);
  });
}

// Storage may be disabled. The choice then lasts until the page is closed.
function remembered(key: string, storage = () => localStorage): string | null {
  try {
    return storage().getItem(key);
  } catch {
    return null;
  }
}

function remember(key: string, value: string, storage = () => localStorage): void {
  try {
    storage().setItem(key, value);
  } catch {
    // See above.
  }
}

/** The quality menu, shown if there is a choice. */
export class QualityMenu {
  readonly #root = document.querySelector<HTMLElement>("#quality")!;
  readonly #select = this.#root.querySelector("select")!;

  constructor(chosen: (quality: string) => void) {
    this.#select.addEventListener("change", () => chosen(this.#select.value));
  }

  /** `names` are ordered best first; `received` is the current quality of each camera. */
  show(names: readonly string[], chosen: string, received: readonly string[]): void {
    this.#root.hidden = names.length < 2;
    const now = [...new Set(received)].join(", ");
    const texts = new Map(names.map((n) => [n, n]));
    texts.set("auto", chosen === "auto" ? `automatic (${now})` : "automatic");
    this.#select.replaceChildren(
      ...[...texts].reverse().map(([value, text]) => new Option(text, value, false, value === chosen)),
    );
  }
}

async function copy(text: string): Promise<void> {
  if (!navigator.clipboard) throw new Error("Not copied, as browsers allow copying only on https pages.");
  await navigator.clipboard.writeText(text);
}

async function savePicture(studio: Studio): Promise<void> {
  const url = URL.createObjectURL(await studio.picture());
  const a = document.createElement("a");
  a.href = url;
  a.download = `holocast-${new Date().toISOString().replaceAll(":", "-")}.png`;
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

async function offerXR(studio: Studio, report: (e: unknown) => void): Promise<void> {
  for (const mode of await supportedXR()) {
    const b = document.querySelector<HTMLButtonElement>(`button#${mode}`)!;
    b.hidden = false;
    let session: XRSession | undefined;
    b.addEventListener("click", () => {
      if (session) void session.end();
      else {
        void enterXR(studio, mode satisfies XRMode, () => {
          session = undefined;
          b.setAttribute("aria-pressed", "false");
        }).then((s) => {
          session = s;
          b.setAttribute("aria-pressed", "true");
        }, report);
      }
    });
  }
}
