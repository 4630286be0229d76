import { type Color, Group, Matrix4, PerspectiveCamera, Scene, Vector3, WebGLRenderer } from "three";
import type { Subject } from "../media/points/subject.ts";
import { isMerged, samePose, sameTrack, type CameraTrack, type Transform } from "../media/points/track.ts";
import type { View } from "../media/points/viewselect.ts";
import { Floor, type Theme } from "./floor.ts";
import { GpuQueue, type Limits } from "./gpu.ts";
import { CameraPoints, Quads, type Look, type SharedUniforms } from "./points.ts";
import type { Sphere } from "../media/tiles/track.ts";
import { VideoSphere } from "./sphere.ts";
import { Walk } from "./walk.ts";

export type { Theme };

/**
 * Drawing times, in ms, above which fewer points are drawn and below which more are drawn. A thinned surface has no
 * gaps, but thinned points do.
 */
const LIMITS: Readonly<Record<Look, Limits>> = {
  surface: { slow: 60, quick: 20, coarsest: 16 }, // a surface closes gaps of three rows
  points: { slow: 250, quick: 100, coarsest: 64 },
};

/** Distance from which a cloud without a camera is seen at first, metres. */
const BEFORE = 2.5;

/** Half-life of the distance between view and subject while following, ms. */
const FOLLOW_HALF = 400;

/** The session's cameras in one scene, in metres with y up. */
export class Studio {
  readonly renderer: WebGLRenderer;
  readonly scene = new Scene();
  readonly camera = new PerspectiveCamera(66, 1, 0.05, 200);
  readonly controls: Walk;
  /** All captured content. In WebXR it is moved in front of the user. */
  readonly stage = new Group();
  readonly #points = new Map<number, CameraPoints>();
  /** Cameras' previous tracks, which are shown until the new tracks' first frames arrive. */
  readonly #leaving = new Map<number, CameraPoints>();
  /** Centres of the cameras' subjects in camera coordinates, mm. */
  readonly #subjects = new Map<number, Vector3>();
  readonly #shared: SharedUniforms = {
    height: { value: 1 }, spread: { value: 1.4 }, stride: { value: 1 }, several: { value: false },
  };
  readonly #gpu: GpuQueue;
  readonly #quads = new Quads();
  readonly #studio = new Group(); // millimetres to metres, y up
  /** 360° video around the scene, if the session has any. */
  sphere: VideoSphere | undefined;
  readonly #floor = new Floor();
  #gridShown = true;
  #mode: "ar" | "vr" | undefined;
  /** True if the shadow is older than the frames. */
  #shadowStale = true;
  #theme: Theme = "dark";
  #framed = false;
  /** True once the grid lies on the floor seen by the cameras. */
  #levelled = false;
  /** Eye position last set by framing or following; NaN before. */
  readonly #framedEye = new Vector3(NaN);
  readonly #framedTarget = new Vector3();
  #follow = false;
  #last = 0;
  readonly #middle = new Vector3();
  readonly #step = new Vector3();
  readonly #place = new Vector3();
  /** Offset from the subject's centre to the orbit target while following. */
  readonly #ahead = new Vector3();
  /** True if the scene changed since the last picture. */
  dirty = true;

  constructor(readonly canvas: HTMLCanvasElement) {
    this.renderer = new WebGLRenderer({ canvas, antialias: false, powerPreference: "high-performance" });
    this.#gpu = new GpuQueue(this.renderer.getContext() as WebGL2RenderingContext, LIMITS[this.#look]);
    this.renderer.xr.enabled = true;
    this.renderer.xr.setReferenceSpaceType("local-floor");
    this.controls = new Walk(this.camera, canvas, () => (this.dirty = true));
    this.stage.add(this.#studio);
    this.scene.add(this.stage);
    this.stage.add(this.#floor.object);
    this.#placeStudio();
    this.camera.position.set(0, 1.2, 2.5);
    this.controls.target.set(0, 1, 0);
    this.setTheme("dark");
    this.camera.layers.enable(1); // content of the left eye; WebXR has a camera per eye
  }

  /**
   * Surrounds the scene with 360° video, or removes it. Without cameras the view only turns inside
   * it.
   */
  setSphere(sphere: Sphere | undefined): void {
    this.sphere?.dispose();
    this.sphere = sphere && new VideoSphere(this.renderer, sphere);
    if (this.sphere) this.scene.add(this.sphere.object);
    this.#inside();
    this.dirty = true;
  }

  #inside(): void {
    const inside = this.sphere !== undefined && this.#points.size === 0;
    if (inside === this.controls.inside) return;
    this.controls.inside = inside;
    this.#showFloor();
  }

  /** Field of view as the angles between opposite edges, radians. */
  get fieldOfView(): readonly [width: number, height: number] {
    if (this.renderer.xr.isPresenting) {
      const { elements } = this.renderer.xr.getCamera().projectionMatrix; // covers both eyes
      return [2 * Math.atan(1 / elements[0]!), 2 * Math.atan(1 / elements[5]!)];
    }
    const height = (this.camera.fov * Math.PI) / 180;
    return [2 * Math.atan(Math.tan(height / 2) * this.camera.aspect), height];
  }

  /** View direction in sphere coordinates: x right, y up, z towards the picture's centre. */
  get gaze(): readonly [number, number, number] {
    const xr = this.renderer.xr.isPresenting;
    const d = (xr ? this.renderer.xr.getCamera() : this.camera).getWorldDirection(this.#step);
    if (this.sphere) d.applyMatrix3(this.sphere.sceneToPicture);
    return [d.x, d.y, -d.z];
  }

  #showFloor(): void {
    const ar = this.#mode === "ar";
    const shown = !this.controls.inside;
    this.#floor.show(shown && this.#gridShown && !ar, shown && ar);
    this.dirty = true;
  }

  setTheme(theme: Theme): void {
    this.#theme = theme;
    this.#background = this.#floor.setTheme(theme);
    if (this.#mode !== "ar") this.scene.background = this.#background;
    this.dirty = true;
  }
  #background: Color | undefined;

  get theme(): Theme {
    return this.#theme;
  }

  get grid(): boolean {
    return this.#gridShown;
  }

  set grid(on: boolean) {
    this.#gridShown = on;
    this.#showFloor();
  }

  /** True if the view follows the subject. */
  get follow(): boolean {
    return this.#follow;
  }

  set follow(on: boolean) {
    this.#follow = on;
    // Keep the current offset from the subject.
    if (on && this.#subjectsMiddle()) this.#ahead.copy(this.controls.target).sub(this.#middle);
    this.dirty = true;
  }

  get look(): Look {
    return this.#look;
  }

  set look(look: Look) {
    this.#look = look;
    this.#limit();
    this.dirty = true;
  }
  #look: Look = "surface";

  /** True to draw every point, however long that takes. */
  set complete(complete: boolean) {
    this.#complete = complete;
    this.#limit();
    this.dirty = true;
  }
  #complete = false;

  #limit(): void {
    this.#gpu.limit(this.#complete ? { ...LIMITS[this.#look], coarsest: 1 } : LIMITS[this.#look]);
  }

  /** Replaces the scene's cameras with the catalog's. */
  setCameras(tracks: readonly CameraTrack[]): void {
    const wanted = new Map(tracks.map((t) => [t.camera, t]));
    for (const t of tracks) this.setPose(t.camera, t.pose);
    for (const [n, p] of this.#points) {
      const t = wanted.get(n);
      if (t && sameTrack(t, p.track)) continue;
      this.#points.delete(n);
      if (t && p.points > 0) {
        this.#leave(n);
        this.#leaving.set(n, p);
      } else {
        p.dispose();
      }
      if (!t) this.#subjects.delete(n);
    }
    for (const n of this.#leaving.keys()) if (!wanted.has(n)) this.#leave(n);
    for (const t of tracks) {
      if (this.#points.has(t.camera)) continue;
      const p = new CameraPoints(this.renderer, t, this.#shared, this.#quads);
      this.#points.set(t.camera, p);
      this.#studio.add(p.object);
    }
    this.#shared.several.value = this.#points.size > 1;
    this.#inside();
    this.#placeStudio();
  }

  #leave(camera: number): void {
    this.#leaving.get(camera)?.dispose();
    this.#leaving.delete(camera);
  }

  /**
   * Moves a camera. A view the user has not changed is framed again once the subject is located.
   */
  setPose(camera: number, pose: Transform): void {
    const p = this.#points.get(camera);
    if (!p || samePose(pose, p.pose)) return;
    p.setPose(pose);
    this.#leaving.get(camera)?.setPose(pose);
    this.#placeStudio();
    this.#levelled = false;
    if (this.renderer.xr.isPresenting || !this.#moved) this.#framed = false;
  }

  /** True if the user changed the framed view. */
  get #moved(): boolean {
    const same = (a: Vector3, b: Vector3) => a.distanceToSquared(b) < 1e-6;
    return !same(this.camera.position, this.#framedEye) || !same(this.controls.target, this.#framedTarget);
  }

  setRays(camera: number, table: Float32Array): void {
    this.#points.get(camera)?.setRays(table);
    this.dirty = true;
  }

  /** Uploads a camera's frame. */
  upload(camera: number, words: Uint32Array, points: number, subject: Subject | undefined): void {
    const p = this.#points.get(camera);
    if (!p) return;
    p.upload(words, points, this.#look);
    this.#shadowStale = true;
    if (p.object.visible) this.#leave(camera);
    this.dirty = true;
    if (!subject) return;
    p.spacing = subject.spacing;
    let s = this.#subjects.get(camera);
    if (!s) this.#subjects.set(camera, (s = new Vector3()));
    s.set(...subject.middle);
    // The frame was decoded before the camera's pose was corrected, so its floor is wrong.
    if ((this.#framed && this.#levelled) || !samePose(subject.pose, p.pose)) return;
    this.#floor.object.position.y = subject.floor * this.#studio.scale.y * (this.#up ? 1 : -1);
    this.#levelled = true;
    this.#shadowStale = true;
    if (this.#framed) return;
    this.frame();
    if (this.renderer.xr.isPresenting) this.#placeStage();
  }

  /** The view of the point clouds, in studio space; undefined if there are no cameras. */
  hologramView(): View | undefined {
    const { elements: p } = this.camera.projectionMatrix;
    const m = this.#toEye.multiplyMatrices(this.camera.matrixWorldInverse, this.#studio.matrixWorld).elements;
    const scale = Math.hypot(m[0]!, m[1]!, m[2]!);
    if (this.#points.size === 0 || !(scale > 0)) return undefined;
    // three.js's eye space has y up and z backward.
    const row = (i: number, sign: number) => [m[i]!, m[i + 4]!, m[i + 8]!].map((v) => (sign * v) / scale);
    const t = [m[12]! / scale, -m[13]! / scale, -m[14]! / scale];
    return { eye: { r: [...row(0, 1), ...row(1, -1), ...row(2, -1)], t }, tanX: 1 / p[0]!, tanY: 1 / p[5]! };
  }
  readonly #toEye = new Matrix4();

  /** Points currently shown, over all cameras. */
  get points(): number {
    let n = 0;
    for (const p of this.#points.values()) n += p.points;
    return n;
  }

  /**
   * Camera y axes point down in the image. If they also point down in the studio, the studio's y
   * axis points up.
   */
  #placeStudio(): void {
    let y = 0;
    for (const p of this.#points.values()) y += p.pose.r[4]!;
    const up = y < 0;
    this.#studio.scale.setScalar(0.001);
    this.#studio.rotation.set(up ? 0 : Math.PI, 0, 0);
    this.#studio.updateMatrixWorld(true);
    this.#up = up;
    this.dirty = true;
  }
  #up = true;

  /** Looks at the subject from the first camera's position. */
  frame(): void {
    const first = this.#points.values().next().value;
    if (!first || !this.#subjectsMiddle()) return;
    this.#framed = true;
    // The camera points at the subject and has an unobstructed view of it.
    const e = first.object.matrixWorld.elements;
    const target = this.#place.setFromMatrixPosition(first.object.matrixWorld);
    const axis = this.#step.set(e[8]!, e[9]!, e[10]!).normalize();
    if (isMerged(first.track)) {
      this.controls.target.copy(this.#middle);
      this.camera.position.copy(this.#middle).add(this.#place.set(0, 0.3, BEFORE));
    } else {
      const away = Math.max(0.5, this.#middle.distanceTo(target));
      this.camera.position.copy(target);
      this.controls.target.copy(target.addScaledVector(axis, away));
    }
    this.controls.update();
    this.#framedEye.copy(this.camera.position);
    this.#framedTarget.copy(this.controls.target);
    this.#ahead.copy(this.controls.target).sub(this.#middle);
    this.dirty = true;
  }

  #subjectsMiddle(): boolean {
    if (this.#subjects.size === 0) return false;
    this.stage.updateMatrixWorld(true);
    this.#middle.set(0, 0, 0);
    for (const [n, s] of this.#subjects)
      this.#middle.add(this.#place.copy(s).applyMatrix4(this.#points.get(n)!.object.matrixWorld));
    this.#middle.multiplyScalar(1 / this.#subjects.size);
    return true;
  }

  resize(width: number, height: number, ratio: number): void {
    this.renderer.setPixelRatio(ratio);
    this.renderer.setSize(width, height, false);
    this.camera.aspect = width / Math.max(1, height);
    this.camera.updateProjectionMatrix();
    this.dirty = true;
  }

  /** Moves the stage in front of the user of a WebXR session, or back when it ends. */
  enterXR(mode: "ar" | "vr" | undefined): void {
    if (mode) this.#placeStage();
    else this.stage.position.set(0, 0, 0);
    this.#mode = mode;
    this.#shadowStale = true;
    this.scene.background = mode === "ar" ? null : this.#background!;
    this.#showFloor();
  }

  /** Moves the subject in front of the user of a WebXR session. */
  #placeStage(): void {
    this.#shadowStale = true;
    this.stage.position.set(0, 0, 0);
    if (!this.#subjectsMiddle()) return;
    const { x, z } = this.#middle;
    this.stage.position.set(-x, -this.#floor.object.position.y, -z - 1.8);
  }

  /** True if no further picture may be submitted to the GPU yet. In WebXR every frame is drawn. */
  busy(now: number): boolean {
    return this.#gpu.busy(now) && !this.renderer.xr.isPresenting;
  }

  /** Duration of the GPU's last picture, ms, and the share of points drawn. */
  get drawing(): { readonly took: number; readonly share: number } {
    return { took: this.#gpu.took, share: 1 / this.#gpu.stride };
  }

  /** Draws the scene if it changed, and returns whether it did. `now` is in ms. */
  draw(now: number): boolean {
    const dt = Math.min(100, now - this.#last);
    this.#last = now;
    const xr = this.renderer.xr.isPresenting;
    if (!xr) {
      this.controls.move(dt);
      if (this.#follow && this.#subjectsMiddle()) this.#followSubject(dt);
      this.controls.update();
    }
    if (!this.dirty && !xr) return false;
    this.dirty = false;
    this.#shared.height.value = xr ? xrHeight(this.renderer.xr.getBaseLayer(), this.canvas.height) : this.canvas.height;
    this.#prepare(this.#gpu.stride);
    this.#castShadow();
    this.renderer.render(this.scene, this.camera);
    if (!xr) this.#gpu.submitted(performance.now());
    return true;
  }

  #prepare(stride: number): void {
    this.#shared.stride.value = stride;
    for (const p of [...this.#points.values(), ...this.#leaving.values()]) p.prepare(this.#look);
    this.sphere?.update();
  }

  #castShadow(): void {
    if (!this.#shadowStale || !this.#subjectsMiddle()) return;
    this.#shadowStale = false;
    const casters = [...this.#points.values(), ...this.#leaving.values()];
    for (const p of casters) p.casts(true);
    this.#floor.cast(this.renderer, this.#studio, this.#middle);
    for (const p of casters) p.casts(false);
  }

  #followSubject(dt: number): void {
    this.#step.copy(this.#middle).add(this.#ahead).sub(this.controls.target);
    if (this.#step.lengthSq() < 1e-6) return;
    this.#step.multiplyScalar(1 - 0.5 ** (dt / FOLLOW_HALF));
    this.controls.target.add(this.#step);
    this.camera.position.add(this.#step);
    this.#framedTarget.add(this.#step);
    this.#framedEye.add(this.#step);
    this.dirty = true;
  }

  /** Renders the current view as a PNG. */
  picture(): Promise<Blob> {
    this.#prepare(1);
    this.#castShadow();
    this.renderer.render(this.scene, this.camera); // the drawing buffer is not preserved
    return new Promise((resolve, reject) => {
      this.canvas.toBlob((b) => (b ? resolve(b) : reject(new Error("cannot create an image"))), "image/png");
    });
  }

  /**
   * Column-major matrix from camera coordinates, in mm, to clip space. Used to compare with other
   * renderers.
   */
  projection(camera: number): number[] | undefined {
    const p = this.#points.get(camera);
    if (!p) return undefined;
    this.scene.updateMatrixWorld();
    this.camera.updateMatrixWorld();
    return new Matrix4()
      .multiplyMatrices(this.camera.projectionMatrix, this.camera.matrixWorldInverse)
      .multiply(p.object.matrixWorld)
      .toArray();
  }

  /**
   * Position (metres), view direction and upward direction of the viewer. `place` converts studio space (mm) to metres.
   */
  get hearing(): {
    readonly eye: number[];
    readonly forward: number[];
    readonly up: number[];
    place(position: readonly [number, number, number]): number[];
  } {
    const { xr } = this.renderer;
    const e = (xr.isPresenting ? xr.getCamera() : this.camera).matrixWorld.elements;
    return {
      eye: e.slice(12, 15), up: e.slice(4, 7), forward: e.slice(8, 11).map((v) => -v),
      place: (p) => this.#studio.localToWorld(this.#place.set(...p)).toArray(),
    };
  }

  /** Eye position and orbit target, metres. */
  get view(): { eye: number[]; target: number[] } {
    return { eye: this.camera.position.toArray(), target: this.controls.target.toArray() };
  }

  lookAt(eye: readonly [number, number, number], target: readonly [number, number, number]): void {
    this.#framed = true;
    this.camera.position.copy(this.#place.set(...eye));
    this.controls.target.set(...target);
    this.controls.update();
    this.dirty = true;
  }

  dispose(): void {
    for (const p of [...this.#points.values(), ...this.#leaving.values()]) p.dispose();
    this.#quads.dispose();
    this.#floor.dispose();
    this.sphere?.dispose();
    this.controls.dispose();
    this.renderer.dispose();
  }
}

function xrHeight(layer: XRWebGLLayer | XRProjectionLayer | null | undefined, fallback: number): number {
  if (!layer) return fallback;
  return "framebufferHeight" in layer ? layer.framebufferHeight : layer.textureHeight;
}
