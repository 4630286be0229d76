// Package livescan plays directories of Azure Kinect frames in the layout LiveScan3D
// records and reads:
//
//	<studio>/<camera>/Intrinsics.json            the sensor's factory calibration
//	<studio>/<camera>/depth_NFOV_UNBINNED/Depth_1.tiff …   16 bits, millimetres
//	<studio>/<camera>/color_720p/Color_1.jpg …
//
// Cameras of a studio play in step, in a loop, at a chosen frame rate. Depth is
// decoded once when a studio is opened, as a camera delivers it raw; colour is
// delivered as the JPEG it is.
package livescan

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/image/tiff"
	"golang.org/x/sync/errgroup"

	"holocast/capture-server/source"
	"holocast/capture-server/source/pace"
	"holocast/internal/camera"
	"holocast/internal/mjpeg"
)

// Options choose what of a studio is played.
type Options struct {
	Depth  camera.DepthMode // "" is NFOVUnbinned
	Color  camera.ColorMode // "" is Color720P
	FPS    float64          // frames per second; 0 is 30
	Frames int              // play only the first so many of each camera; 0 is all
}

const (
	intrinsicsFile = "Intrinsics.json"
	// maxFile bounds a file; a 4096×3072 JPEG of a Kinect has about 4 MB.
	maxFile = 64 << 20
	// maxDepth bounds the decoded depth of a studio, bytes.
	maxDepth = 2 << 30
)

// Open reads the studio in dir, or the single camera if dir has an Intrinsics.json
// itself. Cameras come in order of their directories' names, which are also theirs.
// Errors name the directory or file that is wrong.
func Open(dir string, opts Options) ([]source.Source, error) {
	opts.Depth = cmp.Or(opts.Depth, camera.NFOVUnbinned)
	opts.Color = cmp.Or(opts.Color, camera.Color720P)
	opts.FPS = cmp.Or(opts.FPS, 30)
	clock, err := pace.NewClock(opts.FPS)
	if err != nil {
		return nil, fmt.Errorf("livescan: %w", err)
	}
	dirs, err := cameraDirs(dir)
	if err != nil {
		return nil, fmt.Errorf("livescan: %w", err)
	}

	cameras := make([]*player, len(dirs))
	var total int
	for i, d := range dirs {
		c, err := list(d, opts)
		if err != nil {
			return nil, fmt.Errorf("livescan: %w", err)
		}
		c.pace.Clock = clock
		cameras[i] = c
		total += 2 * len(c.files) * c.cal.Depth.Width * c.cal.Depth.Height
	}
	if total > maxDepth {
		return nil, fmt.Errorf("livescan: %s: depth of %d cameras takes %d MiB of memory, more than %d: limit the number of frames", dir, len(dirs), total>>20, maxDepth>>20)
	}
	for _, c := range cameras {
		if err := c.load(); err != nil {
			return nil, fmt.Errorf("livescan: %w", err)
		}
	}
	sources := make([]source.Source, len(cameras))
	for i, c := range cameras {
		sources[i] = c
	}
	return sources, nil
}

func cameraDirs(dir string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(dir, intrinsicsFile)); err == nil {
		return []string{dir}, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, filepath.Join(dir, e.Name()))
		}
	}
	if len(dirs) == 0 {
		return nil, fmt.Errorf("%s has neither an %s nor directories of cameras", dir, intrinsicsFile)
	}
	return dirs, nil
}

// player is one camera.
type player struct {
	name  string
	cal   camera.Calibration
	files []filePair
	depth [][]uint16
	color [][]byte
	pace  pace.Camera
}

type filePair struct{ depth, color string }

// list finds a camera's files without reading images.
func list(dir string, opts Options) (*player, error) {
	doc, err := readFile(filepath.Join(dir, intrinsicsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no %s", dir, intrinsicsFile)
	}
	if err != nil {
		return nil, err
	}
	cal, err := camera.Parse(doc, opts.Depth, opts.Color)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, intrinsicsFile), err)
	}
	depthDir := filepath.Join(dir, "depth_"+string(opts.Depth))
	colorDir := filepath.Join(dir, "color_"+strings.ToLower(string(opts.Color)))
	depth, err := numbered(depthDir, "Depth_", ".tiff")
	if err != nil {
		return nil, err
	}
	color, err := numbered(colorDir, "Color_", ".jpg")
	if err != nil {
		return nil, err
	}
	if len(depth) != len(color) {
		return nil, fmt.Errorf("%s has %d depth images, %s has %d colour images", depthDir, len(depth), colorDir, len(color))
	}
	if len(depth) == 0 {
		return nil, fmt.Errorf("%s has no Depth_*.tiff", depthDir)
	}
	p := &player{name: filepath.Base(dir), cal: cal}
	for i := range depth {
		if depth[i].number != color[i].number {
			return nil, fmt.Errorf("%s and %s do not belong to the same frame", depth[i].path, color[i].path)
		}
		p.files = append(p.files, filePair{depth[i].path, color[i].path})
	}
	if opts.Frames > 0 && len(p.files) > opts.Frames {
		p.files = p.files[:opts.Frames]
	}
	return p, nil
}

type numberedFile struct {
	number int
	path   string
}

func numbered(dir, prefix, suffix string) ([]numberedFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []numberedFile
	for _, e := range entries {
		middle, ok := strings.CutPrefix(e.Name(), prefix)
		if !ok {
			continue
		}
		if middle, ok = strings.CutSuffix(middle, suffix); !ok {
			continue
		}
		if n, err := strconv.Atoi(middle); err == nil {
			files = append(files, numberedFile{n, filepath.Join(dir, e.Name())})
		}
	}
	slices.SortFunc(files, func(a, b numberedFile) int { return cmp.Compare(a.number, b.number) })
	return files, nil
}

// load reads and checks every image.
func (p *player) load() error {
	p.depth = make([][]uint16, len(p.files))
	p.color = make([][]byte, len(p.files))
	var g errgroup.Group
	g.SetLimit(4)
	for i, f := range p.files {
		g.Go(func() error {
			file, err := readFile(f.depth)
			if err != nil {
				return err
			}
			if p.depth[i], err = decodeDepth(file, p.cal.Depth.Width, p.cal.Depth.Height); err != nil {
				return fmt.Errorf("%s: %w", f.depth, err)
			}
			if p.color[i], err = readFile(f.color); err != nil {
				return err
			}
			if err := checkColor(p.color[i], p.cal.Color.Width, p.cal.Color.Height); err != nil {
				return fmt.Errorf("%s: %w", f.color, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// decodeDepth reads a TIFF of width×height 16-bit grey pixels.
func decodeDepth(file []byte, width, height int) ([]uint16, error) {
	cfg, err := tiff.DecodeConfig(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	if cfg.Width != width || cfg.Height != height {
		return nil, fmt.Errorf("depth image is %d×%d, the depth mode has %d×%d", cfg.Width, cfg.Height, width, height)
	}
	img, err := tiff.Decode(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	gray, ok := img.(*image.Gray16)
	if !ok {
		return nil, fmt.Errorf("depth image is %T, want 16 bits of grey", img)
	}
	depth := make([]uint16, width*height)
	for y := range height {
		row := gray.Pix[y*gray.Stride:]
		for x := range width {
			depth[y*width+x] = uint16(row[2*x])<<8 | uint16(row[2*x+1])
		}
	}
	return depth, nil
}

func checkColor(jpeg []byte, width, height int) error {
	d, err := mjpeg.NewDecoder()
	if err != nil {
		return err
	}
	defer d.Close()
	hdr, err := d.Header(jpeg)
	if err != nil {
		return err
	}
	if hdr.Width != width || hdr.Height != height {
		return fmt.Errorf("colour image is %d×%d, the colour mode has %d×%d", hdr.Width, hdr.Height, width, height)
	}
	var img image.YCbCr
	return d.DecodeYCbCr(&img, jpeg, 8)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d MiB", path, maxFile>>20)
	}
	return b, nil
}

// Name returns the name of the camera's directory.
func (p *player) Name() string { return p.name }

// Calibration returns what Intrinsics.json says for the chosen modes.
func (p *player) Calibration() camera.Calibration { return p.cal }

// FPS returns the rate the studio plays at.
func (p *player) FPS() float64 { return p.pace.Clock.FPS() }

// Next waits for the next frame; the one after the last is the first again.
func (p *player) Next(ctx context.Context, f *source.Frame) error {
	k, due, err := p.pace.Wait(ctx)
	if err != nil {
		return err
	}
	i := int(k % int64(len(p.files)))
	*f = source.Frame{
		Depth:       p.depth[i],
		Color:       p.color[i],
		Format:      camera.MJPG,
		DeviceTime:  p.pace.Clock.Offset(k),
		CaptureTime: due,
	}
	return nil
}

// Close has nothing to free.
func (p *player) Close() error { return nil }
