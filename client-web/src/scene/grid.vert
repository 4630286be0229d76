precision highp float;
precision highp int;
precision highp usampler2D;

// Writes each point's words to its pixel, with BORDER pixels around the grid.
uniform usampler2D words;
uniform vec2 size; // of the target, pixels

flat out uvec2 word;

const int BORDER = 4;

void main() {
  word = texelFetch(words, ivec2(gl_VertexID & 4095, gl_VertexID >> 12), 0).xy;
  vec2 pixel = vec2(uvec2(word.x & 0xfffu, (word.x >> 12) & 0xfffu)) + float(BORDER);
  gl_Position = vec4((pixel + 0.5) / size * 2.0 - 1.0, 0.0, 1.0);
  gl_PointSize = 1.0;
}
