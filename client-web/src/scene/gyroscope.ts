import { Euler, Quaternion, Vector3 } from "three";
import type { Walk } from "./walk.ts";

/**
 * Converts from the frame of deviceorientation, whose z axis points up, to the scene's. The view
 * direction points out of the phone's back.
 */
const OUT_OF_THE_BACK = new Quaternion(-Math.SQRT1_2, 0, 0, Math.SQRT1_2);
const FORWARD = new Vector3(0, 0, -1);
const SCREEN = new Vector3(0, 0, 1);
const UP = new Vector3(0, 1, 0);
const DEGREE = Math.PI / 180;

/** Turns the view with the phone, relative to the view at the start. */
export class Gyroscope {
  readonly #stop = new AbortController();
  readonly #turn = new Quaternion();
  readonly #screen = new Quaternion();
  readonly #euler = new Euler();
  readonly #direction = new Vector3();
  /** Scene heading minus phone heading, radians; set by the first event. */
  #offset: number | undefined;

  private constructor(
    private readonly walk: Walk,
    private readonly heading: () => number,
  ) {
    addEventListener("deviceorientation", (e) => this.#take(e), { signal: this.#stop.signal });
  }

  /** True if this device may have a gyroscope. */
  static get likely(): boolean {
    return navigator.maxTouchPoints > 0 && "DeviceOrientationEvent" in globalThis;
  }

  /**
   * Requests permission where required; must be called from a click. `heading` is the current view's,
   * in radians to the right.
   */
  static async start(walk: Walk, heading: () => number): Promise<Gyroscope> {
    const asks = DeviceOrientationEvent as unknown as { requestPermission?: () => Promise<string> };
    if ((await asks.requestPermission?.()) === "denied")
      throw new Error("The browser does not allow motion sensors for this page.");
    return new Gyroscope(walk, heading);
  }

  #take({ alpha, beta, gamma }: DeviceOrientationEvent): void {
    if (alpha === null || beta === null || gamma === null) return;
    this.#euler.set(beta * DEGREE, alpha * DEGREE, -gamma * DEGREE, "YXZ");
    this.#screen.setFromAxisAngle(SCREEN, -(screen.orientation?.angle ?? 0) * DEGREE);
    this.#turn.setFromEuler(this.#euler).multiply(OUT_OF_THE_BACK).multiply(this.#screen);
    const d = this.#direction.copy(FORWARD).applyQuaternion(this.#turn);
    this.#offset ??= this.heading() - Math.atan2(d.x, -d.z);
    this.walk.lookAlong(d.applyAxisAngle(UP, -this.#offset));
  }

  stop(): void {
    this.#stop.abort();
  }
}
