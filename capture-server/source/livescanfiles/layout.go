package livescanfiles

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/image/tiff"

	"holocast/internal/camera"
)

// errForeign reports a directory that does not belong to a camera.
var errForeign = errors.New("no Intrinsics.json")

// ErrMode is returned if a studio has no directory for the requested modes.
var ErrMode = errors.New("no such file or directory")

// recorded lists one camera's files, before any image is read.
type recorded struct {
	name       string
	intrinsics string // path of the factory calibration
	depth      camera.DepthMode
	color      camera.ColorMode
	frames     []filePair // by number
	stamps     map[int]uint64
}

// filePair is one capture; color is "" if the camera dropped it.
type filePair struct {
	number       int
	depth, color string
}

// find returns the cameras of the studio in dir, or dir itself as one camera.
func find(dir string, opts Options) ([]*recorded, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	if path, _ := intrinsics(dir, entries); path != "" {
		r, err := findCamera(dir, opts)
		return []*recorded{r}, err
	}
	var cameras []*recorded
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		path := filepath.Join(dir, e.Name())
		r, err := findCamera(path, opts)
		if errors.Is(err, errForeign) {
			opts.Log.Warn("skipped a folder without Intrinsics.json", "folder", path)
			continue
		}
		if err != nil {
			return nil, err
		}
		cameras = append(cameras, r)
	}
	if len(cameras) == 0 {
		return nil, fmt.Errorf("%s has neither an Intrinsics.json nor camera directories", dir)
	}
	// Sort client_10 after client_9.
	slices.SortStableFunc(cameras, func(a, b *recorded) int {
		return cmp.Or(cmp.Compare(clientNumber(a.name), clientNumber(b.name)), strings.Compare(a.name, b.name))
	})
	return cameras, nil
}

// clientNumber returns N for a take's client_N, or -1 for any other directory.
func clientNumber(name string) int {
	rest, ok := strings.CutPrefix(name, "client_")
	if n, err := strconv.Atoi(rest); ok && err == nil {
		return n
	}
	return -1
}

// intrinsics returns the calibration file among a camera's files; in a take it is
// Intrinsics_Calib_N.json.
func intrinsics(dir string, entries []fs.DirEntry) (path string, take bool) {
	for _, e := range entries {
		switch name := e.Name(); {
		case name == "Intrinsics.json":
			return filepath.Join(dir, name), false
		case strings.HasPrefix(name, "Intrinsics_Calib_") && strings.HasSuffix(name, ".json"):
			path, take = filepath.Join(dir, name), true
		}
	}
	return path, take
}

// isImages reports whether an entry of a camera's directory is a depth image or a directory of
// depth images.
func isImages(e fs.DirEntry) bool {
	name := strings.ToLower(strings.TrimPrefix(e.Name(), "synced_"))
	return strings.HasPrefix(name, "depth_") || name == "depthimages"
}

func findCamera(dir string, opts Options) (*recorded, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	path, take := intrinsics(dir, entries)
	if path == "" {
		if slices.ContainsFunc(entries, isImages) {
			return nil, fmt.Errorf("%s has no Intrinsics.json", dir)
		}
		return nil, errForeign
	}
	r := &recorded{name: filepath.Base(dir), intrinsics: path}
	if take {
		return r, r.findTake(dir, entries)
	}
	return r, r.findModes(dir, opts)
}

// findModes finds the images in the requested modes, for a camera that has a directory per mode.
// The directories have the published test set's names, or are called depth_MODE and color_mode.
func (r *recorded) findModes(dir string, opts Options) error {
	r.depth, r.color = opts.Depth, opts.Color
	height := strings.ToLower(string(opts.Color))
	depthDir, err := oneOf(filepath.Join(dir, "depthImages", string(opts.Depth)),
		filepath.Join(dir, "depth_"+string(opts.Depth)))
	if err != nil {
		return err
	}
	colorDir, err := oneOf(filepath.Join(dir, "colorImages", height), filepath.Join(dir, "color_"+height))
	if err != nil {
		return err
	}
	depth, err := numbered(depthDir, "Depth_", ".tiff")
	if err != nil {
		return err
	}
	color, err := numbered(colorDir, "Color_", ".jpg")
	if err != nil {
		return err
	}
	if len(depth) != len(color) {
		return fmt.Errorf("%s has %d depth images, %s has %d colour images", depthDir, len(depth), colorDir, len(color))
	}
	if len(depth) == 0 {
		return fmt.Errorf("%s has no Depth_*.tiff", depthDir)
	}
	for n, path := range depth {
		if color[n] == "" {
			return fmt.Errorf("%s has no image for %s", colorDir, path)
		}
		r.frames = append(r.frames, filePair{n, path, color[n]})
	}
	r.sort()
	return nil
}

func (r *recorded) sort() {
	slices.SortFunc(r.frames, func(a, b filePair) int { return cmp.Compare(a.number, b.number) })
}

// oneOf returns the first of two directories that exists.
func oneOf(a, b string) (string, error) {
	for _, dir := range []string{a, b} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%s or %s: %w", a, b, ErrMode)
}

// findTake finds a client's images and timestamps in a take. Frames may be missing. It prefers
// images synchronised by LiveScan3D.
func (r *recorded) findTake(dir string, entries []fs.DirEntry) error {
	for _, prefix := range []string{"synced_", ""} {
		depth, err := numbered(dir, prefix+"Depth_", ".tiff")
		if err != nil {
			return err
		}
		color, err := numbered(dir, prefix+"Color_", ".jpg")
		if err != nil {
			return err
		}
		for n, path := range depth {
			r.frames = append(r.frames, filePair{n, path, color[n]})
		}
		if len(r.frames) > 0 {
			break
		}
	}
	r.sort()
	if err := r.findSizes(dir); err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasPrefix(name, "Timestamps_Client") && strings.HasSuffix(name, ".txt") {
			path := filepath.Join(dir, name)
			b, err := readFile(path)
			if err != nil {
				return err
			}
			if r.stamps, err = parseStamps(b); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	return nil
}

// findSizes determines the modes from the first readable images and removes the placeholders before
// them. After synchronisation, a missing frame has a depth image of one pixel.
func (r *recorded) findSizes(dir string) error {
	var damage error
	frames := r.frames[:0]
	for i, f := range r.frames {
		placeholder, err := r.readSizes(f)
		if damage == nil {
			damage = err
		}
		if !placeholder {
			frames = append(frames, f)
		}
		if r.depth != "" && r.color != camera.ColorOff {
			frames = append(frames, r.frames[i+1:]...)
			break
		}
	}
	r.frames = frames
	switch {
	case r.depth != "" && r.color != camera.ColorOff:
		return nil
	case damage != nil:
		return damage
	case r.depth == "":
		return fmt.Errorf("%s has no Depth_*.tiff with an image", dir)
	}
	return fmt.Errorf("%s: no Color_*.jpg has the same number as a Depth_*.tiff", dir)
}

// readSizes determines the modes still unknown, from the sizes of one capture's images. It reports
// whether the depth image is the placeholder for a missing frame.
func (r *recorded) readSizes(f filePair) (placeholder bool, err error) {
	file, err := readFile(f.depth)
	if err != nil {
		return false, err
	}
	size, err := tiff.DecodeConfig(bytes.NewReader(file))
	if err != nil {
		return false, fmt.Errorf("%s: %w", f.depth, err)
	}
	if isPlaceholder(size) {
		return true, nil
	}
	if r.depth == "" {
		if r.depth, err = camera.DepthModeOf(size.Width, size.Height); err != nil {
			return false, fmt.Errorf("%s: %w", f.depth, err)
		}
	}
	if f.color == "" {
		return false, nil
	}
	if file, err = readFile(f.color); err != nil {
		return false, err
	}
	if size, err = jpeg.DecodeConfig(bytes.NewReader(file)); err != nil {
		return false, fmt.Errorf("%s: %w", f.color, err)
	}
	if r.color, err = camera.ColorModeOf(size.Width, size.Height); err != nil {
		return false, fmt.Errorf("%s: %w", f.color, err)
	}
	return false, nil
}

func isPlaceholder(size image.Config) bool { return size.Width == 1 && size.Height == 1 }

// parseStamps parses lines that hold a frame number and a device time in microseconds, separated by
// a tab. It ignores blank lines and a truncated last line without a time.
func parseStamps(text []byte) (map[int]uint64, error) {
	stamps := map[int]uint64{}
	line := 0
	for l := range bytes.Lines(trimBOM(text)) {
		line++
		fields := strings.Fields(string(l))
		if len(fields) == 0 || len(fields) == 1 && !bytes.HasSuffix(l, []byte{'\n'}) {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("line %d: %d fields, want a frame number and a time", line, len(fields))
		}
		n, err := strconv.Atoi(fields[0])
		if err != nil {
			return nil, fmt.Errorf("line %d: %.20q is not a frame number", line, fields[0])
		}
		us, err := strconv.ParseUint(fields[1], 10, 63)
		if err != nil {
			return nil, fmt.Errorf("line %d: %.20q is not a time in microseconds", line, fields[1])
		}
		stamps[n] = us
	}
	return stamps, nil
}

// numbered returns the paths of dir's files named prefix, number, suffix, keyed by number.
func numbered(dir, prefix, suffix string) (map[int]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := map[int]string{}
	for _, e := range entries {
		middle, ok := strings.CutPrefix(e.Name(), prefix)
		if !ok {
			continue
		}
		if middle, ok = strings.CutSuffix(middle, suffix); !ok {
			continue
		}
		if n, err := strconv.Atoi(middle); err == nil {
			files[n] = filepath.Join(dir, e.Name())
		}
	}
	return files, nil
}
