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

// clockState is the source of the relay's time.
type clockState uint8

const (
	clockUnknown clockState = iota // no stamp received yet; frames wait in unmeasured
	clockRelay                     // estimated from the relay's stamps
	clockLocal                     // the relay sends no stamps
)

// firstStampTimeout bounds the wait for the first stamp.
const firstStampTimeout = 2 * time.Second

// maxUnmeasured bounds the frames waiting for the first stamp.
const maxUnmeasured = 1024

// shown is a displayed frame with its timestamps.
type shown struct {
	header   pointcloud.Header
	points   int
	bytes    int
	arrived  time.Time // last byte of its first object
	at       time.Time
	replayed bool
	own      bool // from a recording that this player plays at its own pace
	late     bool
	held     time.Duration // for sound

	// For traces.
	track            moqt.TrackName
	group            uint64
	began, completed time.Time // first byte of its first object, last byte of its last object
	decodeStart      time.Time
}

// followClock estimates the relay's clock from its stamps. Without stamps it falls back to the
// local clock.
func (p *Player) followClock(ctx context.Context, s *moqt.Session) {
	timer := time.AfterFunc(firstStampTimeout, func() { p.setClock(clockLocal) })
	defer timer.Stop()
	err := connect.FollowClock(ctx, s, &p.clock, func(st moqt.Stats) {
		p.mu.Lock()
		p.rtt, p.minRTT = st.RTT, st.MinRTT
		p.mu.Unlock()
		p.setClock(clockRelay)
	})
	if e := (*moqt.RequestError)(nil); errors.As(err, &e) {
		p.log.Debug("the relay has no clock track; using the local clock", "err", err)
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

// firstShown records the time of the first displayed frame.
func (p *Player) firstShown(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteFirst(at)
}

// noteFirst is like firstShown, but the caller holds p.mu.
func (p *Player) noteFirst(at time.Time) {
	if p.first.IsZero() {
		p.first = at
		close(p.showed)
	}
}

// show reports a displayed frame to Config.Shown and measures it, now or after the first stamp.
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

// replayAge is the age from which a frame counts as recorded even if its track lacks the replay
// property.
const replayAge = time.Minute

// measure records the delay of a displayed frame. The delay counts from capture for live frames,
// from arrival for replayed frames, and from the due time for a recording that this player plays at
// its own pace. The caller holds p.mu.
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
			return // the meter would count a publisher restart
		}
	}
	p.meter.Shown(qoe.Frame{
		Camera: f.header.Camera, Sequence: f.header.Sequence, Shown: f.at, Delay: delay, Points: f.points,
	})
	p.trace(f, delay)
	if f.own {
		return // receipts steer the publisher's rate and duplication, which recordings do not have
	}
	p.receipts.send(qoe.Receipt{Camera: f.header.Camera, Sequence: f.header.Sequence, Delay: delay - f.held}, p.log)
}

// trace reports the spans of a displayed frame if the tracer samples it.
func (p *Player) trace(f shown, delay time.Duration) {
	if !p.cfg.Tracer.Traces(f.track, f.group) {
		return
	}
	about := []attribute.KeyValue{
		attribute.String("holocast.viewer", p.cfg.Viewer),
		attribute.Int("holocast.camera", int(f.header.Camera)),
		attribute.Int64("holocast.sequence", int64(f.header.Sequence)),
	}
	received := append(slices.Clip(about), attribute.Int("holocast.bytes", f.bytes))
	shown := []attribute.KeyValue{
		attribute.Float64("holocast.delay_ms", float64(delay.Microseconds())/1e3), attribute.Int("holocast.points", f.points),
		attribute.Float64("holocast.clock_error_ms", float64(p.clock.Estimate(f.at).Error.Microseconds())/1e3),
	}
	for _, s := range []trace.Span{
		{Name: "receive", Begin: f.began, End: f.completed, Attributes: received},
		{Name: "wait", Begin: f.completed, End: f.decodeStart, Attributes: about},
		{Name: "decode", Begin: f.decodeStart, End: f.at, Attributes: append(slices.Clip(about), shown...)},
	} {
		s.Begin, s.End = p.clock.At(s.Begin), p.clock.At(s.End)
		p.cfg.Tracer.Report(f.track, f.group, s)
	}
}
