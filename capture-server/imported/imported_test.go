package imported

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"holocast/capture-server/publish"
	"holocast/capture-server/publish/publishtest"
	"holocast/capture-server/source"
	"holocast/internal/catalog"
	"holocast/internal/leaktest"
	"holocast/internal/pointcloud"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// script is a source that returns the given errors in turn, with a cloud of one point for each nil.
type script struct {
	steps  []error // nil yields a cloud
	at     int
	closed bool
}

func (s *script) Name() string   { return "script" }
func (s *script) FPS() float64   { return 30 }
func (s *script) MaxPoints() int { return 1 }
func (s *script) Close() error   { s.closed = true; return nil }

func (s *script) Next(_ context.Context, c *source.Cloud) error {
	if s.at == len(s.steps) {
		return io.EOF
	}
	err := s.steps[s.at]
	s.at++
	c.XYZ, c.RGB = append(c.XYZ[:0], int16(s.at), 2, 3), append(c.RGB[:0], 4, 5, 6)
	c.DeviceTime, c.CaptureTime = time.Duration(s.at)*time.Millisecond, time.Now()
	return err
}

func TestClouds(t *testing.T) {
	p := publish.New(publish.Config{Namespace: publishtest.Namespace, Log: slog.New(slog.DiscardHandler)})
	src := &script{steps: []error{nil, &source.DamageError{Err: errors.New("damage")}, nil}}
	m, err := New(p, Config{First: 4, AlwaysEncode: true}, []source.Clouds{src})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Add(m); err != nil {
		t.Fatal(err)
	}
	c := &catalog.Catalog{}
	if err := m.Describe(c); err != nil {
		t.Fatal(err)
	}
	if len(c.Tracks) != 1 || c.Tracks[0].Name != "points/4/full" || c.Tracks[0].Points.Layout != "B" {
		t.Fatalf("catalog %+v", c.Tracks)
	}
	if ref := c.Tracks[0].InitRef; ref != "" {
		t.Errorf("a cloud without a camera has the lens %q", ref)
	}
	if err := m.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	d, err := pointcloud.NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	got := publishtest.Objects(t, p, "points/4/full")
	if len(got) == 0 {
		t.Fatal("no frame in the cache")
	}
	var f pointcloud.Frame
	h, err := d.Decode(&f, got[len(got)-1])
	if err != nil || h.Camera != 4 || h.Sequence != 1 || h.DeviceTime != 3000 ||
		!slices.Equal(f.Points.XYZ, []int16{3, 2, 3}) ||
		!slices.Equal(f.Points.RGB, []byte{4, 5, 6}) {
		t.Errorf("header %+v, points %+v, error %v", h, f.Points, err)
	}
	if err := m.Describe(c); err != nil || len(c.Tracks) != 1 {
		t.Errorf("an ended source is still in the catalog: %d tracks", len(c.Tracks))
	}
	p.Close()
	if !src.closed {
		t.Error("the source is not closed")
	}
}

func TestCloudsFail(t *testing.T) {
	p := publish.New(publish.Config{Namespace: publishtest.Namespace, Log: slog.New(slog.DiscardHandler)})
	broken := errors.New("broken")
	m, err := New(p, Config{}, []source.Clouds{&script{steps: []error{nil, broken}}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Run(t.Context()); !errors.Is(err, broken) || !errors.Is(err, errNoCloud) {
		t.Errorf("error %v", err)
	}
}
