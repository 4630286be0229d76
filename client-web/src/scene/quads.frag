precision highp float;
precision highp int;
precision highp usampler2D;
precision highp sampler2D;

// Computes the quad of each point (docs/spec/surface.md).
uniform usampler2D words; // 4096 points per row, like the targets
uniform usampler2D grid; // the words by pixel, with BORDER pixels around
uniform sampler2D rays;
uniform float focal; // pixels
uniform bool several; // with one camera, normals are unused

// Depth of the corners, two per word, in mm; pixel (12 bits each);
// distances to the next readings (4 × 3 bits), inside in quarters (4 bits) and normal (2 × 8 bits).
layout(location = 0) out uvec4 shape;
// R G B of each corner.
layout(location = 1) out uvec4 paint;

const int BORDER = 4;
const int REACH = 4;
const int SPAN = 3;
const float STEEPEST = 6.0;

uvec2 at(ivec2 pixel) {
  return texelFetch(grid, pixel + BORDER, 0).xy;
}

float depthOf(uvec2 w) {
  return float(w.y & 0xffffu);
}

vec3 colorOf(uvec2 w) {
  return vec3(uvec3(w.x >> 24, (w.y >> 16) & 255u, w.y >> 24));
}

bool joined(float a, float b, int d) {
  return b != 0.0 && abs(a - b) <= STEEPEST / focal * min(a, b) * float(d);
}

struct Next {
  int d;
  bool joined;
  uvec2 w;
};

// The next reading in one direction.
Next next(ivec2 pixel, ivec2 step, float z) {
  for (int d = 1; d <= REACH; d++) {
    uvec2 w = at(pixel + d * step);
    if ((w.y & 0xffffu) != 0u) return Next(d, joined(z, depthOf(w), d), w);
  }
  return Next(1, false, uvec2(0));
}

void corner(ivec2 pixel, uvec2 own, Next x, Next y, ivec2 side, out uint depth, out uint color) {
  float n = 1.0;
  float z = depthOf(own);
  vec3 rgb = colorOf(own);
  if (x.joined) {
    n += 1.0;
    z += depthOf(x.w);
    rgb += colorOf(x.w);
  }
  if (y.joined) {
    n += 1.0;
    z += depthOf(y.w);
    rgb += colorOf(y.w);
  }
  if (x.joined && y.joined) {
    uvec2 far = at(pixel + side * ivec2(x.d, y.d));
    if (joined(depthOf(x.w), depthOf(far), y.d) && joined(depthOf(y.w), depthOf(far), x.d)) {
      n += 1.0;
      z += depthOf(far);
      rgb += colorOf(far);
    }
  }
  depth = uint(z / n + 0.5);
  uvec3 c = uvec3(rgb / n + 0.5);
  color = c.x | c.y << 8 | c.z << 16;
}

// Change of depth per pixel, from readings up to SPAN pixels away. Counts those at SPAN pixels.
float slope(ivec2 pixel, ivec2 step, float z, inout uint inside) {
  vec2 ends = vec2(z);
  ivec2 reached = ivec2(0);
  for (int i = 0; i < 2; i++) {
    for (int d = SPAN; d > 0; d--) {
      float q = depthOf(at(pixel + (i == 0 ? -d : d) * step));
      if (!joined(z, q, d)) continue;
      ends[i] = q;
      reached[i] = d;
      inside += uint(d == SPAN);
      break;
    }
  }
  int apart = reached.x + reached.y;
  return apart == 0 ? 0.0 : (ends.y - ends.x) / float(apart);
}

// Octahedral encoding of a unit vector, 8 bits per coordinate (Meyer et al., 2010).
uint octahedral(vec3 n) {
  n /= abs(n.x) + abs(n.y) + abs(n.z);
  vec2 o = n.z >= 0.0 ? n.xy : (1.0 - abs(n.yx)) * vec2(n.x < 0.0 ? -1.0 : 1.0, n.y < 0.0 ? -1.0 : 1.0);
  uvec2 q = uvec2(o * 127.0 + 127.5);
  return q.x | q.y << 8;
}

void main() {
  ivec2 place = ivec2(gl_FragCoord.xy);
  uvec2 own = texelFetch(words, place, 0).xy;
  ivec2 pixel = ivec2(own.x & 0xfffu, (own.x >> 12) & 0xfffu);
  float z = depthOf(own);
  Next left = next(pixel, ivec2(-1, 0), z);
  Next right = next(pixel, ivec2(1, 0), z);
  Next up = next(pixel, ivec2(0, -1), z);
  Next down = next(pixel, ivec2(0, 1), z);
  uvec4 depth;
  corner(pixel, own, left, up, ivec2(-1, -1), depth.x, paint.x);
  corner(pixel, own, right, up, ivec2(1, -1), depth.y, paint.y);
  corner(pixel, own, left, down, ivec2(-1, 1), depth.z, paint.z);
  corner(pixel, own, right, down, ivec2(1, 1), depth.w, paint.w);

  uint facing = 0u;
  if (several) {
    vec2 ray = texelFetch(rays, pixel, 0).xy;
    float across = z / focal;
    uint inside = 0u;
    float gx = slope(pixel, ivec2(1, 0), z, inside);
    float gy = slope(pixel, ivec2(0, 1), z, inside);
    // Points to the sensor.
    vec3 normal = normalize(cross(vec3(ray.x * gy, across + ray.y * gy, gy), vec3(across + ray.x * gx, ray.y * gx, gx)));
    facing = inside | octahedral(normal) << 4;
  }
  shape = uvec4(
    depth.x | depth.y << 16,
    depth.z | depth.w << 16,
    own.x & 0xffffffu,
    uint(left.d) | uint(right.d) << 3 | uint(up.d) << 6 | uint(down.d) << 9 | facing << 12
  );
}
