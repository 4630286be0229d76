import { ExternalTexture, type WebGLRenderer } from "three";
import gridFragment from "./grid.frag?raw";
import gridVertex from "./grid.vert?raw";
import quadsFragment from "./quads.frag?raw";
import quadsVertex from "./quads.vert?raw";
import { allocate, shade } from "./textures.ts";

/** Pixels without a point around the grid, as in the shaders. */
const BORDER = 4;
/** Points per texture row. */
const ROW = 4096;

/** The shaders that compute quads, shared by all cameras. */
export class QuadPrograms {
  readonly scatter: WebGLProgram;
  readonly quads: WebGLProgram;
  readonly size: WebGLUniformLocation | null;
  readonly focal: WebGLUniformLocation | null;
  readonly several: WebGLUniformLocation | null;

  constructor(renderer: WebGLRenderer) {
    const gl = renderer.getContext() as WebGL2RenderingContext;
    this.scatter = shade(gl, gridVertex, gridFragment);
    this.quads = shade(gl, quadsVertex, quadsFragment);
    this.size = gl.getUniformLocation(this.scatter, "size");
    this.focal = gl.getUniformLocation(this.quads, "focal");
    this.several = gl.getUniformLocation(this.quads, "several");
    renderer.resetState();
    gl.useProgram(this.quads);
    for (const [unit, name] of ["words", "grid", "rays"].entries())
      gl.uniform1i(gl.getUniformLocation(this.quads, name), unit);
    renderer.resetState();
  }
}

/**
 * The quads of a frame's points as a surface (docs/spec/surface.md), computed by the GPU once per frame. Works outside
 * three.js, and leaves it in its default state.
 */
export class Surface {
  /** Per point, as points.vert reads them. */
  readonly shape = new ExternalTexture();
  readonly paint = new ExternalTexture();
  readonly #gl: WebGL2RenderingContext;
  readonly #gridTarget: WebGLFramebuffer;
  readonly #quadTarget: WebGLFramebuffer;
  readonly #grid: WebGLTexture;
  readonly #width: number;
  readonly #height: number;
  #rows = 0;

  /** `width` and `height` are the grid's, in pixels; `focal` is its focal length. */
  constructor(
    private readonly renderer: WebGLRenderer,
    private readonly programs: QuadPrograms,
    width: number,
    height: number,
    private readonly focal: number,
  ) {
    const gl = (this.#gl = renderer.getContext() as WebGL2RenderingContext);
    [this.#width, this.#height] = [width + 2 * BORDER, height + 2 * BORDER];
    this.#grid = allocate(renderer, gl.RG32UI, this.#width, this.#height, gl.NEAREST);
    this.#gridTarget = gl.createFramebuffer();
    this.#quadTarget = gl.createFramebuffer();
    this.#run(() => {
      gl.bindFramebuffer(gl.FRAMEBUFFER, this.#gridTarget);
      gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, this.#grid, 0);
    });
  }

  /** Computes the quads of the points in a texture of words, with normals if there are `several` cameras. */
  compute(words: WebGLTexture, rays: WebGLTexture, points: number, several: boolean): void {
    const gl = this.#gl;
    const rows = Math.ceil(points / ROW);
    if (rows > this.#rows) this.#grow(rows);
    this.#run(() => {
      for (const [unit, texture] of [words, this.#grid, rays].entries()) {
        gl.activeTexture(gl.TEXTURE0 + unit);
        gl.bindTexture(gl.TEXTURE_2D, unit === 1 ? null : texture); // the grid is the first pass's target
      }
      gl.bindFramebuffer(gl.FRAMEBUFFER, this.#gridTarget);
      gl.viewport(0, 0, this.#width, this.#height);
      gl.clearBufferuiv(gl.COLOR, 0, [0, 0, 0, 0]);
      gl.useProgram(this.programs.scatter);
      gl.uniform2f(this.programs.size, this.#width, this.#height);
      gl.drawArrays(gl.POINTS, 0, points);

      gl.bindFramebuffer(gl.FRAMEBUFFER, this.#quadTarget);
      gl.activeTexture(gl.TEXTURE1);
      gl.bindTexture(gl.TEXTURE_2D, this.#grid);
      gl.viewport(0, 0, ROW, rows);
      gl.useProgram(this.programs.quads);
      gl.uniform1f(this.programs.focal, this.focal);
      gl.uniform1i(this.programs.several, several ? 1 : 0);
      gl.drawArrays(gl.TRIANGLES, 0, 3);
    });
  }

  #grow(rows: number): void {
    const gl = this.#gl;
    this.#rows = rows + (rows >> 2) + 1;
    const textures = [this.shape, this.paint];
    for (const t of textures) {
      if (t.sourceTexture) gl.deleteTexture(t.sourceTexture as WebGLTexture);
      t.sourceTexture = allocate(this.renderer, gl.RGBA32UI, ROW, this.#rows, gl.NEAREST);
    }
    this.#run(() => {
      gl.bindFramebuffer(gl.FRAMEBUFFER, this.#quadTarget);
      const attachments = textures.map((t, i) => {
        const { sourceTexture } = t as { sourceTexture: WebGLTexture };
        gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0 + i, gl.TEXTURE_2D, sourceTexture, 0);
        return gl.COLOR_ATTACHMENT0 + i;
      });
      gl.drawBuffers(attachments);
    });
  }

  #run(commands: () => void): void {
    this.renderer.resetState();
    commands();
    this.renderer.resetState();
    this.renderer.setRenderTarget(this.renderer.getRenderTarget());
  }

  dispose(): void {
    const gl = this.#gl;
    for (const f of [this.#gridTarget, this.#quadTarget]) gl.deleteFramebuffer(f);
    gl.deleteTexture(this.#grid);
    for (const t of [this.shape, this.paint]) {
      if (t.sourceTexture) gl.deleteTexture(t.sourceTexture as WebGLTexture);
      t.sourceTexture = null;
    }
  }
}
