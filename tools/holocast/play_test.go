package main

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holocast/internal/plyfile"
	"holocast/tools/holocast/player"
)

func TestPlay(t *testing.T) {
	for _, tt := range []struct {
		name                  string
		cameras, descriptions int
		args                  []string
		shown                 int
	}{
		{"one camera", 1, 1, nil, 1},
		{"two cameras, four descriptions", 2, 4, nil, 2},
		{"one of two", 2, 1, []string{"--camera", "1"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			port := freePort(t)
			startRelay(t, port)
			publish(t, sessionURL(port, "demo"), tt.cameras, tt.descriptions)
			dir := t.TempDir()
			p := start(t, "holocast", append([]string{"play", sessionURL(port, "demo"), "--duration", "2s", "--json",
				"--png", filepath.Join(dir, "cloud.png"), "--ply", filepath.Join(dir, "cloud.ply")}, tt.args...)...)
			p.mustSucceed()
			var r player.Report
			p.lastLine(&r)
			if r.Cameras != tt.shown || r.Frames < 10 || r.PointsPerFrame != testWidth*testHeight || r.DelayFrom != "capture" || r.Clock != "relay" {
				t.Errorf("%+v", r)
			}
			if !strings.Contains(p.stderr.String(), " fps  delay ") {
				t.Errorf("no live line in %q", p.stderr.String())
			}
			picture, err := os.ReadFile(filepath.Join(dir, "cloud.png"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := png.Decode(bytes.NewReader(picture)); err != nil {
				t.Error(err)
			}
			ply, err := os.Open(filepath.Join(dir, "cloud.ply"))
			if err != nil {
				t.Fatal(err)
			}
			defer ply.Close()
			if c, err := plyfile.Read(ply); err != nil || len(c.XYZ) != 3*tt.shown*testWidth*testHeight {
				t.Errorf("%d coordinates, %v", len(c.XYZ), err)
			}
		})
	}
}
