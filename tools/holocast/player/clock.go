package player

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/pointcloud"
	"holocast/internal/qoe"
	"holocast/internal/trace"
)

// clockState is what is known of the relay's clock.
type clockState uint8

const (
	clockUnknown clockState = iota // no stamp yet: frames wait to be measured
	clockRelay                     // estimated from stamps
	clockLocal                     // the relay sends none
)

// clockPatience is how long frames wait for the first stamp.
const clockPatience = 2 * time.Second

// maxUnmeasured bounds the frames that wait for the clock.
const maxUnmeasured = 1024

// shown is a frame that was shown and is to be measured.
type shown struct {
	header   pointcloud.Header
	points   int
	bytes    int
	arrived  time.Time // its first object's last byte
	at       time.Time
	replayed bool
	own      bool // of a recording that this player plays by itself
	late     bool

	// Where time went, for traces.
	track              moqt.TrackName
	group              uint64
	began, whole, took time.Time // its first object's first byte; its last object's last byte; the decoder's begin
}

// followClock estimates the relay's clock.
func (p *Player) followClock(ctx context.Context, s *moqt.Session) {
	patience := time.AfterFunc(clockPatience, func() { p.setClock(clockLocal) })
	defer patience.Stop()
	err := connect.FollowClock(ctx, s, &p.clock, func(st moqt.Stats) {
		p.mu.Lock()
		p.rtt, p.minRTT = st.RTT, st.MinRTT
		p.mu.Unlock()
		p.setClock(clockRelay)
	})
	if e := (*moqt.RequestError)(nil); errors.As(err, &e) {
		p.log.Debug("the relay has no clock track", "err", err)
		p.setClock(clockLocal)
	}
}

func (p *Player) setClock(state clockState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if state == p.hasClock || state == clockLocal && p.hasClock == clockRelay {
		return
	}
	p.hasClock = state
	for _, f := range p.unmeasured {
		p.measure(f)
	}
	p.unmeasured = nil
}

// firstShown notes that something is shown.
func (p *Player) firstShown(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteFirst(at)
}

// noteFirst is firstShown; p.mu is held.
func (p *Player) noteFirst(at time.Time) {
	if p.first.IsZero() {
		p.first = at
		close(p.showed)
	}
}

// show counts a frame that was shown.
func (p *Player) show(f shown) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteFirst(f.at)
	if p.cfg.Shown != nil {
		p.cfg.Shown(ShownFrame{
			Camera: f.header.Camera, Sequence: f.header.Sequence, Captured: time.UnixMicro(int64(f.header.CaptureTime)),
			Arrived: f.arrived, Shown: f.at, Points: f.points, Bytes: f.bytes,
		})
	}
	if p.hasClock == clockUnknown && len(p.unmeasured) < maxUnmeasured {
		p.unmeasured = append(p.unmeasured, f)
		return
	}
	p.measure(f)
}

// replayAge is the age beyond which a frame cannot be live: it comes from a
// recording that does not say so.
const replayAge = time.Minute

// measure counts a frame with its delay since its capture or, of a recording's,
// since its arrival here or, where this player plays that by itself, since it was due. p.mu is
// held.
func (p *Player) measure(f shown) {
	captured := time.UnixMicro(int64(f.header.CaptureTime))
	delay := p.clock.At(f.at).Sub(captured)
	p.own = f.own
	if !f.own {
		p.recorded.captured.Store(captured.UnixMicro())
	}
	if p.replayed = f.replayed || delay > replayAge; p.replayed {
		delay = f.at.Sub(f.arrived)
		if f.late {
			return // without its capture time the meter would take it for a restart
		}
	}
	p.meter.Shown(qoe.Frame{
		Camera: f.header.Camera, Sequence: f.header.Sequence, Shown: f.at, Delay: delay, Points: f.points,
	})
	p.trace(f, delay)
	if f.own {
		return // the publisher's rate and duplication have no part in it
	}
	p.receipts.send(qoe.Receipt{Camera: f.header.Camera, Sequence: f.header.Sequence, Delay: delay}, p.log)
}

// trace reports the spans of a frame that was shown, if it is a traced one.
func (p *Player) trace(f shown, delay time.Duration) {
	if !p.cfg.Tracer.Traces(f.track, f.group) {
		return
	}
	about := []attribute.KeyValue{
		attribute.String("holocast.viewer", p.cfg.Viewer), attribute.Int("holocast.camera", int(f.header.Camera)), attribute.Int64("holocast.sequence", int64(f.header.Sequence)),
	}
	shown := []attribute.KeyValue{
		attribute.Float64("holocast.delay_ms", float64(delay.Microseconds())/1e3), attribute.Int("holocast.points", f.points),
		attribute.Float64("holocast.clock_error_ms", float64(p.clock.Estimate(f.at).Error.Microseconds())/1e3),
	}
	for _, s := range []trace.Span{
		{Name: "receive", Begin: f.began, End: f.whole, Attributes: append(slices.Clip(about), attribute.Int("holocast.bytes", f.bytes))},
		{Name: "wait", Begin: f.whole, End: f.took, Attributes: about},
		{Name: "decode", Begin: f.took, End: f.at, Attributes: append(slices.Clip(about), shown...)},
	} {
		s.Begin, s.End = p.clock.At(s.Begin), p.clock.At(s.End)
		p.cfg.Tracer.Report(f.track, f.group, s)
	}
}
