precision highp float;
precision highp int;
precision highp sampler2D;
precision highp usampler2D;

// The frame's words (media/points/kernel/planes.ts), 4096 points per row.
uniform usampler2D words;
// Surfaces: the quads of the points (quads.frag).
uniform usampler2D shape;
uniform usampler2D paint;
// X and Y of every pixel's ray at z = 1.
uniform sampler2D rays;
uniform bool hasRays;
// Focal length in pixels: neighboring points are z / focal apart.
uniform float focal;
// Distance between neighboring points in mm, if it isn't 0.
uniform float spacing;
uniform float spread;
uniform float height;
// Draw every stride-th point, enlarged, on a GPU too slow for all.
uniform uint stride;
// Draw surfaces (docs/spec/surface.md) instead of squares.
uniform bool surface;
// Where the surfaces of several cameras coincide, draw the better one nearer.
uniform bool several;
uniform mat4 modelViewMatrix;
uniform mat4 projectionMatrix;

out vec3 color;
#ifdef DISCS
out vec2 place; // from the middle of the disc, whose radius is 1
#endif

const float NEARER = 20.0; // millimetres
const vec4 NOWHERE = vec4(2.0, 2.0, 2.0, 1.0);

// Mean of the rays around a place between pixels, in units of half a pixel.
vec2 rayAt(ivec2 halves) {
  ivec2 end = textureSize(rays, 0) - 1;
  ivec2 from = clamp(halves >> 1, ivec2(0), end);
  ivec2 to = clamp((halves + 1) >> 1, ivec2(0), end);
  vec2 sum = texelFetch(rays, from, 0).xy + texelFetch(rays, to, 0).xy;
  sum += texelFetch(rays, ivec2(from.x, to.y), 0).xy + texelFetch(rays, ivec2(to.x, from.y), 0).xy;
  return 0.25 * sum;
}

vec3 normalOf(uint octahedral) {
  vec2 o = vec2(uvec2(octahedral & 255u, octahedral >> 8)) / 127.0 - 1.0;
  vec3 n = vec3(o, 1.0 - abs(o.x) - abs(o.y));
  float fold = max(-n.z, 0.0);
  n.xy -= vec2(n.x < 0.0 ? -fold : fold, n.y < 0.0 ? -fold : fold);
  return normalize(n);
}

// How much nearer a quad is drawn, in units of NEARER; negative if it faces away. p is in camera space.
float weight(vec3 p, vec3 normal, float inside) {
  mat3 m = mat3(modelViewMatrix); // a rotation times a scale
  vec3 eye = -(transpose(m) * modelViewMatrix[3].xyz) / dot(m[0], m[0]);
  vec3 toSensor = normalize(-p);
  vec3 toEye = normalize(eye - p);
  if (dot(normal, toEye) <= 0.0) return -1.0;
  float facing = max(dot(normal, toSensor), 0.0);
  float similar = max(dot(toSensor, toEye), 0.0);
  float s2 = similar * similar;
  return facing * facing * s2 * s2 * s2 * s2 * inside * inside * inside * inside;
}

vec4 corner(int k, int c) {
  ivec2 place = ivec2(k & 4095, k >> 12);
  uvec4 s = texelFetch(shape, place, 0);
  uint rgb = texelFetch(paint, place, 0)[c];
  color = vec3(uvec3(rgb & 255u, (rgb >> 8) & 255u, rgb >> 16)) / 255.0;
  ivec2 pixel = ivec2(s.z & 0xfffu, s.z >> 12);
  // Distances to the next readings: left, right, up, down.
  int dx = (c & 1) == 0 ? -int(s.w & 7u) : int((s.w >> 3) & 7u);
  int dy = (c & 2) == 0 ? -int((s.w >> 6) & 7u) : int((s.w >> 9) & 7u);
  float z = float(((c & 2) == 0 ? s.x : s.y) >> (16 * (c & 1)) & 0xffffu);
  vec2 ray = rayAt(2 * pixel + ivec2(dx, dy));
  if (!(ray.x == ray.x)) return NOWHERE;
  vec4 view = modelViewMatrix * vec4(ray * z, z, 1.0);
  if (several) {
    vec2 own = texelFetch(rays, pixel, 0).xy;
    // The mean depth of the corners replaces the pixel's own.
    float depth = 0.25 * float((s.x & 0xffffu) + (s.x >> 16) + (s.y & 0xffffu) + (s.y >> 16));
    float w = weight(vec3(own * depth, depth), normalOf(s.w >> 16), float((s.w >> 12) & 15u) / 4.0);
    if (w < 0.0) return NOWHERE;
    view.xyz -= normalize(view.xyz) * w * NEARER * length(modelViewMatrix[0].xyz);
  }
  return projectionMatrix * view;
}

void main() {
  // Four vertices per point; the index buffer makes two triangles from them.
  uint point = uint(gl_VertexID >> 2);
  if (surface) {
    gl_Position = corner(int(point), gl_VertexID & 3);
    return;
  }
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
    gl_Position = NOWHERE;
    return;
  }
  color = vec3(rgb) / 255.0;
  vec4 view = modelViewMatrix * vec4(p, 1.0);
  vec2 side = vec2(float(gl_VertexID & 1), float((gl_VertexID >> 1) & 1)) * 2.0 - 1.0;
  float scale = length(modelViewMatrix[0].xyz);
  float edge = spread * sqrt(float(stride)) * (spacing > 0.0 ? spacing : abs(p.z) / focal) * scale;
  // At least one pixel wide, or distant points would flicker.
  float minEdge = 2.0 * -view.z / (projectionMatrix[1][1] * height);
#ifdef DISCS
  place = edge > 3.0 * minEdge ? side : vec2(0.0); // fill small squares
#endif
  view.xy += side * 0.5 * max(edge, minEdge);
  gl_Position = projectionMatrix * view;
}
