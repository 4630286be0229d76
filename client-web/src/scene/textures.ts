/** Textures uploaded with WebGL directly, bypassing three.js. */
import type { WebGLRenderer } from "three";

/** Renderer state that three.js caches; changing textures must go through it. */
interface State {
  activeTexture(slot: number): void;
  bindTexture(target: number, texture: WebGLTexture | null): void;
  pixelStorei(name: number, value: number | boolean): void;
}

/** Binds a texture for an upload of unmodified pixels. */
export function fill(renderer: WebGLRenderer, texture: WebGLTexture): WebGL2RenderingContext {
  const gl = renderer.getContext() as WebGL2RenderingContext;
  const state = renderer.state as unknown as State;
  state.pixelStorei(gl.UNPACK_FLIP_Y_WEBGL, false);
  state.pixelStorei(gl.UNPACK_PREMULTIPLY_ALPHA_WEBGL, false);
  state.pixelStorei(gl.UNPACK_ALIGNMENT, 4);
  state.pixelStorei(gl.UNPACK_ROW_LENGTH, 0);
  state.pixelStorei(gl.UNPACK_SKIP_PIXELS, 0);
  state.pixelStorei(gl.UNPACK_SKIP_ROWS, 0);
  state.activeTexture(gl.TEXTURE0);
  state.bindTexture(gl.TEXTURE_2D, texture);
  return gl;
}

/**
 * Creates a texture and leaves it bound. `filter` applies to minification and magnification. The
 * texture is clamped to the edge, or optionally repeats in x.
 */
export function allocate(
  renderer: WebGLRenderer,
  internal: number,
  width: number,
  height: number,
  filter: number,
  repeat = false,
): WebGLTexture {
  const gl = renderer.getContext() as WebGL2RenderingContext;
  const texture = gl.createTexture();
  if (!texture) throw new Error("WebGL cannot create a texture: its context was lost");
  fill(renderer, texture);
  gl.texStorage2D(gl.TEXTURE_2D, 1, internal, width, height);
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, filter);
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, filter);
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_WRAP_S, repeat ? gl.REPEAT : gl.CLAMP_TO_EDGE);
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_WRAP_T, gl.CLAMP_TO_EDGE);
  return texture;
}

/** Compiles a program. It throws the compiler's message for a shader with an error. */
export function shade(gl: WebGL2RenderingContext, vertex: string, fragment: string): WebGLProgram {
  const program = gl.createProgram();
  for (const [type, source] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]] as const) {
    const shader = gl.createShader(type);
    if (!shader) break; // context lost
    gl.shaderSource(shader, `#version 300 es\n${source}`);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
    gl.deleteShader(shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost())
    throw new Error(`shader: ${gl.getProgramInfoLog(program)}`);
  return program;
}
