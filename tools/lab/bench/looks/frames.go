package looks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// Times are medians, in milliseconds.
type Times struct {
	Same float64 `json:"same"` // of drawing the same frame again
	New  float64 `json:"new"`  // of uploading and drawing a new one
}

// FrameTime is the time to draw a frame in Chromium, with SwiftShader where there is no GPU.
type FrameTime struct {
	Grid    int   `json:"grid"` // points
	Points  Times `json:"points"`
	Surface Times `json:"surface"`
}

// viewer is the folder of the web viewer, whose benchmark draws the frames.
const viewer = "client-web"

func frames(ctx context.Context) (times []FrameTime, err error) {
	if _, err := os.Stat(filepath.Join(viewer, "node_modules")); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s/node_modules is missing: run make setup-test, and this from the repository", viewer)
	}
	f, err := os.CreateTemp("", "holocast-looks-*.json")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	cmd := exec.CommandContext(ctx, "npm", "run", "--silent", "bench", "--", "looks")
	cmd.Dir, cmd.Env = viewer, append(os.Environ(), "HOLOCAST_LOOKS="+f.Name())
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	if err := json.NewDecoder(f).Decode(&times); err != nil {
		return nil, fmt.Errorf("read the times of %s: %w", cmd, err)
	}
	return times, nil
}
