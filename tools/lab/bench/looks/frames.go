package looks

import (
	"bytes"
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

// UnityTime is the processor time to draw a frame with the Unity client's shaders on lavapipe, in milliseconds.
type UnityTime struct {
	Points  int       `json:"points"`
	Eyes    int       `json:"eyes"`
	Picture LookTimes `json:"picture_ms"`
	Frame   LookTimes `json:"frame_ms"` // additional, for each new frame
}

// LookTimes holds a time per look.
type LookTimes struct {
	Points  float64 `json:"points"`
	Surface float64 `json:"surface"`
	Several float64 `json:"surface of several"` // as drawn with several cameras
}

func unity(ctx context.Context) (times []UnityTime, err error) {
	cmd := exec.CommandContext(ctx, "client-unity/verify/verify.sh", "build", "shaders", "times")
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, failure.Bytes())
	}
	_, list, _ := bytes.Cut(out, []byte("== times\n"))
	if err := json.Unmarshal(list, &times); err != nil {
		return nil, fmt.Errorf("read the times of %s: %w", cmd, err)
	}
	return times, nil
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
