import { Vector3, type PerspectiveCamera } from "three";
import { OrbitControls } from "three/addons/controls/OrbitControls.js";

export type Mode = "orbit" | "walk";

/** Walking speed in metres per second, and turning speed in radians per second. */
const SPEED = 1.5;
const TURN = 1.2;
/** Minimum angle to the poles, radians. */
const POLE = 0.02;

const keys: Readonly<Record<string, readonly [number, number, number]>> = {
  KeyW: [0, 0, -1], ArrowUp: [0, 0, -1],
  KeyS: [0, 0, 1], ArrowDown: [0, 0, 1],
  KeyA: [-1, 0, 0], ArrowLeft: [-1, 0, 0],
  KeyD: [1, 0, 0], ArrowRight: [1, 0, 0],
  KeyE: [0, 1, 0], PageUp: [0, 1, 0],
  KeyQ: [0, -1, 0], PageDown: [0, -1, 0],
};

/**
 * Navigation: orbit around a target, or walk in first person, where dragging turns the head. Keys
 * walk in both modes. Touch gestures are OrbitControls': one finger turns, two move and zoom.
 */
export class Walk {
  /** True if letter keys walk regardless of focus, false if only with the focus on the canvas. */
  letters = true;
  readonly #orbit: OrbitControls;
  readonly #held = new Set<string>();
  readonly #move = new Vector3();
  readonly #forward = new Vector3();
  readonly #right = new Vector3();
  readonly #events = new AbortController();
  #mode: Mode = "orbit";
  #distance = 1;
  #inside = false;

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
      // If another element has the focus, sliders and lists use the arrow keys, and menus use all keys.
      if (e.code.startsWith("Key")) {
        if (e.target !== canvas && (!this.letters || e.target instanceof HTMLSelectElement)) return;
      } else if (e.target !== canvas && e.target !== document.body) return;
      this.#held.add(e.code);
      e.preventDefault();
    }, { signal });
    addEventListener("keyup", (e) => this.#held.delete(e.code), { signal });
    addEventListener("blur", () => this.#held.clear(), { signal });
  }

  /** The point around which the view turns. */
  get target(): Vector3 {
    return this.#orbit.target;
  }

  /** True at the centre of 360° video, where keys turn the view instead of walking. */
  get inside(): boolean {
    return this.#inside;
  }

  set inside(on: boolean) {
    this.#inside = false;
    if (on) {
      this.mode = "walk";
      this.#inside = true;
      this.camera.position.set(0, 0, 0);
      this.target.set(0, 0, -0.01);
      this.update();
    } else {
      this.mode = "orbit";
    }
    this.changed();
  }

  /** Turns the head towards a direction. */
  lookAlong(direction: Vector3): void {
    this.target.copy(this.camera.position).addScaledVector(direction, 0.01);
    this.update();
    this.changed();
  }

  #turn(right: number, up: number): void {
    this.camera.getWorldDirection(this.#forward);
    const yaw = Math.atan2(this.#forward.x, -this.#forward.z) + right;
    const most = Math.PI / 2 - POLE;
    const pitch = Math.max(-most, Math.min(most, Math.asin(Math.max(-1, Math.min(1, this.#forward.y))) + up));
    this.lookAlong(
      this.#forward.set(Math.sin(yaw) * Math.cos(pitch), Math.sin(pitch), -Math.cos(yaw) * Math.cos(pitch)),
    );
  }

  get mode(): Mode {
    return this.#mode;
  }

  set mode(mode: Mode) {
    if (mode === this.#mode || this.#inside) return;
    this.#mode = mode;
    // In first person the view turns around a point just in front of the eye.
    this.#forward.copy(this.target).sub(this.camera.position);
    const away = this.#forward.length();
    this.#forward.normalize();
    if (mode === "walk") this.#distance = Math.max(0.5, away);
    this.target.copy(this.camera.position).addScaledVector(this.#forward, mode === "walk" ? 0.01 : this.#distance);
    this.#orbit.rotateSpeed = mode === "walk" ? -0.4 : 1;
    this.#orbit.enableZoom = mode === "orbit";
    this.update();
  }

  /** Applies the pressed keys for dt ms. */
  move(dt: number): void {
    if (this.#held.size === 0) return;
    this.#move.set(0, 0, 0);
    for (const code of this.#held) {
      const k = keys[code]!;
      this.#move.x += k[0];
      this.#move.y += k[1];
      this.#move.z += k[2];
    }
    if (this.#inside) {
      const angle = (TURN * dt) / 1000;
      this.#turn(this.#move.x * angle, (this.#move.y - this.#move.z) * angle);
      return;
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
