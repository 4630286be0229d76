package sound

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"holocast/internal/pause"
	"holocast/internal/pulse"
	"holocast/internal/qoe"
	"holocast/tools/lab/bench/internal/load"
)

const (
	// startLimit bounds the time until the player plays; rendering the synthetic performer takes time.
	startLimit = 2 * time.Minute
	// warmup precedes the first chirp, so that jitter buffer and clocks settle.
	warmup = 7 * time.Second
)

// session is the programs of one measurement.
type session struct {
	pulse      *pulse.Server
	relay      *load.Relay
	began      time.Time
	mouth, ear recording
	recorders  []*process
	list       []*process // all, in start order
}

// measure measures with publisher and relay on host a and the player on host b.
func measure(ctx context.Context, p programs, d time.Duration, a, b host) (*Figures, error) {
	server, err := pulse.Start(ctx)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	s := &session{pulse: server, began: time.Now()}
	defer s.stop()
	if err := s.record(ctx); err != nil {
		return nil, err
	}
	if s.relay, err = load.StartAt(p.relay, a.addr, a.start, load.Unlimited()...); err != nil {
		return nil, err
	}
	hash := s.relay.Hash()
	target := []string{"moqt://" + s.relay.Addr() + "/bench", "--certificate-hash", hex.EncodeToString(hash[:])}
	capture := []string{
		"--source", "synthetic", "--cameras", "1", "--depth-mode", "NFOV_2X2BINNED", "--fps", "15", "--audio",
		"Monitor of mouth",
	}
	if _, err := s.run(a, s.command(p.capture, append(capture, target...)...)); err != nil {
		return nil, err
	}
	play := []string{"play", "--wait", "--audio=ear", "--json"}
	player, err := s.run(b, s.command(p.player, append(play, target...)...))
	if err != nil {
		return nil, err
	}
	if err := s.await(ctx, player, "sound"); err != nil {
		return nil, err
	}
	r := &Figures{Seconds: d.Seconds()}
	use := s.processors()
	if err := s.speak(ctx, d); err != nil {
		return nil, err
	}
	r.Busy, r.Others = use.since(s.processors())
	if err := s.check(); err != nil {
		return nil, err
	}
	if err := r.played(player); err != nil {
		return nil, err
	}
	for _, x := range s.recorders {
		x.stop()
	}
	r.compare(&s.mouth, &s.ear)
	return r, nil
}

// record adds the two sinks and records them.
func (s *session) record(ctx context.Context) error {
	for _, d := range []struct {
		sink string
		to   *recording
	}{{"mouth", &s.mouth}, {"ear", &s.ear}} {
		if _, err := s.pulse.AddSink(ctx, d.sink, sampleRate); err != nil {
			return err
		}
		from, to := io.Pipe()
		recorded := make(chan struct{})
		go func() {
			defer close(recorded)
			_ = d.to.record(from, func() time.Duration { return time.Since(s.began) }) // a pipe fails only at its end
		}()
		cmd := s.command("parec", s.stream(d.sink+".monitor", 5)...)
		cmd.Stdout = to
		finish := func() {
			_ = to.Close()
			<-recorded
		}
		x, err := s.run(here, cmd, finish)
		if err != nil {
			finish()
			return err
		}
		s.recorders = append(s.recorders, x)
	}
	return nil
}

// stream returns the arguments of pacat and parec.
func (s *session) stream(device string, latency int) []string {
	return []string{
		"--device=" + device, "--raw", "--format=s16le", fmt.Sprintf("--rate=%d", sampleRate), "--channels=1",
		fmt.Sprintf("--latency-msec=%d", latency),
	}
}

// await waits until a program's stderr contains text.
func (s *session) await(ctx context.Context, x *process, text string) error {
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !x.stderr.contains(text) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			return fmt.Errorf("%s did not play within %v: %s", x.cmd.Path, startLimit, x.stderr.last())
		}
		if err := s.check(); err != nil {
			return err
		}
	}
	return nil
}

// speak plays the chirps into the mouth, and waits until they are heard.
func (s *session) speak(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, warmup+d+startLimit)
	defer cancel()
	cmd := s.command("pacat", append(s.stream("mouth", 20), "--playback")...)
	cmd.Stdin = bytes.NewReader(speech(int(warmup.Seconds()*sampleRate), int(d.Seconds()*sampleRate)))
	x, err := s.run(here, cmd)
	if err != nil {
		return err
	}
	select {
	case <-x.done:
		if x.err != nil {
			return x.failure()
		}
		return pause.For(ctx, maxDelay)
	case <-ctx.Done():
		x.stop()
		return ctx.Err()
	}
}

// played adds the player's own figures, after stopping it.
func (r *Figures) played(player *process) error {
	player.stop()
	var report struct {
		Frame struct{ P50 float64 } `json:"frame_delay_ms"`
		Sound *struct {
			Delay     float64  `json:"delay_ms"`
			Buffer    float64  `json:"jitter_buffer_ms"`
			Lip       *float64 `json:"lip_offset_ms"`
			Concealed float64  `json:"concealed_ms"`
			Played    float64  `json:"played_s"`
		}
	}
	if err := json.Unmarshal(player.stdout.Bytes(), &report); err != nil || report.Sound == nil {
		return fmt.Errorf("the player printed no figures of the sound: %w", player.failure())
	}
	x := report.Sound
	r.DelayMs, r.BufferMs, r.LipMs, r.FrameMs = x.Delay, x.Buffer, x.Lip, qoe.Round(report.Frame.P50, 1)
	r.Concealed = qoe.Round(x.Concealed/max(x.Concealed+1000*x.Played, 1)*100, 2)
	return nil
}
