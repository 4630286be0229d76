precision highp float;
precision highp int;
precision highp sampler2D;
precision highp usampler2D;

in vec3 direction;
out vec4 fragment;

// Low-resolution base sphere; in stereo the left eye's picture is above the right eye's.
uniform sampler2D base;
// Tile pictures in slots of equal size, row by row; in stereo the left eye's is above the right eye's.
uniform sampler2D atlas;
uniform int atlasColumns;
uniform ivec2 slot; // pixels
uniform ivec2 atlasSize; // pixels
// Per tile: 1 + its slot; 0 if it has no current picture.
uniform usampler2D slots;
uniform ivec2 grid; // columns and rows; 0 without tiles
uniform ivec2 size; // one eye's picture, pixels
uniform int eye;
uniform int eyes;
uniform mat3 sceneToPicture; // rotation

const float PI = 3.14159265358979;
// Share of a tile's width and height over which it fades towards a missing neighbour.
const float FEATHER = 0.05;

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

// True if a tile has a current picture. Columns continue around the sphere, rows end at the poles.
bool present(int column, int row) {
  return texelFetch(slots, ivec2((column + grid.x) % grid.x, clamp(row, 0, grid.y - 1)), 0).x > 0u;
}

void main() {
  vec3 d = normalize(sceneToPicture * direction);
  vec2 at = vec2(fract(atan(d.x, -d.z) / (2.0 * PI) + 0.5), 0.5 - asin(clamp(d.y, -1.0, 1.0)) / PI);
  vec3 tile = vec3(0.0);
  float share = 0.0; // of the tile
  if (grid.x > 0) {
    vec2 pixel = at * vec2(size);
    ivec3 column = tileAt(pixel.x, grid.x, size.x);
    ivec3 row = tileAt(pixel.y, grid.y, size.y);
    int s = int(texelFetch(slots, ivec2(column.x, row.x), 0).x) - 1;
    if (s >= 0) {
      vec2 start = vec2(column.y, row.y);
      vec2 extent = vec2(column.z, row.z) - start;
      // Filtering must not reach into other tiles.
      vec2 inside = clamp(pixel - start, vec2(0.5), extent - 0.5);
      vec2 corner = vec2(ivec2(s % atlasColumns, s / atlasColumns) * slot) + vec2(0.0, float(eye) * extent.y);
      tile = texture(atlas, (corner + inside) / vec2(atlasSize)).rgb;
      // Towards the nearest edges, the tile fades unless its neighbours continue it.
      vec2 f = (pixel - start) / extent;
      ivec2 next = ivec2(f.x < 0.5 ? -1 : 1, f.y < 0.5 ? -1 : 1);
      vec2 away = smoothstep(0.0, FEATHER, min(f, 1.0 - f));
      share = 1.0;
      if (!present(column.x + next.x, row.x)) share = min(share, away.x);
      if (!present(column.x, row.x + next.y)) share = min(share, away.y);
      if (!present(column.x + next.x, row.x + next.y)) share = min(share, max(away.x, away.y));
    }
  }
  vec2 texel = 0.5 / vec2(textureSize(base, 0));
  float y = clamp((at.y + float(eye)) / float(eyes), float(eye) / float(eyes) + texel.y, float(eye + 1) / float(eyes) - texel.y);
  fragment = vec4(mix(texture(base, vec2(at.x, y)).rgb, tile, share), 1.0);
}
