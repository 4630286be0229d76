package origin

import (
	"context"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Sink receives a track's objects for one subscription. Publication sends them over the
// subscription's session. A wrapper may handle some of them differently, for example datagrams that
// the kernel already forwarded.
type Sink interface {
	// Context returns a context that is cancelled when the subscription ends. Its cause is the
	// reason.
	Context() context.Context
	// Changed returns a channel that is closed when the subscriber next updates any of the
	// following settings.
	Changed() <-chan struct{}
	// Passes reports whether the filter and forward state currently let an object through.
	Passes(moqt.Location) bool
	// Ended reports whether the filter ends before group.
	Ended(group uint64) bool
	// Forwarding is false while the subscriber has paused the subscription.
	Forwarding() bool
	// Priority returns the subscriber's priority; lower values go first.
	Priority() uint8
	// DeliveryTimeouts returns the timeouts of an object, counted from its header, and of a
	// subgroup, counted from its end; 0 means none. first holds the properties of the subgroup's
	// first object, which may override the track's timeouts from draft-19 on.
	DeliveryTimeouts(first moqt.Properties) (object, subgroup time.Duration)

	// SendDatagram sends an object as a datagram, without blocking.
	SendDatagram(moqt.Datagram) error
	// OpenSubgroup opens a subgroup without blocking. first is as in DeliveryTimeouts.
	OpenSubgroup(h wire.SubgroupHeader, first moqt.Properties) (SubgroupSink, error)
	// Done ends the subscription.
	Done(code wire.DoneCode, reason string) error
}

// SubgroupSink receives the bytes of one subgroup. More, Retime and Abort may be called
// concurrently with the other methods.
type SubgroupSink interface {
	// WriteRaw writes bytes after the subgroup header.
	WriteRaw(b []byte) error
	// Send sends src to its end and returns when the transport has taken everything. If src's
	// deadline passes first, Send resets the subgroup and returns moqt.ErrDeliveryTimeout.
	Send(src moqt.Source) error
	// More signals that Send's source has more bytes. Retime signals that it may have more bytes
	// and that its deadline changed.
	More()
	Retime()
	// Close ends the subgroup; Reset and Abort reset its stream.
	Close() error
	Reset(wire.StreamCode)
	Abort(wire.StreamCode)
}

// Publication is the Sink of a subscription over its session.
type Publication struct{ *moqt.Publication }

// DeliveryTimeouts implements Sink.
func (p Publication) DeliveryTimeouts(first moqt.Properties) (object, subgroup time.Duration) {
	return p.SubgroupTimeouts(first)
}

// OpenSubgroup implements Sink.
func (p Publication) OpenSubgroup(h wire.SubgroupHeader, first moqt.Properties) (SubgroupSink, error) {
	w, err := p.Publication.OpenSubgroup(h)
	if err != nil {
		return nil, err // a nil w would become a non-nil SubgroupSink
	}
	w.SetFirst(first)
	return w, nil
}
