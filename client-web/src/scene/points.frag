precision mediump float;

in vec3 color;
#ifdef DISCS
in vec2 place;
#endif
out vec4 fragment;

void main() {
#ifdef DISCS
  if (dot(place, place) > 1.0) discard;
#endif
  fragment = vec4(color, 1.0);
}
