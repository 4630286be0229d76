precision highp float;
precision highp int;
precision highp sampler2D;
precision highp usampler2D;

// The frame's words (media/points/kernel/planes.ts), 4096 points per row.
uniform usampler2D words;
// X and Y of every pixel's ray at z = 1.
uniform sampler2D rays;
uniform bool hasRays;
// Focal length in pixels: neighbouring points are z / focal apart.
uniform float focal;
uniform float spread;
uniform float height;
// Draw every stride-th point, enlarged, on a GPU too slow for all.
uniform uint stride;
uniform mat4 modelViewMatrix;
uniform mat4 projectionMatrix;

out vec3 color;

void main() {
  // Four vertices per point; the index buffer makes two triangles from them.
  uint point = uint(gl_VertexID >> 2);
  // Pick one of `stride` points pseudo-randomly: a fixed choice would show as columns.
  int k = int(point * stride + (((point * 2654435769u) >> 16) & (stride - 1u)));
  uvec4 w = texelFetch(words, ivec2(k & 4095, k >> 12), 0);
  vec3 p;
  uvec3 rgb;
  if (hasRays) {
    ivec2 pixel = ivec2(w.x & 0xfffu, (w.x >> 12) & 0xfffu);
    float z = float(w.y & 0xffffu);
    p = vec3(texelFetch(rays, pixel, 0).xy * z, z);
    rgb = uvec3(w.x >> 24, (w.y >> 16) & 255u, w.y >> 24);
  } else {
    ivec3 c = ivec3(int(w.x) << 16, int(w.x), int(w.y) << 16) >> 16;
    p = vec3(c);
    rgb = uvec3((w.y >> 16) & 255u, w.y >> 24, w.z & 255u);
  }
  // NaN: the pixel has no ray. Clip it.
  if (!(p.x == p.x)) {
    gl_Position = vec4(2.0, 2.0, 2.0, 1.0);
    return;
  }
  color = vec3(rgb) / 255.0;
  vec4 view = modelViewMatrix * vec4(p, 1.0);
  vec2 side = vec2(float(gl_VertexID & 1), float((gl_VertexID >> 1) & 1)) * 2.0 - 1.0;
  float scale = length(modelViewMatrix[0].xyz);
  float edge = spread * sqrt(float(stride)) * abs(p.z) / focal * scale;
  // At least one pixel wide, or distant points would flicker.
  float minEdge = 2.0 * -view.z / (projectionMatrix[1][1] * height);
  view.xy += side * 0.5 * max(edge, minEdge);
  gl_Position = projectionMatrix * view;
}
