package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlayByView checks that the quality of the camera in view rises and that of the other falls as
// the viewer walks around the performer, back and forth.
func TestPlayByView(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port)
	start(
		t, "capture-server", "--source", "synthetic", "--cameras", "2", "--fps", "10", "--depth-mode", "NFOV_2X2BINNED",
		"--high", sessionURL(port, "demo"),
	)
	walk := filepath.Join(t.TempDir(), "walk.csv")
	var b strings.Builder
	b.WriteString("t,x,y,z,dx,dy,dz,ux,uy,uz,fovx,fovy\n")
	for i := range 60 { // 10 s before and 10 s behind the performer
		side := 1 - 2*(i%2)
		fmt.Fprintf(&b, "%d,0,1100,%d,0,0,%d,0,1,0,60,45\n", 10*i, 1200*side, -side)
		fmt.Fprintf(&b, "%d,0,1100,%d,0,0,%d,0,1,0,60,45\n", 10*i+9, 1200*side, -side)
	}
	if err := os.WriteFile(walk, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	// This is enough for high and low, but not for high twice.
	p := start(
		t, "holocast", "play", sessionURL(port, "demo"), "--wait", "--json", "--view", walk, "--max-bitrate", "450k",
	)
	// seen reports whether the live lines show states in this order.
	seen := func(states ...string) bool {
		text := p.Stderr.String()
		for _, s := range states {
			_, after, found := strings.Cut(text, s)
			if !found {
				return false
			}
			text = after
		}
		return true
	}
	const front, back = "camera 0 high  1 low", "camera 0 low  1 high"
	until(t, "the front camera's quality", func() bool { return seen(front) })
	until(t, "the back camera's quality", func() bool { return seen(front, back) })
	until(t, "the front camera's quality again", func() bool { return seen(front, back, front) })
	r := p.interrupt()
	if s := r.Selection; s == nil || len(s.Cameras) != 2 || s.Gap > 0.06 {
		t.Fatalf("%+v", s)
	}
	if r.DepthErrorMM <= 0 || r.DepthErrorMM > 100 {
		t.Errorf("depth error %g mm", r.DepthErrorMM)
	}
	for _, c := range r.Selection.Cameras {
		if c.Switches < 2 || c.Frames["high"] == 0 || c.Frames["low"] == 0 || c.Frames["full"] > 0 {
			t.Errorf("%+v", c)
		}
	}
}
