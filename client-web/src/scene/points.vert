precision highp float;
precision highp int;
precision highp sampler2D;
precision highp usampler2D;

// Words of the frame (media/points/kernel/planes.ts), 4096 points a row.
uniform usampler2D words;
// X and Y of each pixel's ray at z = 1.
uniform sampler2D rays;
uniform bool hasRays;
// Pixels a unit of X/Z has: neighbouring points are z / focal apart.
uniform float focal;
uniform float spread;
uniform float height;
// Every stride-th point is drawn, enlarged, where the GPU is too slow for all.
uniform uint stride;
uniform mat4 modelViewMatrix;
uniform mat4 projectionMatrix;

out vec3 color;

void main() {
  // Four vertices a point; the index buffer makes two triangles of them.
  uint point = uint(gl_VertexID >> 2);
  // One point of each `stride`, pseudo-randomly: a fixed one would show as columns.
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
  // A pixel without a ray has no place.
  if (!(p.x == p.x)) {
    gl_Position = vec4(2.0, 2.0, 2.0, 1.0);
    return;
  }
  color = vec3(rgb) / 255.0;
  vec4 view = modelViewMatrix * vec4(p, 1.0);
  vec2 side = vec2(float(gl_VertexID & 1), float((gl_VertexID >> 1) & 1)) * 2.0 - 1.0;
  float scale = length(modelViewMatrix[0].xyz);
  float edge = spread * sqrt(float(stride)) * abs(p.z) / focal * scale;
  // At least a pixel wide, or far points would flicker.
  float least = 2.0 * -view.z / (projectionMatrix[1][1] * height);
  view.xy += side * 0.5 * max(edge, least);
  gl_Position = projectionMatrix * view;
}
