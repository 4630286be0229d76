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
import { allocate, fill } from "./textures.ts";

/** three.js layers of the WebXR cameras: 1 for the left eye only, 2 for the right. */
const LEFT = 1;
const RIGHT = 2;

/** Uniforms shared by both eyes. */
interface Uniforms {
  readonly [uniform: string]: { value: unknown };
}

export class VideoSphere {
  readonly object = new Group();
  /** False if the tile atlas exceeds MAX_TEXTURE_SIZE. */
  readonly tiled: boolean;
  /** Rotation from scene to picture coordinates. */
  readonly sceneToPicture = new Matrix3();
  readonly #gl: WebGL2RenderingContext;
  readonly #textures = { base: new ExternalTexture(), atlas: new ExternalTexture(), decoded: new ExternalTexture() };
  readonly #decoded: Uint8Array;
  readonly #grid: Grid;
  readonly #eyes: number;
  readonly #geometry = new BoxGeometry(2, 2, 2);
  readonly #materials: RawShaderMaterial[] = [];
  #changed = false;

  constructor(
    private readonly renderer: WebGLRenderer,
    readonly sphere: Sphere,
  ) {
    const gl = (this.#gl = renderer.getContext() as WebGL2RenderingContext);
    this.#eyes = sphere.stereo ? 2 : 1;
    const maxSize = gl.getParameter(gl.MAX_TEXTURE_SIZE) as number;
    this.tiled = sphere.columns > 0 && sphere.width <= maxSize && sphere.height * this.#eyes <= maxSize;
    this.#grid = new Grid(Math.max(1, sphere.columns), Math.max(1, sphere.rows), sphere.width, sphere.height);
    this.#decoded = new Uint8Array(this.#grid.tiles);
    const { video } = sphere;
    this.#textures.base.sourceTexture = allocate(renderer, gl.RGBA8, video.width, video.height, gl.LINEAR, true);
    if (this.tiled) this.#makeAtlas();
    const degree = Math.PI / 180;
    const turn = new Matrix4().makeRotationFromEuler(
      new Euler(sphere.pitch * degree, -sphere.yaw * degree, sphere.roll * degree, "YXZ"),
    );
    this.sceneToPicture.setFromMatrix4(turn).transpose();
    const shared: Uniforms = {
      base: { value: this.#textures.base },
      atlas: { value: this.#textures.atlas },
      decoded: { value: this.#textures.decoded },
      grid: { value: this.tiled ? [sphere.columns, sphere.rows] : [0, 0] },
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

  #makeAtlas(): void {
    const gl = this.#gl;
    const g = this.#grid;
    this.#textures.atlas.sourceTexture = allocate(this.renderer, gl.RGBA8, g.width, g.height * this.#eyes, gl.LINEAR);
    this.#textures.decoded.sourceTexture = allocate(this.renderer, gl.R8UI, g.columns, g.rows, gl.NEAREST);
    this.#changed = true;
  }

  /** Uploads a picture of the base sphere. */
  uploadBase(frame: VideoFrame): void {
    const { width, height } = this.sphere.video;
    if (frame.displayWidth !== width || frame.displayHeight !== height) return; // size differs from the catalog
    const gl = fill(this.renderer, this.#textures.base.sourceTexture as WebGLTexture);
    gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, gl.RGBA, gl.UNSIGNED_BYTE, frame);
    this.object.visible = true;
  }

  /** Uploads a tile's picture to the atlas. */
  uploadTile(tile: number, frame: VideoFrame): void {
    if (!this.tiled) return;
    const { x, y, width, height } = this.#grid.rect(tile);
    if (frame.displayWidth !== width || frame.displayHeight !== height * this.#eyes) return;
    const gl = fill(this.renderer, this.#textures.atlas.sourceTexture as WebGLTexture);
    gl.texSubImage2D(gl.TEXTURE_2D, 0, x, y * this.#eyes, gl.RGBA, gl.UNSIGNED_BYTE, frame);
  }

  /**
   * Shows a tile if its picture in the atlas is current, otherwise the base sphere in its place.
   */
  show(tile: number, decoded: boolean): void {
    if (this.#decoded[tile] === Number(decoded)) return;
    this.#decoded[tile] = Number(decoded);
    this.#changed = true;
  }

  /** Call before drawing. */
  update(): void {
    if (!this.tiled || !this.#changed) return;
    this.#changed = false;
    const gl = fill(this.renderer, this.#textures.decoded.sourceTexture as WebGLTexture);
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
    gl.texSubImage2D(
      gl.TEXTURE_2D,
      0,
      0,
      0,
      this.#grid.columns,
      this.#grid.rows,
      gl.RED_INTEGER,
      gl.UNSIGNED_BYTE,
      this.#decoded,
    );
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
