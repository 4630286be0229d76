precision highp float;
precision highp int;
precision highp sampler2D;
precision highp usampler2D;

in vec3 direction;
out vec4 fragment;

// The whole sphere at low resolution: in stereo the left eye's above the right one's.
uniform sampler2D whole;
// All tiles' pictures: of a tile at (x, y) of one eye's picture at (x, eyes·y), the left eye's above the right one's.
uniform sampler2D atlas;
// Edges of the tiles' columns, then those of their rows, pixels of one eye's picture.
uniform usampler2D edges;
// For each tile whether its picture is that of now.
uniform usampler2D there;
uniform ivec2 grid; // columns and rows; 0 without tiles
uniform vec2 size; // of one eye's picture, pixels
uniform int eye;
uniform int eyes;
uniform mat3 turned; // from the scene's directions to the picture's

const float PI = 3.14159265358979;

uint edge(int i, int row) {
  return texelFetch(edges, ivec2(i, row), 0).x;
}

int place(float at, int n, float pixels, int row) {
  int i = clamp(int(at * float(n)), 0, n - 1);
  float px = at * pixels;
  if (i > 0 && px < float(edge(i, row))) return i - 1;
  if (i < n - 1 && px >= float(edge(i + 1, row))) return i + 1;
  return i;
}

void main() {
  vec3 d = normalize(turned * direction);
  vec2 at = vec2(fract(atan(d.x, -d.z) / (2.0 * PI) + 0.5), 0.5 - asin(clamp(d.y, -1.0, 1.0)) / PI);
  if (grid.x > 0) {
    ivec2 tile = ivec2(place(at.x, grid.x, size.x, 0), place(at.y, grid.y, size.y, 1));
    if (texelFetch(there, tile, 0).x > 0u) {
      vec2 from = vec2(float(edge(tile.x, 0)), float(edge(tile.y, 1)));
      vec2 to = vec2(float(edge(tile.x + 1, 0)), float(edge(tile.y + 1, 1)));
      // Nothing of other tiles.
      vec2 px = clamp(at * size, from + 0.5, to - 0.5);
      px.y += float(eyes - 1) * from.y + float(eye) * (to.y - from.y);
      fragment = vec4(texture(atlas, px / (size * vec2(1.0, float(eyes)))).rgb, 1.0);
      return;
    }
  }
  vec2 texel = 0.5 / vec2(textureSize(whole, 0));
  float y = clamp((at.y + float(eye)) / float(eyes), float(eye) / float(eyes) + texel.y, float(eye + 1) / float(eyes) - texel.y);
  fragment = vec4(texture(whole, vec2(at.x, y)).rgb, 1.0);
}
