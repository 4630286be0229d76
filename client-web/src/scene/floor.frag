precision highp float;

// The floor: a disc that fades into the background, with the subject's shadow.
uniform sampler2D shadow;
uniform vec3 tint;
uniform float darkness;
// 1 for the floor and its shadow, 0 for the shadow alone.
uniform float solid;

in vec2 place; // in units of the floor's radius
in vec2 under; // place in the texture of the shadow

out vec4 fragment;

float soft(vec2 at) {
  // Mean of the texture's coarser levels around the place.
  vec2 step = 2.0 / vec2(textureSize(shadow, 0));
  float sum = 0.0;
  for (int i = 0; i < 4; i++) {
    vec2 shift = step * vec2(i < 2 ? -1.0 : 1.0, (i & 1) == 0 ? -1.0 : 1.0);
    sum += textureLod(shadow, at + shift, 1.0).r + textureLod(shadow, at + 2.0 * shift, 2.0).r;
  }
  return sum / 8.0;
}

void main() {
  vec2 edge = abs(2.0 * under - 1.0);
  float inside = 1.0 - smoothstep(0.8, 1.0, max(edge.x, edge.y));
  float shade = darkness * inside * soft(under);
  float floor = solid * (1.0 - smoothstep(0.0, 1.0, length(place)));
  // The shadow over the floor, with premultiplied alpha.
  fragment = vec4(tint * floor * (1.0 - shade), floor + shade - floor * shade);
}
