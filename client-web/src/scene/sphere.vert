precision highp float;

in vec3 position;
uniform mat4 viewMatrix;
uniform mat4 projectionMatrix;
out vec3 direction;

void main() {
  direction = position;
  // At infinity: rotate only.
  vec4 p = projectionMatrix * vec4(mat3(viewMatrix) * position, 1.0);
  gl_Position = p.xyww;
}
