package tiles

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"holocast/internal/loc"
	"holocast/internal/tile360"
)

const (
	columns, rows = 8, 4
	fps           = 30 // also frames per one-second GoP
	slotsPerS     = 10 // viewports evaluated per second, as many as in the head traces
	framesPerSlot = fps / slotsPerS

	// Squared errors are stored per cell of the image.
	cellColumns, cellRows = 120, 60
	cells                 = cellColumns * cellRows
)

// clip is tiled video: the size of each tile of each GoP at each quality, and its errors by
// position.
type clip struct {
	name      string
	grid      tile360.Grid
	qualities int
	gops      []tile360.GoP // without Start and Have
	video     []float64     // bytes of the low-resolution sphere per GoP

	// errors is the mean squared error of luma by quality, slot and cell. The tiles' qualities are
	// followed by the low-resolution sphere and a black image.
	errors [][][]float32
	black  [][]float64 // distortion of a black image by GoP and tile

	// encoded holds the streams by tile and quality; the low-resolution sphere is separate.
	encoded    [][]stream
	encodedLow stream
	lowWidth   int
	lowHeight  int
}

// Indexes into clip.errors for the images that replace missing tiles.
func (c *clip) low() int   { return c.qualities }
func (c *clip) blank() int { return c.qualities + 1 }

// bytes returns the average size of one second of the whole sphere at a quality.
func (c *clip) bytes(quality int) float64 {
	sum := 0.0
	for _, g := range c.gops {
		for t := range c.grid.Tiles() {
			sum += g.Bytes[t*c.qualities+quality]
		}
	}
	return sum / float64(len(c.gops))
}

// mse returns the sphere's mean squared error at a quality; c.low() selects the low-resolution
// sphere.
func (c *clip) mse(quality int) float64 {
	sum := 0.0
	for _, g := range c.gops {
		for t := range c.grid.Tiles() {
			d := g.Miss[t]
			if quality < c.qualities {
				d = g.Distortion[t*c.qualities+quality]
			}
			sum += d * c.grid.SolidAngle(t)
		}
	}
	return sum / (4 * math.Pi * float64(len(c.gops)))
}

// source is a video file, as in ../shared/data/video360.
type source struct {
	name          string
	file          string
	crop          string // FFmpeg filter that selects the left eye, if there are two
	width, height int    // per eye
}

// sources returns the measured clips.
func sources(dir string) []source {
	return []source{
		{"congo", filepath.Join(dir, "congo.mp4"), "crop=1920:540:0:0,setsar=1,", 1920, 540},
		{"test room", filepath.Join(dir, "testRoom1_1920Mono.mp4"), "", 1920, 960},
	}
}

// measure encodes a clip's tiles with FFmpeg at rate factors (x264's CRF), worst first, and
// compares the decoded frames with the source. seconds limits the clip's length.
func measure(ctx context.Context, s source, crfs []int, videoCRF, seconds int) (c *clip, err error) {
	dir, err := os.MkdirTemp("", "holocast-bench-tiles-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c = &clip{
		name: s.name, qualities: len(crfs),
		grid: tile360.Grid{Columns: columns, Rows: rows, Width: s.width, Height: s.height},
	}
	input := []string{"-i", s.file, "-t", fmt.Sprint(seconds), "-r", fmt.Sprint(fps)}
	x264 := func(crf int) []string {
		return []string{
			"-an", "-c:v", "libx264", "-preset", "veryfast", "-crf", fmt.Sprint(crf), "-threads", "1",
			"-g", fmt.Sprint(fps), "-keyint_min", fmt.Sprint(fps), "-sc_threshold", "0", "-bf", "0", "-f", "h264",
		}
	}
	original := func() []string {
		return append([]string{
			"-i", s.file, "-vf", s.crop + "format=yuv420p", "-t", fmt.Sprint(seconds), "-r",
			fmt.Sprint(fps),
		}, raw...)
	}

	// The low-resolution sphere has a quarter of the width and height.
	low := filepath.Join(dir, "video.h264")
	args := append(append([]string{}, input...), "-vf", fmt.Sprintf("%sscale=%d:%d:flags=area,format=yuv420p", s.crop,
		s.width/4, s.height/8*2))
	if err := ffmpeg(ctx, append(append(args, x264(videoCRF)...), low)...); err != nil {
		return nil, err
	}
	if c.video, err = gopBytes(low); err != nil {
		return nil, err
	}
	if c.encodedLow, err = readStream(low); err != nil {
		return nil, err
	}
	c.lowWidth, c.lowHeight = s.width/4, s.height/8*2
	c.encoded = make([][]stream, c.grid.Tiles())
	n := len(c.video)
	for range n {
		c.gops = append(c.gops, tile360.GoP{
			Duration: 1,
			Miss:     make([]float64, c.grid.Tiles()),
			Bytes:    make([]float64, c.grid.Tiles()*c.qualities), Distortion: make([]float64,
				c.grid.Tiles()*c.qualities),
		})
	}
	scaled := append([]string{"-i", low, "-vf", fmt.Sprintf("scale=%d:%d:flags=bilinear,format=yuv420p", s.width,
		s.height)}, raw...)
	shown, err := c.compare(ctx, original(), scaled, func(gop, tile int, mse float64) { c.gops[gop].Miss[tile] = mse })
	if err != nil {
		return nil, err
	}
	c.black = make([][]float64, n)
	dark := append([]string{
		"-f", "lavfi", "-i", fmt.Sprintf("color=black:size=%dx%d:rate=%d", s.width, s.height, fps),
		"-vf", "format=yuv420p",
	}, raw...)
	blank, err := c.compare(ctx, original(), dark,
		func(gop, tile int, mse float64) { c.black[gop] = append(c.black[gop], mse) })
	if err != nil {
		return nil, err
	}

	for q, crf := range crfs {
		// One process crops the frames and encodes all tiles; another decodes and joins them.
		var cut strings.Builder
		fmt.Fprintf(&cut, "[0:v]%sformat=yuv420p,split=%d", s.crop, c.grid.Tiles())
		for t := range c.grid.Tiles() {
			fmt.Fprintf(&cut, "[s%d]", t)
		}
		var layout []string
		encode := append([]string{"-i", s.file}, "-filter_complex", "")
		var join []string
		for t := range c.grid.Tiles() {
			r := c.grid.Rect(t)
			fmt.Fprintf(&cut, ";[s%d]crop=%d:%d:%d:%d[t%d]", t, r.Dx(), r.Dy(), r.Min.X, r.Min.Y, t)
			layout = append(layout, fmt.Sprintf("%d_%d", r.Min.X, r.Min.Y))
			file := filepath.Join(dir, fmt.Sprintf("%d.h264", t))
			encode = append(encode, "-map", fmt.Sprintf("[t%d]", t), "-t", fmt.Sprint(seconds), "-r", fmt.Sprint(fps))
			encode = append(append(encode, x264(crf)...), file)
			join = append(join, "-r", fmt.Sprint(fps), "-threads", "1", "-i", file)
		}
		encode[3] = cut.String()
		if err := ffmpeg(ctx, encode...); err != nil {
			return nil, err
		}
		for t := range c.grid.Tiles() {
			file := filepath.Join(dir, fmt.Sprintf("%d.h264", t))
			sizes, err := gopBytes(file)
			if err != nil {
				return nil, err
			}
			encoded, err := readStream(file)
			if err != nil {
				return nil, err
			}
			c.encoded[t] = append(c.encoded[t], encoded)
			if len(sizes) != n {
				return nil, fmt.Errorf("tile %d has %d GoPs, but the low-resolution sphere has %d", t, len(sizes), n)
			}
			for g, b := range sizes {
				c.gops[g].Bytes[t*c.qualities+q] = b
			}
		}
		join = append(join, "-filter_complex", fmt.Sprintf("xstack=inputs=%d:layout=%s,format=yuv420p", c.grid.Tiles(),
			strings.Join(layout, "|")))
		errs, err := c.compare(ctx, original(), append(join, raw...), func(gop, tile int, mse float64) {
			c.gops[gop].Distortion[tile*c.qualities+q] = mse
		})
		if err != nil {
			return nil, err
		}
		c.errors = append(c.errors, errs)
	}
	c.errors = append(c.errors, shown, blank)
	return c, nil
}

var raw = []string{"-an", "-f", "rawvideo", "-"}

func ffmpegCommand(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ffmpeg", append([]string{"-hide_banner", "-nostdin", "-loglevel", "error", "-y"},
		args...)...)
}

func ffmpeg(ctx context.Context, args ...string) error {
	if out, err := ffmpegCommand(ctx, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ffmpeg: %w: %.500s", err, bytes.TrimSpace(out))
	}
	return nil
}

// gopBytes returns the sizes of a file's GoPs, each of which starts with a sequence parameter set.
func gopBytes(file string) ([]float64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var starts []int
	for i := 0; i+3 < len(b); i++ {
		if b[i] == 0 && b[i+1] == 0 && b[i+2] == 1 && b[i+3]&0x1f == 7 {
			starts = append(starts, i)
		}
	}
	if len(starts) == 0 {
		return nil, fmt.Errorf("%s contains no H.264 sequence", file)
	}
	var sizes []float64
	for i, s := range starts {
		end := len(b)
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		sizes = append(sizes, float64(end-s))
	}
	return sizes, nil
}

// stream is an H.264 stream divided into objects.
type stream struct {
	config []byte   // avcC
	frames [][]byte // length-prefixed NAL units
}

// readStream splits a byte stream with start codes into frames, which have one slice each.
func readStream(file string) (s stream, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return s, err
	}
	var sps, pps, frame []byte
	for len(b) > 0 {
		start := bytes.Index(b, []byte{0, 0, 1})
		if start < 0 {
			break
		}
		b = b[start+3:]
		end := bytes.Index(b, []byte{0, 0, 1})
		if end < 0 {
			end = len(b)
		}
		unit := bytes.TrimRight(b[:end], "\x00")
		b = b[end:]
		if len(unit) == 0 {
			continue
		}
		switch unit[0] & 0x1f {
		case 7:
			sps = unit
		case 8:
			pps = unit
		case 1, 5:
			frame = append(binary.BigEndian.AppendUint32(frame, uint32(len(unit))), unit...)
			s.frames = append(s.frames, frame)
			frame = nil
		}
	}
	s.config, err = loc.AVCConfig(sps, pps)
	return s, err
}

// compare runs two FFmpeg commands that write the original frames and the frames seen by the viewer.
// It returns the mean squared error by slot and cell, and passes each tile's mean squared error per
// GoP, weighted by solid angle, to distortion.
func (c *clip) compare(ctx context.Context, original, seen []string, distortion func(gop, tile int,
	mse float64),
) (slots [][]float32, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var streams [2]*bufio.Reader
	var commands [2]*exec.Cmd
	var complaints [2]bytes.Buffer
	for i, args := range [][]string{original, seen} {
		commands[i] = ffmpegCommand(ctx, args...)
		commands[i].Stderr = &complaints[i]
		out, err := commands[i].StdoutPipe()
		if err != nil {
			return nil, err
		}
		streams[i] = bufio.NewReaderSize(out, 1<<20)
		if err := commands[i].Start(); err != nil {
			return nil, err
		}
	}
	defer func() {
		cancel()
		for _, cmd := range commands {
			_ = cmd.Wait() // a read error has already been reported
		}
	}()
	w, h := c.grid.Width, c.grid.Height
	frames := [2][]byte{make([]byte, w*h*3/2), make([]byte, w*h*3/2)}

	// The cell and tile of each pixel, and the number of pixels per cell.
	cellOf, tileOf := make([]int32, w*h), make([]int32, w*h)
	pixels := make([]float32, cells)
	for y := range h {
		for x := range w {
			i := y*w + x
			cellOf[i] = int32(y*cellRows/h*cellColumns + x*cellColumns/w)
			pixels[cellOf[i]]++
		}
	}
	weights := make([]float64, c.grid.Tiles())
	for t := range c.grid.Tiles() {
		r := c.grid.Rect(t)
		for y := r.Min.Y; y < r.Max.Y; y++ {
			weights[t] += float64(r.Dx()) * tile360.RowWeight(y, h)
			for x := r.Min.X; x < r.Max.X; x++ {
				tileOf[y*w+x] = int32(t)
			}
		}
	}
	sums := make([]float64, c.grid.Tiles())
	rowSums := make([]float64, c.grid.Tiles())
	for frame := range len(c.video) * fps {
		for i := range streams {
			if _, err := io.ReadFull(streams[i], frames[i]); err != nil {
				return nil, fmt.Errorf("frame %d: %w: %s", frame, err, bytes.TrimSpace(complaints[i].Bytes()))
			}
		}
		if frame%framesPerSlot == 0 {
			slots = append(slots, make([]float32, cells))
		}
		if frame%fps == 0 {
			clear(sums)
		}
		errs := slots[len(slots)-1]
		for y := range h {
			clear(rowSums)
			a, b := frames[0][y*w:(y+1)*w], frames[1][y*w:(y+1)*w]
			for x := range w {
				d := int32(a[x]) - int32(b[x])
				if d != 0 {
					e := float32(d * d)
					errs[cellOf[y*w+x]] += e
					rowSums[tileOf[y*w+x]] += float64(e)
				}
			}
			for t, s := range rowSums {
				if s != 0 {
					sums[t] += s * tile360.RowWeight(y, h)
				}
			}
		}
		if frame%framesPerSlot == framesPerSlot-1 {
			for i := range errs {
				errs[i] /= pixels[i] * framesPerSlot
			}
		}
		if frame%fps == fps-1 {
			for t, s := range sums {
				distortion(frame/fps, t, s/(weights[t]*fps))
			}
		}
	}
	return slots, nil
}

// ray is a point of a viewport: its tile and cell in the image, and its share of the solid angle.
type ray struct {
	tile, cell int32
	weight     float32
}

// viewportRays is the number of evaluated points along each edge of a viewport.
const viewportRays = 32

// look returns the rays of a viewport.
func look(g tile360.Grid, p tile360.Viewport, gaze tile360.Vec) []ray {
	rays := make([]ray, 0, viewportRays*viewportRays)
	p.Each(gaze, viewportRays, viewportRays, func(v tile360.Vec, weight float64) {
		x, y := v.Equirect()
		cell := min(cellRows-1, int(y*cellRows))*cellColumns + min(cellColumns-1, int(x*cellColumns))
		rays = append(rays, ray{int32(g.At(x, y)), int32(cell), float32(weight)})
	})
	return rays
}
