import {
  BufferAttribute, BufferGeometry, DoubleSide, ExternalTexture, GLSL3, Mesh, RawShaderMaterial,
  Sphere, Vector3, type WebGLRenderer,
} from "three";
import { formOf, wordsPerPoint } from "../media/points/layout.ts";
import { isMerged, type CameraTrack, type Transform } from "../media/points/track.ts";
import fragmentShader from "./points.frag?raw";
import shadowShader from "./shadow.frag?raw";
import vertexShader from "./points.vert?raw";
import { QuadPrograms, Surface } from "./surface.ts";
import { allocate, fill } from "./textures.ts";

/** Frames with a grid are drawn as a surface or as points; others as points. */
export type Look = "surface" | "points";

/** Points per texture row. */
const ROW = 4096;

/** One in this many points, enlarged, casts the shadow. */
const SHADOW_STRIDE = 16;

/**
 * Keeps the points of every n-th row and column, at a ratio of 1 to `stride`, a power of two. Returns their number.
 */
export function thin(words: Uint32Array, points: number, stride: number): number {
  const columns = 2 ** Math.floor(Math.log2(stride) / 2) - 1;
  const rows = stride / (columns + 1) - 1;
  const mask = columns | (rows << 12);
  let n = 0;
  for (let i = 0; i < 2 * points; i += 2) {
    if (words[i]! & mask) continue;
    words[n++] = words[i]!;
    words[n++] = words[i + 1]!;
  }
  return n / 2;
}

/** What all cameras share: an index buffer with two triangles for every four vertices, and the shaders of surfaces. */
export class Quads {
  #programs: QuadPrograms | undefined;
  #attribute = new BufferAttribute(new Uint32Array(0), 1);

  programs(renderer: WebGLRenderer): QuadPrograms {
    return (this.#programs ??= new QuadPrograms(renderer));
  }

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
  /** One in `stride` points is drawn; a power of two. */
  readonly stride: { value: number };
  /** Whether there is more than one camera. */
  readonly several: { value: boolean };
}

/**
 * One camera's surface or points. The vertex shader builds quads from gl_VertexID, the words of the
 * newest frame and the camera's ray table. Allocates only when frames grow.
 */
export class CameraPoints {
  readonly object: Mesh<BufferGeometry, RawShaderMaterial>;
  readonly #gl: WebGL2RenderingContext;
  readonly #words = new ExternalTexture();
  readonly #rays = new ExternalTexture();
  readonly #spacing = { value: 0 };
  readonly #surface: Surface | undefined;
  readonly #look: RawShaderMaterial;
  readonly #shadow: RawShaderMaterial;
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
    const pixels = formOf(track.layout) === "pixels";
    const { width, height, fx, fy } = track.grid;
    const focal = (fx + fy) / 2;
    if (pixels) this.#surface = new Surface(renderer, quads.programs(renderer), width, height, focal);
    const uniforms = () => ({
      ...shared,
      words: { value: this.#words },
      rays: { value: this.#rays },
      // Unused samplers need a texture of their type, too.
      shape: { value: this.#surface?.shape ?? this.#words },
      paint: { value: this.#surface?.paint ?? this.#words },
      surface: { value: false },
      stride: { value: 1 },
      hasRays: { value: pixels },
      focal: { value: focal },
      spacing: this.#spacing,
    });
    const defines: Record<string, string> = pixels ? {} : { DISCS: "" };
    const form = { glslVersion: GLSL3, side: DoubleSide, vertexShader, defines } as const;
    this.#look = new RawShaderMaterial({ ...form, fragmentShader, uniforms: uniforms() });
    this.#shadow = new RawShaderMaterial({
      ...form, fragmentShader: shadowShader, uniforms: { ...uniforms(), spread: { value: 1 } },
    });
    const geometry = new BufferGeometry();
    geometry.boundingSphere = new Sphere(new Vector3(), Infinity);
    geometry.setDrawRange(0, 0);
    this.object = new Mesh(geometry, this.#look);
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

  /** Distance between neighboring points, mm, for a cloud without a lens. */
  set spacing(mm: number) {
    if (isMerged(this.track)) this.#spacing.value = mm;
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
  upload(words: Uint32Array, points: number, look: Look): void {
    const gl = this.#gl;
    const size = wordsPerPoint[formOf(this.track.layout)];
    const three = size === 3;
    this.points = points;
    this.#thinned = this.#isSurface(look) ? this.shared.stride.value : 1;
    if (this.#thinned > 1) points = thin(words, points, this.#thinned);
    this.#drawn = points;
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
    this.#computed = false;
    const index = this.quads.index(points);
    if (this.object.geometry.index !== index) this.object.geometry.setIndex(index);
    this.#show();
  }

  #isSurface(look: Look): boolean {
    return this.#surface !== undefined && look === "surface";
  }

  /** Prepares the newest frame for drawing in the chosen look. */
  prepare(look: Look): void {
    const { uniforms } = this.#look;
    const surface = this.#isSurface(look);
    const stride = surface ? 1 : Math.max(1, this.shared.stride.value / this.#thinned);
    uniforms["surface"]!.value = surface;
    uniforms["stride"]!.value = stride;
    this.object.geometry.setDrawRange(0, 6 * Math.floor(this.#drawn / stride));
    const several = this.shared.several.value;
    if (!surface || (this.#computed && several === this.#normals) || !this.object.visible) return;
    const [words, rays] = [this.#words.sourceTexture, this.#rays.sourceTexture] as WebGLTexture[];
    this.#surface!.compute(words!, rays!, this.#drawn, several);
    this.#computed = true;
    this.#normals = several;
  }

  /** Draws the shadow that the newest frame casts, from then on, or the frame again. */
  casts(shadow: boolean): void {
    const { uniforms } = this.#shadow;
    const stride = Math.max(1, SHADOW_STRIDE / this.#thinned);
    uniforms["stride"]!.value = stride;
    uniforms["spread"]!.value = this.shared.spread.value * Math.sqrt(this.#thinned);
    this.object.material = shadow ? this.#shadow : this.#look;
    this.#range(shadow ? stride : (this.#look.uniforms["stride"]!.value as number));
  }

  #range(stride: number): void {
    this.object.geometry.setDrawRange(0, 6 * Math.floor(this.#drawn / stride));
  }

  /** Whether the frame's quads are computed, and with normals. */
  #computed = false;
  #normals = false;
  /** Points of the uploaded frame, one in #thinned of the frame's. */
  #drawn = 0;
  #thinned = 1;

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
    this.#surface?.dispose();
    this.object.removeFromParent();
    this.object.geometry.dispose();
    this.#look.dispose();
    this.#shadow.dispose();
  }
}
