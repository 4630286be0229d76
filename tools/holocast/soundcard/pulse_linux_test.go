package soundcard

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"holocast/internal/pulse"
	"holocast/tools/holocast/player/sound"
)

// TestPulseAudio plays on a sink of a PulseAudio server.
func TestPulseAudio(t *testing.T) {
	server, err := pulse.Start(t.Context())
	if errors.Is(err, pulse.ErrMissing) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if _, err := server.AddSink(t.Context(), "ear", sound.SampleRate); err != nil {
		t.Fatal(err)
	}
	for _, variable := range server.Env {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "PULSE_") || name == "XDG_RUNTIME_DIR" {
			t.Setenv(name, value)
		}
	}
	log := slog.New(slog.DiscardHandler)
	if _, err := Open("nose", log); err == nil || !strings.Contains(err.Error(), `"ear"`) {
		t.Errorf("a missing device: %v", err)
	}
	d, err := Open("ear", log)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Latency != period {
		t.Errorf("latency %v, want PulseAudio's %v", d.Latency, period)
	}
	m := sound.New(d.Latency, log)
	defer m.Close()
	asked, once := make(chan struct{}), sync.Once{}
	m.Use(func(time.Time) (time.Time, sound.State) {
		once.Do(func() { close(asked) })
		return time.Time{}, sound.Unknown
	}, sound.Live)
	if err := d.Play(m); err != nil {
		t.Fatal(err)
	}
	<-asked
}
