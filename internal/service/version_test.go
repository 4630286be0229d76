package service

import "testing"

// TestVersion checks that a build outside the repository has a version other than Go's "(devel)".
func TestVersion(t *testing.T) {
	set := version
	t.Cleanup(func() { version = set })
	for _, test := range []struct {
		version string
		parts   []string
		want    string
	}{
		{"v1.2.3", nil, "v1.2.3"},
		{"v1.2.3", []string{"moqt-18", "api 1"}, "v1.2.3 (moqt-18; api 1)"},
		{"", nil, "development"},
		{"", []string{"api 1"}, "development (api 1)"},
	} {
		version = test.version
		if got := Version(test.parts...); got != test.want {
			t.Errorf("version %q: %q, want %q", test.version, got, test.want)
		}
	}
}
