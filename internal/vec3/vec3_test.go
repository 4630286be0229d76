package vec3

import "testing"

func TestVectors(t *testing.T) {
	a, b := Vector{1, 2, 2}, Vector{0, 0, 2}
	for _, c := range []struct {
		name      string
		got, want Vector
	}{
		{"sub", Sub(a, b), Vector{1, 2, 0}},
		{"scale", Scale(a, 3), Vector{3, 6, 6}},
		{"cross", Cross(a, b), Vector{4, -2, 0}},
		{"unit", Unit(b), Vector{0, 0, 1}},
		{"unit of 0", Unit(Vector{}), Vector{}},
		{"dot, length", Vector{Dot(a, b), Length(a), 0}, Vector{4, 3, 0}},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
}
