//go:build linux

package bottleneck

import (
	"context"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

var trackName = moqt.TrackName{Namespace: moqt.Namespace{"holocast", "bench"}, Name: "points/0/full"}

// source is one contender's way of sending frames to one viewer.
type source struct {
	handler moqt.Handler

	// send does not wait for the previous frame. It owns frame until the frame is sent.
	send func(ctx context.Context, group uint64, frame []byte) error
	wait func() // waits for writers, after the session has ended
}

func newSource(contender string) source {
	switch contender {
	case Holocast:
		return fromOrigin()
	case DeliveryTimeout:
		return fromPublication(Timeout)
	}
	return fromPublication(0)
}

// header returns a frame's subgroup header.
func header(group uint64) wire.SubgroupHeader {
	return wire.SubgroupHeader{
		Group: group, Mode: wire.SubgroupIDExplicit, Priority: wire.DefaultPriority,
		FirstObject: true, EndOfGroup: true,
	}
}

// properties returns a track's properties with a delivery timeout, as set by the capture server.
func properties(timeout time.Duration) moqt.Properties {
	if timeout == 0 {
		return nil
	}
	ms := uint64(timeout.Milliseconds())
	return wire.AppendKeyValues(nil, wire.KeyValue{Type: wire.PropertyObjectDeliveryTimeout, Int: ms},
		wire.KeyValue{Type: wire.PropertySubgroupDeliveryTimeout, Int: ms})
}

func fromOrigin() source {
	var set origin.Set
	t := origin.NewTrack(trackName, properties(Timeout), origin.Limits{})
	set.Add(t)
	return source{
		handler: set.Handler(),
		send: func(_ context.Context, group uint64, frame []byte) error {
			return t.WriteObject(header(group), moqt.Object{}, frame)
		},
		wait: func() {},
	}
}

// fromPublication writes each frame on its own goroutine. Without a timeout, unsent frames stay in
// memory, about 50 MB per measurement.
func fromPublication(timeout time.Duration) source {
	accepted := make(chan *moqt.Publication, 1)
	var pub *moqt.Publication
	var writing sync.WaitGroup
	return source{
		handler: moqt.Handler{Subscribe: func(r *moqt.SubscribeRequest) {
			if p, err := r.Accept(moqt.TrackInfo{Properties: properties(timeout)}); err == nil {
				accepted <- p
			}
		}},
		send: func(ctx context.Context, group uint64, frame []byte) error {
			if pub == nil {
				select {
				case pub = <-accepted:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			w, err := pub.OpenSubgroup(header(group)) // on this goroutine, so that streams open in order
			if err != nil {
				return err
			}
			if timeout > 0 {
				w.SetDeadline(time.Now().Add(timeout))
			}
			writing.Go(func() {
				// WriteObject fails if the frame was late or the session has ended.
				if w.WriteObject(moqt.Object{}, frame) == nil {
					_ = w.Close()
				}
			})
			return nil
		},
		wait: writing.Wait,
	}
}
