precision highp float;

uniform mat4 modelMatrix;
uniform mat4 viewMatrix;
uniform mat4 projectionMatrix;
// From the scene to the shadow's clip space.
uniform mat4 light;

in vec3 position;

out vec2 place;
out vec2 under;

void main() {
  place = position.xy;
  vec4 world = modelMatrix * vec4(position, 1.0);
  under = 0.5 + 0.5 * (light * world).xy;
  gl_Position = projectionMatrix * viewMatrix * world;
}
