/**
 * 360° video around the viewer: a low-resolution base sphere, overlaid with the tiles decoded so
 * far.
 */
import {
  BoxGeometry,
  Euler,
  ExternalTexture,
  GLSL3,
  Group,
  Matrix3,
  Matrix4,
  Mesh,
  RawShaderMaterial,
  BackSide,
  type WebGLRenderer,
} from "three";
import { Grid } from "../media/tiles/sphere.ts";
import type { Sphere } from "../media/tiles/track.ts";
import fragmentShader from "./sphere.frag?raw";
import vertexShader from "./sphere.vert?raw";
import { Slots } from "./slots.ts";
import { allocate, fill } from "./textures.ts";

/** three.js layers of the WebXR cameras. Layer 1 is for the left eye only, layer 2 for the right. */
const LEFT = 1;
const RIGHT = 2;

/** Uniforms shared by both eyes. */
interface Uniforms {
  readonly [uniform: string]: { value: unknown };
}

export class VideoSphere {
  readonly object = new Group();
  /** Rotation from scene to picture coordinates. */
  readonly sceneToPicture = new Matrix3();
  readonly #gl: WebGL2RenderingContext;
  readonly #textures = { base: new ExternalTexture(), atlas: new ExternalTexture(), slots: new ExternalTexture() };
  readonly #shown: Uint8Array;
  readonly #grid: Grid;
  readonly #slots: Slots;
  readonly #eyes: number;
  /** Scales pictures of the base sphere that exceed the GPU's limit; undefined if they fit. */
  readonly #scaled: OffscreenCanvasRenderingContext2D | undefined;
  readonly #geometry = new BoxGeometry(2, 2, 2);
  readonly #materials: RawShaderMaterial[] = [];
  #changed = true;

  constructor(
    private readonly renderer: WebGLRenderer,
    readonly sphere: Sphere,
  ) {
    const gl = (this.#gl = renderer.getContext() as WebGL2RenderingContext);
    this.#eyes = sphere.stereo ? 2 : 1;
    const maxSize = gl.getParameter(gl.MAX_TEXTURE_SIZE) as number;
    const { video } = sphere;
    const scale = Math.min(1, maxSize / video.width, maxSize / video.height);
    const [width, height] = [Math.floor(scale * video.width), Math.floor(scale * video.height)];
    if (scale < 1) this.#scaled = new OffscreenCanvas(width, height).getContext("2d")!;
    const [columns, rows] = [Math.max(1, sphere.columns), Math.max(1, sphere.rows)];
    const g = (this.#grid = new Grid(columns, rows, sphere.width, sphere.height));
    this.#slots = new Slots(g, this.#eyes, maxSize);
    this.#shown = new Uint8Array(g.tiles);
    const texture = (format: number, w: number, h: number, filter: number, repeat = false) =>
      allocate(renderer, format, w, h, filter, repeat);
    this.#textures.base.sourceTexture = texture(gl.RGBA8, width, height, gl.LINEAR, true);
    // Without tiles these are not sampled, but drawing fails if a sampler has no texture of its kind.
    const atlas = this.tiles > 0 ? this.#slots : { columns: 1, rows: 1, width: 1, height: 1 };
    const [atlasWidth, atlasHeight] = [atlas.columns * atlas.width, atlas.rows * atlas.height];
    this.#textures.atlas.sourceTexture = texture(gl.RGBA8, atlasWidth, atlasHeight, gl.LINEAR);
    this.#textures.slots.sourceTexture = texture(gl.R16UI, g.columns, g.rows, gl.NEAREST);
    const degree = Math.PI / 180;
    const turn = new Matrix4().makeRotationFromEuler(
      new Euler(sphere.pitch * degree, -sphere.yaw * degree, sphere.roll * degree, "YXZ"),
    );
    this.sceneToPicture.setFromMatrix4(turn).transpose();
    const shared: Uniforms = {
      base: { value: this.#textures.base },
      atlas: { value: this.#textures.atlas },
      slots: { value: this.#textures.slots },
      atlasColumns: { value: atlas.columns },
      slot: { value: [atlas.width, atlas.height] },
      atlasSize: { value: [atlasWidth, atlasHeight] },
      grid: { value: this.tiles > 0 ? [sphere.columns, sphere.rows] : [0, 0] },
      size: { value: [sphere.width, sphere.height] },
      eyes: { value: this.#eyes },
      sceneToPicture: { value: this.sceneToPicture },
    };
    for (let eye = 0; eye < this.#eyes; eye++) {
      const material = new RawShaderMaterial({
        glslVersion: GLSL3,
        vertexShader,
        fragmentShader,
        side: BackSide,
        depthTest: false,
        depthWrite: false,
        uniforms: { ...shared, eye: { value: eye } },
      });
      this.#materials.push(material);
      const mesh = new Mesh(this.#geometry, material);
      mesh.frustumCulled = false;
      mesh.renderOrder = -1;
      if (sphere.stereo) mesh.layers.set(eye === 0 ? LEFT : RIGHT);
      this.object.add(mesh);
    }
    this.object.visible = false;
  }

  /** Number of tiles that the GPU can show at a time; 0 without tiles. */
  get tiles(): number {
    return this.sphere.columns === 0 ? 0 : this.#slots.count;
  }

  /** Uploads a picture of the base sphere. */
  uploadBase(frame: VideoFrame): void {
    const { width, height } = this.sphere.video;
    if (frame.displayWidth !== width || frame.displayHeight !== height) return; // size differs from the catalog
    this.#scaled?.drawImage(frame, 0, 0, this.#scaled.canvas.width, this.#scaled.canvas.height);
    const gl = fill(this.renderer, this.#textures.base.sourceTexture as WebGLTexture);
    gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, gl.RGBA, gl.UNSIGNED_BYTE, this.#scaled?.canvas ?? frame);
    this.object.visible = true;
  }

  /**
   * Uploads a tile's picture to the atlas. Returns false if shown tiles fill the atlas, or the picture
   * has the wrong size.
   */
  uploadTile(tile: number, frame: VideoFrame): boolean {
    const { width, height } = this.#grid.rect(tile);
    if (frame.displayWidth !== width || frame.displayHeight !== height * this.#eyes) return false;
    const before = this.#slots.of(tile);
    const slot = this.tiles === 0 ? -1 : this.#slots.take(tile, (t) => this.#shown[t] === 1);
    if (slot < 0) return false;
    this.#changed ||= slot !== before;
    const { columns } = this.#slots;
    const [x, y] = [(slot % columns) * this.#slots.width, Math.floor(slot / columns) * this.#slots.height];
    const gl = fill(this.renderer, this.#textures.atlas.sourceTexture as WebGLTexture);
    gl.texSubImage2D(gl.TEXTURE_2D, 0, x, y, gl.RGBA, gl.UNSIGNED_BYTE, frame);
    return true;
  }

  /**
   * Shows a tile if its picture in the atlas is current, otherwise the base sphere in its place.
   */
  show(tile: number, current: boolean): void {
    const shown = Number(current && this.#slots.of(tile) >= 0);
    if (this.#shown[tile] === shown) return;
    this.#shown[tile] = shown;
    this.#changed = true;
  }

  /** True if a tile is shown, false if the base sphere is in its place. */
  shows(tile: number): boolean {
    return this.#shown[tile] === 1;
  }

  /** Call before drawing. */
  update(): void {
    if (!this.#changed) return;
    this.#changed = false;
    const gl = fill(this.renderer, this.#textures.slots.sourceTexture as WebGLTexture);
    const { columns, rows } = this.#grid;
    const slots = Uint16Array.from(this.#shown, (shown, tile) => (shown ? this.#slots.of(tile) + 1 : 0));
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 2);
    gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, columns, rows, gl.RED_INTEGER, gl.UNSIGNED_SHORT, slots);
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 4);
  }

  dispose(): void {
    this.object.removeFromParent();
    this.#geometry.dispose();
    for (const m of this.#materials) m.dispose();
    for (const t of Object.values(this.#textures))
      if (t.sourceTexture) this.#gl.deleteTexture(t.sourceTexture as WebGLTexture);
  }
}
