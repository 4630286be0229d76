precision mediump float;

out vec4 fragment;

// Drawn from below the floor: the shadow is darkest where something touches the floor.
void main() {
  float near = 1.0 - gl_FragCoord.z;
  fragment = vec4(near * near);
}
