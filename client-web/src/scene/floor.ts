import {
  CustomBlending, DoubleSide, GLSL3, GridHelper, Group, LinearFilter, LinearMipmapLinearFilter, Matrix4, Mesh,
  OneFactor, OneMinusSrcAlphaFactor, OrthographicCamera, PlaneGeometry, RawShaderMaterial, Color, Vector3,
  WebGLRenderTarget, type Object3D, type WebGLRenderer,
} from "three";
import floorFragment from "./floor.frag?raw";
import floorVertex from "./floor.vert?raw";

export type Theme = "dark" | "light";

interface Colors {
  readonly background: number;
  readonly floor: number;
  /** Lines of the grid. */
  readonly strong: number;
  readonly weak: number;
  readonly darkness: number;
}

const COLORS: Readonly<Record<Theme, Colors>> = {
  dark: { background: 0x14161c, floor: 0x272b35, strong: 0x4a5060, weak: 0x343945, darkness: 0.75 },
  light: { background: 0xeef0f4, floor: 0xffffff, strong: 0x9aa3b2, weak: 0xc9ced8, darkness: 0.45 },
};

/** Radius of the floor, and half the edge of the square around the subject that may hold its shadow, metres. */
const RADIUS = 4;
const REACH = 1.5;
/** Heights that cast the shadow, metres above the floor. Lower points belong to the floor. */
const LOWEST = 0.04;
const HIGHEST = 0.8;
/** Depth of the drawn floor below the measured one, metres: a captured floor hides it. */
const BELOW = 0.02;
/** Edge of the shadow's texture, pixels. */
const SIZE = 128;

/** The floor under the subject, with a grid and the subject's contact shadow. */
export class Floor {
  readonly object = new Group();
  readonly #target = new WebGLRenderTarget(SIZE, SIZE, {
    minFilter: LinearMipmapLinearFilter, magFilter: LinearFilter, generateMipmaps: true,
  });
  /** Below the floor, looking up. */
  readonly #light = new OrthographicCamera(-REACH, REACH, REACH, -REACH, LOWEST, HIGHEST);
  readonly #material = new RawShaderMaterial({
    glslVersion: GLSL3,
    vertexShader: floorVertex,
    fragmentShader: floorFragment,
    uniforms: {
      shadow: { value: this.#target.texture },
      tint: { value: new Color() },
      darkness: { value: 0 },
      solid: { value: 1 },
      light: { value: new Matrix4() },
    },
    side: DoubleSide,
    transparent: true,
    depthWrite: false,
    blending: CustomBlending,
    blendSrc: OneFactor,
    blendDst: OneMinusSrcAlphaFactor,
  });
  readonly #plane = new Mesh(new PlaneGeometry(2, 2), this.#material);
  #grid: GridHelper | undefined;
  #shown = true;
  #alone = false;

  constructor() {
    this.object.name = "floor";
    this.#light.up.set(0, 0, 1);
    this.#plane.rotation.x = -Math.PI / 2;
    this.#plane.position.y = -BELOW;
    this.#plane.scale.setScalar(RADIUS);
    this.#plane.renderOrder = -1;
    this.object.add(this.#plane);
  }

  /** Sets the colors, and returns the background's. */
  setTheme(theme: Theme): Color {
    const c = COLORS[theme];
    this.#grid?.removeFromParent();
    this.#grid?.dispose();
    this.#grid = new GridHelper(2 * RADIUS, 4 * RADIUS, c.strong, c.weak);
    this.object.add(this.#grid);
    const { tint, darkness } = this.#material.uniforms;
    (tint!.value as Color).setHex(c.floor).convertLinearToSRGB();
    darkness!.value = c.darkness;
    this.#show();
    return new Color(c.background);
  }

  /** Shows the floor and its grid, the shadow alone, or nothing. */
  show(floor: boolean, shadow: boolean): void {
    [this.#shown, this.#alone] = [floor || shadow, !floor];
    this.#show();
  }

  #show(): void {
    this.object.visible = this.#shown;
    this.#material.uniforms["solid"]!.value = this.#alone ? 0 : 1;
    if (this.#grid) this.#grid.visible = !this.#alone;
  }

  /** Draws the shadow of a subject, whose center is given in the scene, as the objects under `caster` cast it. */
  cast(renderer: WebGLRenderer, caster: Object3D, center: Vector3): void {
    if (!this.#shown) return;
    const { y } = this.object.getWorldPosition(this.#light.position);
    this.#light.position.set(center.x, y, center.z);
    this.#light.lookAt(center.x, y + 1, center.z);
    this.#light.updateMatrixWorld();
    const light = this.#material.uniforms["light"]!.value as Matrix4;
    light.multiplyMatrices(this.#light.projectionMatrix, this.#light.matrixWorldInverse);
    const { xr, autoClear } = renderer;
    const [target, enabled] = [renderer.getRenderTarget(), xr.enabled];
    xr.enabled = false;
    renderer.autoClear = true;
    renderer.setRenderTarget(this.#target);
    renderer.render(caster, this.#light);
    renderer.setRenderTarget(target);
    renderer.autoClear = autoClear;
    xr.enabled = enabled;
  }

  dispose(): void {
    this.#target.dispose();
    this.#material.dispose();
    this.#plane.geometry.dispose();
    this.#grid?.dispose();
  }
}
