precision highp float;
precision highp int;

flat in uvec2 word;
out uvec2 fragment;

void main() {
  fragment = word;
}
