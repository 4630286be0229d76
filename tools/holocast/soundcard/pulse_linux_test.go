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

// startServer starts a PulseAudio server with a sink named ear. It returns the sink's module.
func startServer(t *testing.T) (server *pulse.Server, module string) {
	t.Helper()
	server, err := pulse.Start(t.Context())
	if errors.Is(err, pulse.ErrMissing) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	if module, err = server.AddSink(t.Context(), "ear", sound.SampleRate); err != nil {
		t.Fatal(err)
	}
	for _, variable := range server.Env {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "PULSE_") || name == "XDG_RUNTIME_DIR" {
			t.Setenv(name, value)
		}
	}
	return server, module
}

// TestPulseAudio plays on a sink of a PulseAudio server.
func TestPulseAudio(t *testing.T) {
	startServer(t)
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

// TestDeviceComesBack removes the only device during playback and adds it again.
func TestDeviceComesBack(t *testing.T) {
	server, module := startServer(t)
	control := func(args ...string) string {
		t.Helper()
		out, err := server.Control(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	control("unload-module", "module-always-sink") // it would replace the device at once
	logged := make(logLines, 10)
	d, err := Open("ear", slog.New(slog.NewTextHandler(logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	m := sound.New(d.Latency, slog.New(slog.DiscardHandler))
	defer m.Close()
	asked := make(chan struct{}, 1)
	m.Use(func(time.Time) (time.Time, sound.State) {
		select {
		case asked <- struct{}{}:
		default:
		}
		return time.Time{}, sound.Unknown
	}, sound.Live)
	if err := d.Play(m); err != nil {
		d.Close()
		t.Fatal(err)
	}
	<-asked
	control("unload-module", module)
	if line := <-logged; !strings.Contains(line, "level=WARN") || !strings.Contains(line, "device=ear") {
		t.Errorf("logged %q when the device disappeared", line)
	}
	if _, err := server.AddSink(t.Context(), "ear", sound.SampleRate); err != nil {
		t.Fatal(err)
	}
	if line := <-logged; !strings.Contains(line, "level=INFO") || !strings.Contains(line, "device=ear") {
		t.Errorf("logged %q when the device was back", line)
	}
	select {
	case <-asked: // perhaps by the lost device
	default:
	}
	<-asked
	if streams := control("list", "short", "sink-inputs"); !strings.Contains(streams, "protocol-native") {
		t.Errorf("the server plays %q", streams)
	}
	d.Close()
	if n := len(logged); n > 0 {
		t.Errorf("%d more lines were logged, such as %q", n, <-logged)
	}
}

// logLines receives lines of a log.
type logLines chan string

func (l logLines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}
