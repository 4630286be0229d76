// Package codec measures the point-cloud codec on one thread: bytes per point, and encoding and
// decoding times of layouts A and B and of LiveScan3D's layout and zstd level. Runs are
// interleaved, so a busy machine slows all of them alike.
package codec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"holocast/internal/pointcloud"
	"holocast/internal/pointcloud/frametest"
)

// LiveScan3D's zstd level.
const liveScanLevel = 2

// Options configure Run.
type Options struct {
	// DataDir is the folder (HOLOCAST_DATA) that contains livescan_testdata. Without it, Run
	// measures a synthetic scene, and the result says so.
	DataDir string
	Quick   bool      // one frame per camera and few repetitions; takes seconds
	Log     io.Writer // progress lines; nil discards them
}

// Result holds the measurements.
type Result struct {
	Source string   `json:"source"` // "livescan_testdata" or "synthetic"
	Frames int      `json:"frames"` // over all cameras
	NFOV   Geometry `json:"nfov"`   // 640×576, the depth camera's grid
	FHD    Geometry `json:"fhd"`    // 1920×1080, depth warped into the color camera
}

// Geometry holds one grid's measurements, medians over all frames and repetitions.
type Geometry struct {
	Points   int    `json:"points"` // median over frames
	A        Layout `json:"a"`
	A4       Layout `json:"a4"` // layout A as four descriptions, summed
	B        Layout `json:"b"`
	LiveScan Layout `json:"livescan"` // layout C at LiveScan3D's zstd level
}

// Layout holds one layout's measurements.
type Layout struct {
	BytesPerPoint float64 `json:"bytes_per_point"` // headers included
	EncodeMs      float64 `json:"encode_ms"`
	EncodeMinMs   float64 `json:"encode_min_ms"`
	EncodeMaxMs   float64 `json:"encode_max_ms"`
	DecodeMs      float64 `json:"decode_ms"`
	DecodeMinMs   float64 `json:"decode_min_ms"`
	DecodeMaxMs   float64 `json:"decode_max_ms"`
	ZstdLevel     int     `json:"zstd_level"` // 0: entropy coding only
}

// Run runs the benchmark. It fails if a decoded frame differs from its input.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	repetitions, perCamera := 21, 0
	if o.Quick {
		repetitions, perCamera = 5, 1
	}
	result := Result{Source: "livescan_testdata"}
	frames, err := frametest.Load(o.DataDir, perCamera)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(o.Log, "HOLOCAST_DATA not found: %v; measuring a synthetic scene\n", err)
		result.Source = "synthetic"
		frames = []frametest.Frame{frametest.Synthetic(1), frametest.Synthetic(2)}
	} else if err != nil {
		return Result{}, err
	}
	result.Frames = len(frames)

	b, err := newBench()
	if err != nil {
		return Result{}, err
	}
	defer b.close()
	geometries := []struct {
		name  string
		cloud func(*frametest.Frame) *frametest.Cloud
		to    *Geometry
	}{
		{"nfov", func(f *frametest.Frame) *frametest.Cloud { return &f.NFOV }, &result.NFOV},
		{"fhd", func(f *frametest.Frame) *frametest.Cloud { return &f.FHD }, &result.FHD},
	}
	for _, g := range geometries {
		var samples [4]samples
		var points []float64
		for i := range frames {
			cloud := g.cloud(&frames[i])
			fmt.Fprintf(o.Log, "%s %s: %d points\n", g.name, frames[i].Name, len(cloud.Points.XYZ)/3)
			points = append(points, float64(len(cloud.Points.XYZ)/3))
			for range repetitions {
				if err := ctx.Err(); err != nil {
					return Result{}, err
				}
				if err := b.measure(cloud, &samples); err != nil {
					return Result{}, fmt.Errorf("%s %s: %w", g.name, frames[i].Name, err)
				}
			}
		}
		*g.to = Geometry{
			Points: int(median(points)),
			A:      samples[0].layout(0), A4: samples[1].layout(0), B: samples[2].layout(0),
			LiveScan: samples[3].layout(liveScanLevel),
		}
	}
	return result, nil
}

// samples holds one layout's figures, one per frame and repetition.
type samples struct{ bytesPerPoint, encode, decode []float64 }

func (s *samples) layout(level int) Layout {
	return Layout{
		BytesPerPoint: median(s.bytesPerPoint), ZstdLevel: level,
		EncodeMs: median(s.encode), EncodeMinMs: slices.Min(s.encode), EncodeMaxMs: slices.Max(s.encode),
		DecodeMs: median(s.decode), DecodeMinMs: slices.Min(s.decode), DecodeMaxMs: slices.Max(s.decode),
	}
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// bench holds the codecs and their buffers.
type bench struct {
	planes, liveScan *pointcloud.Encoder
	decoder          *pointcloud.Decoder
	objects          [4][]byte
	frame            pointcloud.Frame
}

func newBench() (*bench, error) {
	planes, err := pointcloud.NewEncoder(pointcloud.EncoderOptions{})
	if err != nil {
		return nil, err
	}
	liveScan, err := pointcloud.NewEncoder(pointcloud.EncoderOptions{Level: liveScanLevel})
	if err != nil {
		planes.Close()
		return nil, err
	}
	decoder, err := pointcloud.NewDecoder()
	if err != nil {
		planes.Close()
		liveScan.Close()
		return nil, err
	}
	return &bench{planes: planes, liveScan: liveScan, decoder: decoder}, nil
}

func (b *bench) close() {
	b.planes.Close()
	b.liveScan.Close()
	b.decoder.Close()
}

// measure encodes and decodes the cloud once in every layout.
func (b *bench) measure(c *frametest.Cloud, s *[4]samples) error {
	for i, m := range []struct {
		name         string
		encoder      *pointcloud.Encoder
		layout       pointcloud.Layout
		descriptions int
	}{
		{"layout A", b.planes, pointcloud.LayoutGrid, 1},
		{"layout A, four descriptions", b.planes, pointcloud.LayoutGrid, 4},
		{"layout B", b.planes, pointcloud.LayoutPoints, 1},
		{"layout C", b.liveScan, pointcloud.LayoutInterleaved, 1},
	} {
		if err := b.measureLayout(c, m.encoder, m.layout, m.descriptions, &s[i]); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

var errLossy = errors.New("the decoded frame differs from the input")

func (b *bench) measureLayout(c *frametest.Cloud, e *pointcloud.Encoder, l pointcloud.Layout, descriptions int,
	s *samples,
) error {
	h := pointcloud.Header{Descriptions: uint8(descriptions)}
	objects, from := b.objects[:descriptions], c.Frame(l)
	start := time.Now()
	for i := range objects {
		var err error
		if objects[i], err = e.Encode(objects[i][:0], h, from, i); err != nil {
			return err
		}
	}
	encoded := time.Now()
	if _, err := b.decoder.Decode(&b.frame, objects...); err != nil {
		return err
	}
	s.add(start, encoded, len(c.Points.XYZ)/3, objects)
	got := &b.frame
	lossy := !slices.Equal(got.Points.XYZ, from.Points.XYZ) || !slices.Equal(got.Points.RGB, from.Points.RGB)
	if l.OnGrid() {
		lossy = !slices.Equal(got.Grid.Depth, from.Grid.Depth) || !slices.Equal(got.Grid.Color, from.Grid.Color)
	}
	if lossy {
		return errLossy
	}
	return nil
}

// add records a sample whose decoding has just finished.
func (s *samples) add(start, encoded time.Time, points int, objects [][]byte) {
	s.decode = append(s.decode, time.Since(encoded).Seconds()*1e3)
	s.encode = append(s.encode, encoded.Sub(start).Seconds()*1e3)
	bytes := 0
	for _, o := range objects {
		bytes += len(o)
	}
	s.bytesPerPoint = append(s.bytesPerPoint, float64(bytes)/float64(max(points, 1)))
}

// Markdown returns the table.
func (r Result) Markdown() string {
	var b strings.Builder
	scene := "real Azure Kinect frames (LiveScan3D test data)"
	if r.Source == "synthetic" {
		scene = "synthetic frames: HOLOCAST_DATA was not found"
	}
	fmt.Fprintf(&b, "Bytes per point (encode / decode, milliseconds): one thread, medians over %d %s.\n\n", r.Frames,
		scene)
	fmt.Fprintf(&b, "| | NFOV, %d points | FHD-mapped, %d points |\n| --- | --- | --- |\n", r.NFOV.Points, r.FHD.Points)
	fmt.Fprintf(&b, "| raw | 9.00 | 9.00 |\n")
	for _, row := range []struct {
		name      string
		nfov, fhd Layout
	}{
		{fmt.Sprintf("LiveScan3D (interleaved, zstd %d)", liveScanLevel), r.NFOV.LiveScan, r.FHD.LiveScan},
		{"B, lossless", r.NFOV.B, r.FHD.B},
		{"A, four descriptions, lossless", r.NFOV.A4, r.FHD.A4},
		{"**A, lossless**", r.NFOV.A, r.FHD.A},
	} {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row.name, row.nfov.cell(), row.fhd.cell())
	}
	return b.String()
}

func (l Layout) cell() string {
	return fmt.Sprintf("%.2f (%.1f / %.1f)", l.BytesPerPoint, l.EncodeMs, l.DecodeMs)
}
