import { Vector3, type PerspectiveCamera } from "three";
import { OrbitControls } from "three/addons/controls/OrbitControls.js";

export type Mode = "orbit" | "walk";

/** Metres a second. */
const SPEED = 1.5;

const keys: Readonly<Record<string, readonly [number, number, number]>> = {
  KeyW: [0, 0, -1], ArrowUp: [0, 0, -1],
  KeyS: [0, 0, 1], ArrowDown: [0, 0, 1],
  KeyA: [-1, 0, 0], ArrowLeft: [-1, 0, 0],
  KeyD: [1, 0, 0], ArrowRight: [1, 0, 0],
  KeyE: [0, 1, 0], PageUp: [0, 1, 0],
  KeyQ: [0, -1, 0], PageDown: [0, -1, 0],
};

/**
 * The visitor's way through the scene: around what is looked at (orbit), or on foot (walk), where
 * dragging turns the head. Keys walk in both; touch is OrbitControls': one finger turns, two move and zoom.
 */
export class Walk {
  /** Whether letters walk wherever the focus is, or only where it is on the picture. */
  letters = true;
  readonly #orbit: OrbitControls;
  readonly #held = new Set<string>();
  readonly #move = new Vector3();
  readonly #forward = new Vector3();
  readonly #right = new Vector3();
  readonly #events = new AbortController();
  #mode: Mode = "orbit";
  #distance = 1;

  constructor(
    private readonly camera: PerspectiveCamera,
    canvas: HTMLCanvasElement,
    private readonly changed: () => void,
  ) {
    this.#orbit = new OrbitControls(camera, canvas);
    this.#orbit.enableDamping = false;
    this.#orbit.zoomToCursor = true;
    this.#orbit.maxDistance = 50;
    this.#orbit.addEventListener("change", changed);
    const signal = this.#events.signal;
    addEventListener("keydown", (e) => {
      if (!(e.code in keys) || e.ctrlKey || e.metaKey || e.altKey) return;
      // Elsewhere the arrows are a slider's or a list's, and all keys a menu's.
      if (e.code.startsWith("Key")) {
        if (e.target !== canvas && (!this.letters || e.target instanceof HTMLSelectElement)) return;
      } else if (e.target !== canvas && e.target !== document.body) return;
      this.#held.add(e.code);
      e.preventDefault();
    }, { signal });
    addEventListener("keyup", (e) => this.#held.delete(e.code), { signal });
    addEventListener("blur", () => this.#held.clear(), { signal });
  }

  /** What the view turns around. */
  get target(): Vector3 {
    return this.#orbit.target;
  }

  get mode(): Mode {
    return this.#mode;
  }

  set mode(mode: Mode) {
    if (mode === this.#mode) return;
    this.#mode = mode;
    // On foot the view turns about a place just before the eye.
    this.#forward.copy(this.target).sub(this.camera.position);
    const away = this.#forward.length();
    this.#forward.normalize();
    if (mode === "walk") this.#distance = Math.max(0.5, away);
    this.target.copy(this.camera.position).addScaledVector(this.#forward, mode === "walk" ? 0.01 : this.#distance);
    this.#orbit.rotateSpeed = mode === "walk" ? -0.4 : 1;
    this.#orbit.enableZoom = mode === "orbit";
    this.update();
  }

  /** Walks as the keys say, for dt ms. */
  move(dt: number): void {
    if (this.#held.size === 0) return;
    this.#move.set(0, 0, 0);
    for (const code of this.#held) {
      const k = keys[code]!;
      this.#move.x += k[0];
      this.#move.y += k[1];
      this.#move.z += k[2];
    }
    this.camera.getWorldDirection(this.#forward);
    this.#right.crossVectors(this.#forward, this.camera.up).normalize();
    this.#forward.y = 0;
    this.#forward.normalize();
    const step = (SPEED * dt) / 1000;
    this.#forward.multiplyScalar(-this.#move.z * step).addScaledVector(this.#right, this.#move.x * step);
    this.#forward.y += this.#move.y * step;
    this.camera.position.add(this.#forward);
    this.target.add(this.#forward);
    this.changed();
  }

  update(): void {
    this.#orbit.update();
  }

  dispose(): void {
    this.#events.abort();
    this.#orbit.dispose();
  }
}
