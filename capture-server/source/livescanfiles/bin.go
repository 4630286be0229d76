package livescanfiles

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"holocast/capture-server/source"
	"holocast/capture-server/source/pace"
	"holocast/internal/catalog"
)

// Limits of a .bin recording.
const (
	maxBinPoints = catalog.MaxPoints // per frame
	maxBinFrames = 1 << 20
	maxBinHeader = 96 // bytes of a frame's two text lines
	binPoint     = 10 // bytes: x y z int16 in millimetres, then red green blue alpha of all points
)

// errBinHeader is returned where a frame should begin but has no frame header.
var errBinHeader = errors.New("no LiveScan3D frame: want the lines n_points= N and frame_timestamp= T")

// binFrame locates a frame's points in the file.
type binFrame struct {
	at     int64
	points int
}

// Bin plays a .bin recording of LiveScan3D, timed by its timestamps. It holds the points of one
// client or of all clients, in studio space.
type Bin struct {
	name   string
	file   *os.File
	frames []binFrame
	times  []time.Duration
	next   int   // index of the next frame
	damage error // why the recording is truncated; nil once reported
	part   *pace.Part
	fps    float64
	buf    []byte
}

// OpenBin opens a recording as part of a take. A truncated recording plays up to the damage. Errors
// name the file and the byte offset.
func OpenBin(path string, take *pace.Take) (*Bin, error) {
	b, err := openBin(path, take)
	if err != nil {
		return nil, fmt.Errorf("livescan: %s: %w", path, err)
	}
	return b, nil
}

func openBin(path string, take *pace.Take) (_ *Bin, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	frames, stamps, damage := indexBin(f, info.Size())
	if len(frames) == 0 {
		if damage == nil {
			damage = errors.New("no frames")
		}
		return nil, damage
	}
	b := &Bin{
		name: strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), file: f, frames: frames, damage: damage,
	}
	var step time.Duration
	b.times, step = binTimes(stamps)
	b.fps = 1 / step.Seconds()
	b.part = take.Join(b.name, b.times[0], step)
	return b, nil
}

// indexBin locates the complete frames of a recording of size bytes and their timestamps. err
// explains why the index ends early.
func indexBin(r io.ReaderAt, size int64) (frames []binFrame, stamps []int32, err error) {
	header := make([]byte, maxBinHeader)
	for at := int64(0); len(frames) < maxBinFrames; {
		n, rerr := r.ReadAt(header, at)
		if rerr != nil && !errors.Is(rerr, io.EOF) {
			return frames, stamps, rerr
		}
		// Only some versions of LiveScan3D end a frame with a line break.
		text := bytes.TrimLeft(header[:n], "\r\n")
		if len(text) == 0 && at+int64(n) >= size {
			return frames, stamps, nil
		}
		points, stamp, length, perr := parseBinHeader(text)
		if perr != nil {
			return frames, stamps, fmt.Errorf("byte %d, frame %d: %w", at, len(frames), perr)
		}
		at += int64(n - len(text) + length)
		if at+int64(points)*binPoint > size {
			return frames, stamps, fmt.Errorf("byte %d, frame %d: truncated: %d points need %d bytes, %d are left", at,
				len(frames), points, int64(points)*binPoint, size-at)
		}
		frames, stamps = append(frames, binFrame{at, points}), append(stamps, stamp)
		at += int64(points) * binPoint
	}
	return frames, stamps, fmt.Errorf("more than %d frames", maxBinFrames)
}

// parseBinHeader parses a frame's two lines. length includes the last line break.
func parseBinHeader(text []byte) (points int, stamp int32, length int, err error) {
	field := func(name string) (int64, error) {
		line, _, found := bytes.Cut(text[length:], []byte{'\n'})
		value, ok := strings.CutPrefix(strings.TrimRight(string(line), "\r"), name)
		if !found || !ok {
			return 0, errBinHeader
		}
		length += len(line) + 1
		v, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		if err != nil {
			return 0, errBinHeader
		}
		return v, nil
	}
	n, err := field("n_points=")
	if err != nil {
		return 0, 0, 0, err
	}
	t, err := field("frame_timestamp=")
	if err != nil {
		return 0, 0, 0, err
	}
	if n < 0 || n > maxBinPoints {
		return 0, 0, 0, fmt.Errorf("n_points= %d, want 0 to %d", n, maxBinPoints)
	}
	return int(n), int32(t), length, nil //nolint:gosec // LiveScan3D writes the low 32 bits
}

// binTimes converts timestamps, stored as their low 32 bits, to times that do not wrap. step is the
// median interval. The unit is the microsecond, or the millisecond in old recordings; binTimes can
// tell, since no camera captures 1000 frames per second.
func binTimes(stamps []int32) (times []time.Duration, step time.Duration) {
	times = make([]time.Duration, len(stamps))
	times[0] = time.Duration(uint32(stamps[0])) //nolint:gosec // the low bits
	for i := 1; i < len(stamps); i++ {
		times[i] = times[i-1] + time.Duration(stamps[i]-stamps[i-1]) // wraps like the timestamps
	}
	scale := 1000 // ns
	if step = pace.Interval(times); step > 0 && step < 1000 {
		scale = 1_000_000
	}
	for i := range times {
		times[i] *= time.Duration(scale)
	}
	return times, cmp.Or(step*time.Duration(scale), time.Second/30)
}

// Name returns the file's name without its extension.
func (b *Bin) Name() string { return b.name }

// FPS returns the median frame rate.
func (b *Bin) FPS() float64 { return b.fps }

// MaxPoints returns the number of points of the largest frame.
func (b *Bin) MaxPoints() int {
	most := 1
	for _, f := range b.frames {
		most = max(most, f.points)
	}
	return most
}

// Next waits for the next frame. In a truncated recording it once returns a [source.DamageError] in
// place of the last complete frame.
func (b *Bin) Next(ctx context.Context, c *source.Cloud) error {
	m := pace.Moment{Late: true}
	for m.Late {
		if b.next == len(b.frames) {
			if err := b.part.Again(ctx); err != nil {
				return err
			}
			b.next = 0
		}
		var err error
		if m, err = b.part.Wait(ctx, b.times[b.next]); err != nil {
			return err
		}
		b.next++
	}
	i := b.next - 1
	if i == len(b.frames)-1 && b.damage != nil {
		err := b.damage
		b.damage = nil
		return &source.DamageError{Err: fmt.Errorf("livescan: %s: %w", b.file.Name(), err)}
	}
	f := b.frames[i]
	b.buf = slices.Grow(b.buf[:0], f.points*binPoint)[:f.points*binPoint]
	if _, err := b.file.ReadAt(b.buf, f.at); err != nil {
		return &source.DamageError{Err: fmt.Errorf("livescan: %w", err)}
	}
	c.XYZ = slices.Grow(c.XYZ[:0], 3*f.points)[:3*f.points]
	c.RGB = slices.Grow(c.RGB[:0], 3*f.points)[:3*f.points]
	for i := range c.XYZ {
		c.XYZ[i] = int16(binary.LittleEndian.Uint16(b.buf[2*i:])) //nolint:gosec // two's complement
	}
	for i, at := 0, 6*f.points; i < len(c.RGB); i, at = i+3, at+4 {
		copy(c.RGB[i:i+3], b.buf[at:])
	}
	c.DeviceTime, c.CaptureTime = m.Device, m.Due
	return nil
}

// Close closes the file.
func (b *Bin) Close() error {
	b.part.Leave()
	return b.file.Close()
}
