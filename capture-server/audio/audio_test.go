package audio

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holocast/capture-server/publish"
	"holocast/capture-server/publish/publishtest"
	"holocast/internal/catalog"
	"holocast/internal/leaktest"
	"holocast/internal/opus"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestStream publishes generated sound and a recording that ends, both on streams.
func TestStream(t *testing.T) {
	p := publish.New(publish.Config{
		Namespace: publishtest.Namespace, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	t.Cleanup(p.Close)
	short, err := OpenRecording(ramp(t, 480), false)
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(p, catalog.DeliveryStream, []Microphone{
		{Input: &Generated{
			Label: "tone", Start: time.Now,
			Fill: func(dst []float32, _ int64) { copy(dst, sine(480, 1000, 48000)) },
		}},
		{Input: short},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Add(m); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	for m.microphones[0].track.Stats().Objects == 0 {
		select {
		case err := <-ran:
			t.Fatal(err)
		default:
		}
		if m.microphones[0].ended.Load() {
			t.Fatal("the tone ended")
		}
		time.Sleep(time.Millisecond)
	}
	for !m.microphones[1].ended.Load() {
		time.Sleep(time.Millisecond)
	}
	var c catalog.Catalog
	if err := m.Describe(&c); err != nil || len(c.Sounds()) != 1 {
		t.Errorf("after the recording's end the catalog has %+v, %v", c.Sounds(), err)
	}
	if !m.microphones[0].delivering() {
		t.Error("the tone does not count as delivering")
	}
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	packets := publishtest.Objects(t, p, "audio/0")
	if len(packets) == 0 {
		t.Error("no packets")
	}
	for _, b := range packets {
		if err := opus.Check(b, 1); err != nil {
			t.Error(err)
		}
	}
}

// ramp writes a mono 48 kHz WAV file whose sample i is i/32768.
func ramp(t *testing.T, samples int) string {
	t.Helper()
	le := binary.LittleEndian
	b := append([]byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00"), 0x80, 0xbb, 0, 0)
	b = append(le.AppendUint32(b, 2*48000), "\x02\x00\x10\x00data"...)
	b = le.AppendUint32(b, uint32(2*samples))
	for i := range samples {
		b = le.AppendUint16(b, uint16(i))
	}
	path := filepath.Join(t.TempDir(), "ramp.wav")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLoop checks that the sound of a take begins with each pass, also if a pass is no whole number of
// samples.
func TestLoop(t *testing.T) {
	for name, c := range map[string]struct {
		length int
		period time.Duration
	}{
		"as long":   {4800, 100 * time.Millisecond},
		"shorter":   {700, 100 * time.Millisecond},
		"longer":    {9000, 100 * time.Millisecond},
		"fraction":  {700, 33_333 * time.Microsecond},
		"no period": {700, 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := ramp(t, c.length)
			synctest.Test(t, func(t *testing.T) {
				began := time.Now().Add(20 * time.Millisecond)
				r, err := OpenLoop(path, func() time.Time { return began }, c.period)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = r.Close() }()
				period := c.period.Seconds() * 48000
				if c.period == 0 {
					period = float64(c.length)
				}
				var b Block
				for at := 0; at < 48000; {
					if err := r.Next(t.Context(), &b); err != nil {
						t.Fatal(err)
					}
					if want := began.Add(time.Duration(at) * time.Second / 48000); !b.Time.Equal(want) {
						t.Fatalf("sample %d at %v, want %v", at, b.Time, want)
					}
					for _, x := range b.Samples {
						pass := math.Floor(float64(at) / period)
						place := at - int(math.Ceil(pass*period))
						if place < 0 {
							place = at - int(math.Ceil((pass-1)*period))
						}
						want := float32(0)
						if place < c.length {
							want = float32(int16(place)) / 32768
						}
						if x != want {
							t.Fatalf("sample %d is %v, want %v", at, x*32768, want*32768)
						}
						at++
					}
				}
			})
		})
	}
}

// TestRecording checks that a recording plays at its rate, loops without a gap, and skips samples
// after a long stall.
func TestRecording(t *testing.T) {
	const length = 700
	for _, loop := range []bool{false, true} {
		path := ramp(t, length)
		synctest.Test(t, func(t *testing.T) {
			r, err := OpenRecording(path, loop)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = r.Close() }()
			began := time.Now()
			var b Block
			at := int64(0)
			for range 10 {
				err := r.Next(t.Context(), &b)
				if !loop && at+480 > length {
					if !errors.Is(err, io.EOF) {
						t.Errorf("at the end: %v", err)
					}
					return
				}
				if err != nil || b.Lost || !b.Time.Equal(began.Add(time.Duration(at)*time.Second/48000)) {
					t.Fatalf("sample %d at %v, lost %v: %v", at, b.Time.Sub(began), b.Lost, err)
				}
				for _, x := range b.Samples {
					if x != float32(at%length)/32768 {
						t.Fatalf("sample %d is %v", at, x*32768)
					}
					at++
				}
			}
			time.Sleep(3 * time.Second)
			if err := r.Next(t.Context(), &b); err != nil || !b.Lost || time.Since(b.Time) > 20*time.Millisecond {
				t.Errorf("after a stall: %v old, lost %v, %v", time.Since(b.Time), b.Lost, err)
			}
		})
	}
}

// TestRecordingStallsAtItsEnd checks that a stall that skips the rest of a recording ends it.
func TestRecordingStallsAtItsEnd(t *testing.T) {
	path := ramp(t, 48000)
	synctest.Test(t, func(t *testing.T) {
		r, err := OpenRecording(path, false)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Close() }()
		var b Block
		if err := r.Next(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if err := r.Next(t.Context(), &b); !errors.Is(err, io.EOF) {
			t.Errorf("%v, first sample %v; want the end", err, b.Samples[0])
		}
	})
}
