package livescanfiles

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holocast/capture-server/source"
	"holocast/capture-server/source/pace"
)

// appendBin appends a frame in LiveScan3D's format, followed by end.
func appendBin(b []byte, stamp int64, points int, first int16, end string) []byte {
	b = fmt.Appendf(b, "n_points= %d\nframe_timestamp= %d\n", points, int32(stamp)) //nolint:gosec // as LiveScan3D
	for i := range points {
		for _, v := range []int16{first, int16(i), -7} {
			b = binary.LittleEndian.AppendUint16(b, uint16(v))
		}
	}
	for i := range points {
		b = append(b, byte(i), 20, 30, 255)
	}
	return append(b, end...)
}

func openBytes(t *testing.T, file []byte) *Bin {
	t.Helper()
	path := filepath.Join(t.TempDir(), "recording_0.bin")
	write(t, path, file)
	b, err := OpenBin(path, pace.NewTake(true, nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestBin(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name   string
		stamps []int64
		end    string
		times  []time.Duration
	}{
		{"microseconds", []int64{5_000_000, 5_010_000, 5_030_000}, "\n", []time.Duration{0, 10 * ms, 30 * ms, 40 * ms}},
		{"milliseconds", []int64{100, 110, 130}, "\n", []time.Duration{0, 10 * ms, 30 * ms, 40 * ms}},
		{"no line break after a frame", []int64{0, 10_000, 20_000}, "", []time.Duration{0, 10 * ms, 20 * ms, 30 * ms}},
		{
			"stamps wrap",
			[]int64{1<<31 - 5000, 1<<31 + 5000, 1<<31 + 15000},
			"\n",
			[]time.Duration{0, 10 * ms, 20 * ms, 30 * ms},
		},
		{
			"a clock that stepped back",
			[]int64{50_000, 60_000, 10_000, 20_000},
			"\n",
			[]time.Duration{0, 10 * ms, 20 * ms, 30 * ms, 40 * ms},
		},
		{"one frame", []int64{7}, "", []time.Duration{0, 33333333 * time.Nanosecond}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var file []byte
			for i, s := range tt.stamps {
				file = appendBin(file, s, i+1, int16(100*i), tt.end)
			}
			synctest.Test(t, func(t *testing.T) {
				b := openBytes(t, file)
				var c source.Cloud
				var first time.Duration
				for k, want := range tt.times {
					if err := b.Next(t.Context(), &c); err != nil {
						t.Fatal(err)
					}
					i := k % len(tt.stamps)
					if len(c.XYZ) != 3*(i+1) || !slices.Equal(c.XYZ[3*i:], []int16{int16(100 * i), int16(i), -7}) ||
						!bytes.Equal(c.RGB[3*i:], []byte{byte(i), 20, 30}) {
						t.Errorf("frame %d: points %v %v", k, c.XYZ, c.RGB)
					}
					if k == 0 {
						first = c.DeviceTime
					}
					if got := c.DeviceTime - first; got != want {
						t.Errorf("frame %d is due after %v, want %v", k, got, want)
					}
				}
			})
		})
	}
}

// TestBinsInStep plays two clients' recordings of one take for three passes.
func TestBinsInStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		take := pace.NewTake(true, nil)
		var bins []*Bin
		for i, stamps := range [][]int64{{5_000_000, 5_010_000, 5_020_000}, {5_011_000, 5_021_000, 5_031_000, 5_041_000}} {
			var file []byte
			for _, s := range stamps {
				file = appendBin(file, s, 1, int16((s-5_000_000)/1000), "\n")
			}
			path := filepath.Join(t.TempDir(), fmt.Sprintf("client_%d.bin", i))
			write(t, path, file)
			b, err := OpenBin(path, take)
			if err != nil {
				t.Fatal(err)
			}
			bins = append(bins, b)
		}
		start := time.Now()
		var all sync.WaitGroup
		for _, b := range bins {
			all.Go(func() {
				defer func() { _ = b.Close() }()
				for k := range 3 * len(b.frames) {
					var c source.Cloud
					if err := b.Next(t.Context(), &c); err != nil {
						t.Error(err)
						return
					}
					at := time.Duration(k/len(b.frames))*51*time.Millisecond + time.Duration(c.XYZ[0])*time.Millisecond
					if got := c.CaptureTime.Sub(start); got != at || c.DeviceTime != 5*time.Second+at {
						t.Errorf("%s: frame %d plays at %v as %v, want %v", b.Name(), k, got, c.DeviceTime, at)
					}
				}
			})
		}
		all.Wait()
	})
}

func TestBinEmptyFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBytes(t, appendBin(appendBin(nil, 0, 0, 0, ""), 10_000, 2, 1, "\n"))
		var c source.Cloud
		for _, want := range []int{0, 2} {
			if err := b.Next(t.Context(), &c); err != nil || len(c.XYZ) != 3*want {
				t.Errorf("%d points, error %v, want %d", len(c.XYZ)/3, err, want)
			}
		}
	})
}

// TestBinTruncated checks that a truncated recording plays up to the damage and reports it once.
func TestBinTruncated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := appendBin(nil, 0, 2, 1, "\n")
		whole = appendBin(whole, 10_000, 2, 2, "\n")
		cut := appendBin(slices.Clone(whole), 20_000, 50, 3, "\n")
		b := openBytes(t, cut[:len(cut)-20])
		var c source.Cloud
		if err := b.Next(t.Context(), &c); err != nil {
			t.Fatal(err)
		}
		var damage *source.DamageError
		if err := b.Next(t.Context(), &c); !errors.As(err, &damage) ||
			!strings.Contains(err.Error(), "frame 2: truncated: 50 points need 500 bytes, 481 are left") {
			t.Errorf("error %v", err)
		}
		for range 3 {
			if err := b.Next(t.Context(), &c); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestOpenBinRefuses(t *testing.T) {
	tests := []struct {
		name, file, want string
	}{
		{"empty", "", "no frames"},
		{"another file", "PLY or so\n", "byte 0, frame 0: no LiveScan3D frame"},
		{"one line", "n_points= 5\n", "no LiveScan3D frame"},
		{"no number", "n_points= five\nframe_timestamp= 3\n", "no LiveScan3D frame"},
		{"huge", "n_points= 99999999999\nframe_timestamp= 3\n", "n_points= 99999999999, want 0 to 12582912"},
		{"negative", "n_points= -1\nframe_timestamp= 3\n", "n_points= -1"},
		{"cut off", "n_points= 3\nframe_timestamp= 3\nabc", "truncated: 3 points need 30 bytes, 3 are left"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.bin")
			write(t, path, []byte(tt.file))
			if _, err := OpenBin(path, pace.NewTake(true, nil)); err == nil || !strings.Contains(err.Error(), tt.want) ||
				!strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
	if _, err := OpenBin(filepath.Join(t.TempDir(), "none.bin"), nil); err == nil ||
		!strings.Contains(err.Error(), "none.bin: no such file") {
		t.Errorf("error %v", err)
	}
}

func FuzzIndexBin(f *testing.F) {
	f.Add(appendBin(appendBin(nil, 0, 2, 1, "\n"), 10_000, 3, 1, ""))
	f.Add([]byte("n_points= 0\nframe_timestamp= 0\nn_points= 0\nframe_timestamp= 0\n"))
	f.Add([]byte("n_points= 3\r\nframe_timestamp= -3\r\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		frames, stamps, _ := indexBin(bytes.NewReader(file), int64(len(file)))
		if len(frames) != len(stamps) {
			t.Fatalf("%d frames, %d stamps", len(frames), len(stamps))
		}
		for _, b := range frames {
			if b.at < 0 || b.at+int64(b.points)*binPoint > int64(len(file)) {
				t.Errorf("frame at %d of %d points is beyond the file's %d bytes", b.at, b.points, len(file))
			}
		}
		if len(frames) > 0 {
			if times, step := binTimes(stamps); len(times) != len(frames) || step <= 0 {
				t.Fatalf("%d times, %v apart, of %d frames", len(times), step, len(frames))
			}
		}
	})
}
