package film

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holocast/capture-server/publish"
	"holocast/internal/moqt"
)

// What is no prepared video is refused with what to do. The rest is tested with the program.
func TestNewRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "film.mp4")
	if err := os.WriteFile(file, []byte("a film"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, dir, want string }{
		{"nothing", filepath.Join(t.TempDir(), "none"), "is no folder; holocast prepare makes one of a film"},
		{"a film", file, "is no folder; holocast prepare makes one of a film"},
		{"another folder", t.TempDir(), "it has no catalog.json: holocast prepare did not write it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := publish.New(publish.Config{Namespace: moqt.Namespace{"holocast", "test"}})
			defer p.Close()
			if _, err := New(p, tt.dir, true); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}
