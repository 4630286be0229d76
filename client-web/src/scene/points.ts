import {
  BufferAttribute, BufferGeometry, ExternalTexture, GLSL3, Mesh, RawShaderMaterial, Sphere, Vector3, type WebGLRenderer,
} from "three";
import { formOf, wordsPerPoint } from "../media/points/layout.ts";
import type { CameraTrack, Transform } from "../media/points/track.ts";
import fragmentShader from "./points.frag?raw";
import vertexShader from "./points.vert?raw";
import { allocate, fill } from "./textures.ts";

/** Points per texture row. */
const ROW = 4096;

/** The index buffer shared by all cameras, with two triangles for every four vertices. */
export class Quads {
  #attribute = new BufferAttribute(new Uint32Array(0), 1);

  /** Returns an index buffer for at least this many points. */
  index(points: number): BufferAttribute {
    if (this.#attribute.count < 6 * points) {
      const n = points + (points >> 2);
      const index = new Uint32Array(6 * n);
      for (let k = 0, at = 0, v = 0; k < n; k++, v += 4) {
        index[at++] = v;
        index[at++] = v + 1;
        index[at++] = v + 2;
        index[at++] = v + 2;
        index[at++] = v + 1;
        index[at++] = v + 3;
      }
      this.#attribute = new BufferAttribute(index, 1);
    }
    return this.#attribute;
  }
}

/** Uniforms shared by all cameras. */
export interface SharedUniforms {
  readonly [uniform: string]: { value: unknown };
  /** Height of the canvas, pixels. */
  readonly height: { value: number };
  /** Edge of a point, in units of the distance between neighbouring points. */
  readonly spread: { value: number };
  /** Every stride-th point is drawn; a power of two. */
  readonly stride: { value: number };
}

/**
 * One camera's points. The vertex shader builds quads from gl_VertexID, the words of the newest
 * frame and the camera's ray table. Allocates only when frames grow.
 */
export class CameraPoints {
  readonly object: Mesh<BufferGeometry, RawShaderMaterial>;
  readonly #gl: WebGL2RenderingContext;
  readonly #words = new ExternalTexture();
  readonly #rays = new ExternalTexture();
  #capacity = 0; // rows
  points = 0;
  #pose!: Transform;

  constructor(
    private readonly renderer: WebGLRenderer,
    readonly track: CameraTrack,
    private readonly shared: SharedUniforms,
    private readonly quads: Quads,
  ) {
    this.#gl = renderer.getContext() as WebGL2RenderingContext;
    const material = new RawShaderMaterial({
      glslVersion: GLSL3,
      vertexShader,
      fragmentShader,
      uniforms: {
        ...shared,
        words: { value: this.#words },
        rays: { value: this.#rays },
        hasRays: { value: formOf(track.layout) === "pixels" },
        focal: { value: (track.grid.fx + track.grid.fy) / 2 },
      },
    });
    const geometry = new BufferGeometry();
    geometry.boundingSphere = new Sphere(new Vector3(), Infinity);
    geometry.setDrawRange(0, 0);
    this.object = new Mesh(geometry, material);
    this.object.frustumCulled = false;
    this.object.matrixAutoUpdate = false;
    this.object.visible = false;
    this.setPose(track.pose);
  }

  /** Camera to studio, millimetres. */
  setPose(pose: Transform): void {
    const { r, t } = (this.#pose = pose);
    this.object.matrix.set(
      r[0]!, r[1]!, r[2]!, t[0]!,
      r[3]!, r[4]!, r[5]!, t[1]!,
      r[6]!, r[7]!, r[8]!, t[2]!,
      0, 0, 0, 1,
    );
    this.object.matrixWorldNeedsUpdate = true;
  }

  get pose(): Transform {
    return this.#pose;
  }

  /** X and Y of each pixel's ray, row-major. */
  setRays(table: Float32Array): void {
    const gl = this.#gl;
    const { width, height } = this.track.grid;
    this.#free(this.#rays);
    this.#rays.sourceTexture = allocate(this.renderer, gl.RG32F, width, height, gl.NEAREST);
    gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, width, height, gl.RG, gl.FLOAT, table);
    this.#show();
  }

  /** Uploads a frame in the form of the track's layout. */
  upload(words: Uint32Array, points: number): void {
    const gl = this.#gl;
    const size = wordsPerPoint[formOf(this.track.layout)];
    const three = size === 3;
    const rows = Math.ceil(points / ROW);
    if (rows > this.#capacity) {
      this.#free(this.#words);
      this.#capacity = Math.min(Math.ceil(this.track.maxPoints / ROW), rows + (rows >> 2) + 1);
      this.#words.sourceTexture = allocate(
        this.renderer,
        three ? gl.RGB32UI : gl.RG32UI,
        ROW,
        this.#capacity,
        gl.NEAREST,
      );
    }
    if (points > 0) {
      fill(this.renderer, this.#words.sourceTexture as WebGLTexture);
      const format = three ? gl.RGB_INTEGER : gl.RG_INTEGER;
      const full = Math.floor(points / ROW);
      const rest = points % ROW;
      if (full > 0) gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, ROW, full, format, gl.UNSIGNED_INT, words, 0);
      if (rest > 0)
        gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, full, rest, 1, format, gl.UNSIGNED_INT, words, full * ROW * size);
    }
    this.points = points;
    const index = this.quads.index(points);
    if (this.object.geometry.index !== index) this.object.geometry.setIndex(index);
    this.thin();
    this.#show();
  }

  /** Applies the shared stride to the number of points drawn. */
  thin(): void {
    this.object.geometry.setDrawRange(0, 6 * Math.floor(this.points / this.shared.stride.value));
  }

  #show(): void {
    const rays = formOf(this.track.layout) !== "pixels" || this.#rays.sourceTexture !== null;
    this.object.visible = rays && this.points > 0;
  }

  #free(t: ExternalTexture): void {
    if (t.sourceTexture) this.#gl.deleteTexture(t.sourceTexture as WebGLTexture);
    t.sourceTexture = null;
  }

  dispose(): void {
    this.#free(this.#words);
    this.#free(this.#rays);
    this.object.removeFromParent();
    this.object.geometry.dispose();
    this.object.material.dispose();
  }
}
