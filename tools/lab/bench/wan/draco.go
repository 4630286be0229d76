package wan

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"holocast/internal/plyfile"
	"holocast/internal/pointcloud"
)

// Draco is Google's codec for meshes and point clouds (Debian's package draco).
const (
	dracoEncoder, dracoDecoder = "draco_encoder", "draco_decoder"
	dracoBits                  = "12" // per coordinate: about 1.4 mm in a room
)

// hasDraco reports whether Draco's programs are installed.
func hasDraco() bool {
	_, e := exec.LookPath(dracoEncoder)
	_, d := exec.LookPath(dracoDecoder)
	return e == nil && d == nil
}

// dracoFrame is one frame in Draco.
type dracoFrame struct {
	bytes    int
	encodeMs float64 // as reported by the program, without reading and writing files
	decodeMs float64
	cloud    cloud
}

var milliseconds = regexp.MustCompile(`\((\d+) ms to (?:en|de)code\)`)

// encodeDraco encodes and decodes a frame's points.
func encodeDraco(ctx context.Context, p pointcloud.Points) (f dracoFrame, err error) {
	dir, err := os.MkdirTemp("", "holocast-bench-*")
	if err != nil {
		return f, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	from, coded, to := filepath.Join(dir, "in.ply"), filepath.Join(dir, "frame.drc"), filepath.Join(dir, "out.ply")
	in, err := os.Create(from)
	if err != nil {
		return f, err
	}
	err = plyfile.Write(in, p)
	if e := in.Close(); err == nil {
		err = e
	}
	if err != nil {
		return f, err
	}
	if f.encodeMs, err = timed(ctx, dracoEncoder, "-point_cloud", "-qp", dracoBits, "-i", from, "-o", coded); err != nil {
		return f, err
	}
	if f.decodeMs, err = timed(ctx, dracoDecoder, "-i", coded, "-o", to); err != nil {
		return f, err
	}
	info, err := os.Stat(coded)
	if err != nil {
		return f, err
	}
	f.bytes = int(info.Size())
	out, err := os.Open(to)
	if err != nil {
		return f, err
	}
	defer func() { _ = out.Close() }() // read-only
	decoded, err := plyfile.Read(out)
	if err != nil {
		return f, fmt.Errorf("%s: %w", dracoDecoder, err)
	}
	for i := 0; i+2 < len(decoded.XYZ); i += 3 {
		p := decoded.XYZ[i : i+3] // metres
		f.cloud.at = append(f.cloud.at, [3]float32{1000 * p[0], 1000 * p[1], 1000 * p[2]})
	}
	return f, nil
}

// timed runs a program and returns the time that it reports.
func timed(ctx context.Context, program string, args ...string) (ms float64, err error) {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %.300s", program, err, out)
	}
	m := milliseconds.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("%s reports no time: %.300s", program, out)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}
