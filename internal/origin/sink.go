package origin

import (
	"context"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Sink takes what a track sends to one subscription. A Publication is the sink of a
// subscription over its session; another one may wrap it and send by other means what
// it can, such as what the kernel forwarded already.
type Sink interface {
	// Context ends when the subscription does; its cause says why.
	Context() context.Context
	// Changed is closed at the subscriber's next update of what the methods below say.
	Changed() <-chan struct{}
	// Passes reports whether an object is to be sent now.
	Passes(moqt.Location) bool
	// Ended reports whether no object from a group on will be.
	Ended(group uint64) bool
	// Forwarding is false while the subscriber wants nothing sent.
	Forwarding() bool
	// Priority is the subscriber's priority, lower first.
	Priority() uint8
	// DeliveryTimeouts are an object's, from its first byte, and a subgroup's, from
	// its end; 0 = none. first are the properties of the subgroup's first object, which from
	// draft-19 on may have their own.
	DeliveryTimeouts(first moqt.Properties) (object, subgroup time.Duration)

	// SendDatagram sends an object without waiting, or fails.
	SendDatagram(moqt.Datagram) error
	// OpenSubgroup begins a subgroup without waiting, or fails. first is as above.
	OpenSubgroup(h wire.SubgroupHeader, first moqt.Properties) (SubgroupSink, error)
	// Done ends the subscription.
	Done(code wire.DoneCode, reason string) error
}

// SubgroupSink takes the bytes of one subgroup. More, Retime and Abort may be called while another
// method runs.
type SubgroupSink interface {
	// WriteRaw writes bytes that follow the subgroup's header.
	WriteRaw(b []byte) error
	// Send sends what src has and waits until that is sent. It fails with moqt.ErrDeliveryTimeout, and
	// resets the subgroup, when that is not done by src's deadline.
	Send(src moqt.Source) error
	// More says that Send's source has more; Retime that it has, or that its deadline is another.
	More()
	Retime()
	// Close ends the subgroup, Reset and Abort give it up.
	Close() error
	Reset(wire.StreamCode)
	Abort(wire.StreamCode)
}

// Publication is the sink of a subscription over its session.
type Publication struct{ *moqt.Publication }

// DeliveryTimeouts are those of a subgroup.
func (p Publication) DeliveryTimeouts(first moqt.Properties) (object, subgroup time.Duration) {
	return p.SubgroupTimeouts(first)
}

// OpenSubgroup opens a stream.
func (p Publication) OpenSubgroup(h wire.SubgroupHeader, first moqt.Properties) (SubgroupSink, error) {
	w, err := p.Publication.OpenSubgroup(h)
	if err != nil {
		return nil, err // not w, which would be no nil SubgroupSink
	}
	w.SetFirst(first)
	return w, nil
}
