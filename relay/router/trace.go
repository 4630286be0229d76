package router

import (
	"time"

	"go.opentelemetry.io/otel/attribute"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/trace"
)

// traceReceived starts the span of an arriving subgroup. It returns the function that ends the span, or
// nil if the group is not traced.
func (r *Router) traceReceived(
	track moqt.TrackName, from Upstream, h wire.SubgroupHeader,
) func(bytes int, failed string) {
	if !r.cfg().Tracer.Traces(track, h.Group) {
		return nil
	}
	begun := time.Now()
	return func(bytes int, failed string) {
		r.cfg().Tracer.Report(track, h.Group, trace.Span{
			Name: "receive", Begin: begun, End: time.Now(), Failed: failed,
			Attributes: []attribute.KeyValue{
				attribute.String("network.peer.address", from.String()),
				attribute.Int64("holocast.subgroup", int64(h.Subgroup)), attribute.Int("holocast.bytes", bytes),
			},
		})
	}
}

// traceSent reports the span of a subgroup delivery.
func (r *Router) traceSent(to *moqt.Session, s origin.Delivery) {
	if !r.cfg().Tracer.Traces(s.Track.Name(), s.Group) {
		return
	}
	r.cfg().Tracer.Report(s.Track.Name(), s.Group, trace.Span{
		Name: "send", Begin: s.Arrived, End: s.Ended, Failed: s.Dropped,
		Attributes: []attribute.KeyValue{
			attribute.String("network.peer.address", to.RemoteAddr().String()),
			attribute.Int64("holocast.subgroup", int64(s.Subgroup)), attribute.Int64("holocast.bytes", s.Bytes),
		},
	})
}
