precision highp float;
precision highp int;
precision highp sampler2D;
precision highp usampler2D;

in vec3 direction;
out vec4 fragment;

// Low-resolution base sphere; in stereo the left eye's picture is above the right eye's.
uniform sampler2D base;
// Tile pictures. A tile at (x, y) of one eye's picture is stored at (x, eyes·y), left eye above right eye.
uniform sampler2D atlas;
// Per tile: nonzero if its picture in the atlas is current.
uniform usampler2D decoded;
uniform ivec2 grid; // columns and rows; 0 without tiles
uniform ivec2 size; // one eye's picture, pixels
uniform int eye;
uniform int eyes;
uniform mat3 sceneToPicture; // rotation

const float PI = 3.14159265358979;

// Start of tile i of n along `pixels`: i·pixels/n rounded to the nearest even number (docs/spec/tiles.md).
int edge(int i, int n, int pixels) {
  return 2 * ((i * pixels + n) / (2 * n));
}

// Index of the tile that contains a pixel, of n along `pixels`, and the tile's start and end.
ivec3 tileAt(float pixel, int n, int pixels) {
  int i = clamp(int(pixel) * n / pixels, 0, n - 1);
  if (i > 0 && int(pixel) < edge(i, n, pixels)) i--;
  else if (i < n - 1 && int(pixel) >= edge(i + 1, n, pixels)) i++;
  return ivec3(i, edge(i, n, pixels), edge(i + 1, n, pixels));
}

void main() {
  vec3 d = normalize(sceneToPicture * direction);
  vec2 at = vec2(fract(atan(d.x, -d.z) / (2.0 * PI) + 0.5), 0.5 - asin(clamp(d.y, -1.0, 1.0)) / PI);
  if (grid.x > 0) {
    vec2 pixel = at * vec2(size);
    ivec3 column = tileAt(pixel.x, grid.x, size.x);
    ivec3 row = tileAt(pixel.y, grid.y, size.y);
    if (texelFetch(decoded, ivec2(column.x, row.x), 0).x > 0u) {
      // Filtering must not reach into neighbouring tiles.
      pixel = clamp(pixel, vec2(column.y, row.y) + 0.5, vec2(column.z, row.z) - 0.5);
      pixel.y += float((eyes - 1) * row.y + eye * (row.z - row.y));
      fragment = vec4(texture(atlas, pixel / vec2(size.x, size.y * eyes)).rgb, 1.0);
      return;
    }
  }
  vec2 texel = 0.5 / vec2(textureSize(base, 0));
  float y = clamp((at.y + float(eye)) / float(eyes), float(eye) / float(eyes) + texel.y, float(eye + 1) / float(eyes) - texel.y);
  fragment = vec4(texture(base, vec2(at.x, y)).rgb, 1.0);
}
