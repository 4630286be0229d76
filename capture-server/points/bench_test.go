package points

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"holocast/capture-server/source"
	"holocast/capture-server/source/livescanfiles"
	"holocast/internal/pointcloud"
)

// realCamera opens the first camera of the recorded studio, in NFOV unbinned and 720p modes.
func realCamera(b *testing.B) source.Source {
	b.Helper()
	data := os.Getenv("HOLOCAST_DATA")
	if data == "" {
		data = filepath.Join("..", "..", "..", "shared", "data")
	}
	dir := filepath.Join(data, "livescan_testdata", "virtualdevice0")
	if _, err := os.Stat(dir); err != nil {
		b.Skipf("HOLOCAST_DATA not found: %v", err)
	}
	sources, err := livescanfiles.Open(dir, livescanfiles.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return sources[0]
}

// BenchmarkPublish measures the mapping and encoding of one frame of a real camera.
func BenchmarkPublish(b *testing.B) {
	tests := []struct {
		name string
		cfg  Config
	}{
		{"a", Config{}},
		{"a_low", Config{Low: true}},
		{"a_4_descriptions", Config{Descriptions: 4}},
		{"b", Config{Layout: pointcloud.LayoutPoints}},
		{"c", Config{Layout: pointcloud.LayoutInterleaved}},
	}
	for _, tt := range tests {
		b.Run(tt.name, func(b *testing.B) {
			tt.cfg.AlwaysEncode = true
			m := newMedium(b, tt.cfg, realCamera(b))
			l := m.pipelines[0]
			c := &capture{}
			if err := l.src.Next(b.Context(), &c.Frame); err != nil {
				b.Fatal(err)
			}
			l.publish(c)
			b.ReportAllocs()
			for b.Loop() {
				l.publish(c)
			}
			b.ReportMetric(float64(l.tracks[0].Stats().Bytes)/float64(b.N+1), "bytes/frame")
		})
	}
}

// BenchmarkFrame measures the time a real frame takes from the source to the track.
func BenchmarkFrame(b *testing.B) {
	m := newMedium(b, Config{AlwaysEncode: true}, realCamera(b))
	l := m.pipelines[0]
	var f source.Frame
	if err := l.src.Next(b.Context(), &f); err != nil {
		b.Fatal(err)
	}
	frame := func() {
		l.take(f)
		l.publish(l.next())
	}
	for range 10 {
		frame()
	}
	b.ReportAllocs()
	for b.Loop() {
		frame()
	}
}

// BenchmarkTake measures how long queueing a real capture blocks its source.
func BenchmarkTake(b *testing.B) {
	m := newMedium(b, Config{AlwaysEncode: true}, realCamera(b))
	l := m.pipelines[0]
	var f source.Frame
	if err := l.src.Next(b.Context(), &f); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		l.take(f)
	}
}

// timed records the capture time of its newest frame, in ns since 1970.
type timed struct {
	source.Source
	captured atomic.Int64
}

func (t *timed) Next(ctx context.Context, f *source.Frame) error {
	err := t.Source.Next(ctx, f)
	t.captured.Store(f.CaptureTime.UnixNano())
	return err
}

// BenchmarkLatency measures the time from capture to publication at 30 frames per second.
func BenchmarkLatency(b *testing.B) {
	camera := &timed{Source: realCamera(b)}
	m := newMedium(b, Config{AlwaysEncode: true}, camera)
	l := m.pipelines[0]
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- l.run(ctx) }()
	track := l.tracks[0]
	var latencies []time.Duration
	for b.Loop() {
		published := track.newest.Load()
		for track.newest.Load() == published {
			time.Sleep(500 * time.Microsecond)
		}
		latencies = append(latencies, time.Duration(track.newest.Load().UnixNano()-camera.captured.Load()))
	}
	cancel()
	if err := <-done; err != nil && ctx.Err() == nil {
		b.Fatal(err)
	}
	slices.Sort(latencies)
	ms := func(q float64) float64 {
		return latencies[int(q*float64(len(latencies)-1))].Seconds() * 1e3
	}
	b.ReportMetric(ms(0.5), "ms-p50")
	b.ReportMetric(ms(0.99), "ms-p99")
	b.ReportMetric(0, "ns/op")
}
