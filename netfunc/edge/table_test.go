//go:build linux

package main

import (
	"regexp"
	"strings"
	"testing"
)

// Unknown values of a path print as a dash, not as zero.
func TestPrintPaths(t *testing.T) {
	for name, test := range map[string]struct {
		path PathStatus
		want string
	}{
		"up": {
			PathStatus{Up: true, Probed: true, RTT: 20.04, MinRTT: 20},
			`1 +wan1 +up +20\.04 ms +20\.00 ms +0\.0 %`,
		},
		"fell silent":   {PathStatus{Probed: true, MinRTT: 20, Loss: 0.32}, `1 +wan1 +down +- +20\.00 ms +32\.0 %`},
		"never probed":  {PathStatus{Up: true}, `1 +wan1 +up +- +- +-`},
		"edge is ended": {PathStatus{Unknown: true}, `1 +wan1 +unknown +- +- +-`},
	} {
		t.Run(name, func(t *testing.T) {
			test.path.Index, test.path.Interface = 1, "wan1"
			var b strings.Builder
			(&Status{Name: "london", Running: true, Paths: []PathStatus{test.path}}).print(&b)
			if !regexp.MustCompile(`(?m)^` + test.want + ` `).MatchString(b.String()) {
				t.Errorf("%s\nwant %s", b.String(), test.want)
			}
		})
	}
}
