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
// For each tile whether its picture is that of now.
uniform usampler2D there;
uniform ivec2 grid; // columns and rows; 0 without tiles
uniform ivec2 size; // of one eye's picture, pixels
uniform int eye;
uniform int eyes;
uniform mat3 turned; // from the scene's directions to the picture's

const float PI = 3.14159265358979;

// Where tile i of n begins along `pixels`: the even number nearest to i·pixels/n (docs/spec/tiles.md).
int edge(int i, int n, int pixels) {
  return 2 * ((i * pixels + n) / (2 * n));
}

// In which of n tiles along `pixels` a pixel is, where it begins and where it ends.
ivec3 place(float pixel, int n, int pixels) {
  int i = clamp(int(pixel) * n / pixels, 0, n - 1);
  if (i > 0 && int(pixel) < edge(i, n, pixels)) i--;
  else if (i < n - 1 && int(pixel) >= edge(i + 1, n, pixels)) i++;
  return ivec3(i, edge(i, n, pixels), edge(i + 1, n, pixels));
}

void main() {
  vec3 d = normalize(turned * direction);
  vec2 at = vec2(fract(atan(d.x, -d.z) / (2.0 * PI) + 0.5), 0.5 - asin(clamp(d.y, -1.0, 1.0)) / PI);
  if (grid.x > 0) {
    vec2 pixel = at * vec2(size);
    ivec3 column = place(pixel.x, grid.x, size.x);
    ivec3 row = place(pixel.y, grid.y, size.y);
    if (texelFetch(there, ivec2(column.x, row.x), 0).x > 0u) {
      // Nothing of other tiles.
      pixel = clamp(pixel, vec2(column.y, row.y) + 0.5, vec2(column.z, row.z) - 0.5);
      pixel.y += float((eyes - 1) * row.y + eye * (row.z - row.y));
      fragment = vec4(texture(atlas, pixel / vec2(size.x, size.y * eyes)).rgb, 1.0);
      return;
    }
  }
  vec2 texel = 0.5 / vec2(textureSize(whole, 0));
  float y = clamp((at.y + float(eye)) / float(eyes), float(eye) / float(eyes) + texel.y, float(eye + 1) / float(eyes) - texel.y);
  fragment = vec4(texture(whole, vec2(at.x, y)).rgb, 1.0);
}
