package relay

import (
	"context"
	"fmt"
	"io"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/tools/lab/bench/internal/load"
)

// Slow objects of the first-byte part.
const (
	slowBytes   = 1_000_000
	slowTime    = 150 * time.Millisecond // from the first to the last byte at the publisher
	slowViewers = 5
)

// FirstByte is the delay of an object's first byte while the publisher is still producing the rest,
// in milliseconds over all viewers and objects.
type FirstByte struct {
	Began    time.Time `json:"began"`
	P50Ms    float64   `json:"p50_ms"`
	P99Ms    float64   `json:"p99_ms"`
	DirectMs float64   `json:"direct_p50_ms"` // publisher to viewers, without a relay
}

func measureFirstByte(ctx context.Context, o Options) (*FirstByte, error) {
	objects := 40
	if o.Quick {
		objects = 8
	}
	relay, err := load.Start(ctx, o.Relay)
	if err != nil {
		return nil, err
	}
	defer relay.Stop()
	direct, err := load.Listen()
	if err != nil {
		return nil, err
	}
	defer func() { _ = direct.Close() }()
	r := &FirstByte{Began: time.Now()}
	delays, err := firstBytes(ctx, direct, objects)
	if err != nil {
		return nil, fmt.Errorf("measure first byte without a relay: %w", err)
	}
	r.DirectMs = load.Quantile(delays, 0.5)
	if delays, err = firstBytes(ctx, relay, objects); err != nil {
		return nil, fmt.Errorf("measure first byte: %w", err)
	}
	r.P50Ms, r.P99Ms = load.Quantile(delays, 0.5), load.Quantile(delays, 0.99)
	fmt.Fprintf(o.Log, "first byte after %.2f ms (without relay %.2f ms)\n", r.P50Ms, r.DirectMs)
	return r, nil
}

// firstBytes sends slow objects. It returns the first byte's delay for each object and viewer.
func firstBytes(ctx context.Context, s load.Server, objects int) ([]time.Duration, error) {
	t := load.NewTrack(s, "first byte")
	type event struct {
		group uint64
		at    time.Time
	}
	events := make(chan event, objects*slowViewers)
	complete := make(chan struct{}, objects*slowViewers)
	stop, err := load.Audience(ctx, s, []*origin.Track{t}, slowViewers, func(_ int, r *moqt.SubgroupReader) {
		if _, err := r.NextObject(); err != nil {
			return
		}
		var one [1]byte
		if _, err := io.ReadFull(r, one[:]); err != nil {
			return
		}
		at := time.Now()
		if n, err := io.Copy(io.Discard, r); err != nil || n != slowBytes-1 {
			return
		}
		events <- event{r.Group, at}
		complete <- struct{}{}
	})
	if err != nil {
		return nil, err
	}
	defer stop()
	sent := map[uint64]time.Time{}
	for group := range uint64(objects) {
		if sent[group], err = sendSlowly(ctx, t, group); err != nil {
			return nil, err
		}
		for range slowViewers {
			select {
			case <-complete:
			case <-time.After(time.Minute):
				return nil, fmt.Errorf("object %d did not arrive within a minute", group)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	var d []time.Duration
	for range objects * slowViewers {
		e := <-events
		d = append(d, e.at.Sub(sent[e.group]))
	}
	return d, nil
}

// sendSlowly writes one object in 150 pieces. It returns the time of the first piece.
func sendSlowly(ctx context.Context, t *origin.Track, group uint64) (began time.Time, err error) {
	f, err := t.OpenSubgroup(wire.SubgroupHeader{Group: group, FirstObject: true, EndOfGroup: true})
	if err != nil {
		return began, err
	}
	header, err := (&wire.ObjectEncoder{}).Append(nil, wire.Object{PayloadLength: slowBytes})
	if err != nil {
		return began, err
	}
	const piece = slowBytes / 150
	tick := time.NewTicker(slowTime / 150)
	defer tick.Stop()
	zeros := make([]byte, piece)
	began = time.Now()
	b := append(header, zeros...)
	for left := slowBytes - piece; ; {
		for len(b) > 0 {
			n := copy(f.Space(), b)
			b = b[n:]
			if err := f.Commit(n); err != nil {
				return began, err
			}
		}
		if left == 0 {
			return began, f.Close()
		}
		b = zeros[:min(left, piece)]
		left -= len(b)
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.Reset(wire.StreamCancelled)
			return began, ctx.Err()
		}
	}
}

func (r *FirstByte) markdown() string {
	return fmt.Sprintf("Objects of %d kB produced over %d ms, to %d viewers: first byte after **%.2f ms** (median; "+
		"p99 %.2f ms; without relay %.2f ms).\n",
		slowBytes/1000, slowTime.Milliseconds(), slowViewers, r.P50Ms, r.P99Ms, r.DirectMs)
}
