package connect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Root is the first field of the namespace of all Holocast sessions.
const Root = "holocast"

// ReceiptsPrefix is the prefix of receipt tracks; the viewer's name follows.
const ReceiptsPrefix = "receipts/"

// ReplayProperty is the track property that marks a replayed recording, with value 1. Its type is
// even, so its value is a number, and it is outside the mandatory range, so peers may ignore it and
// relays forward it.
const ReplayProperty = 0x6863_7270

// InstanceProperty is the track property that identifies a run of a publisher, by a random value. Group numbers of
// one run are never used again, so a relay that has kept groups on its disk recognizes them. Its type is even, as
// that of ReplayProperty.
const InstanceProperty = 0x6863_696e

// NewInstance returns the property of a new run.
func NewInstance() wire.KeyValue {
	return wire.KeyValue{Type: InstanceProperty, Int: rand.Uint64() >> 2}
}

// TrackName returns the full name of a track in a catalog; ns is the namespace of the catalog's own
// track.
func TrackName(ns moqt.Namespace, t catalog.Track) moqt.TrackName {
	if t.Namespace != "" {
		ns = strings.Split(t.Namespace, "/")
	}
	return moqt.TrackName{Namespace: ns, Name: t.Name}
}

// NoSessionError means that the session has no publisher at the relay, or that the relay denies access
// to it.
type NoSessionError struct {
	Namespace moqt.Namespace
	Err       error
}

func (e *NoSessionError) Error() string {
	if (Target{}).refused(e.Err) {
		return fmt.Sprintf(
			"the relay does not let us watch session %q: %v",
			strings.Join(e.Namespace[1:], "/"),
			unauthorizedError{e.Err},
		)
	}
	return fmt.Sprintf("the relay has no session %q: %v", strings.Join(e.Namespace[1:], "/"), e.Err)
}

func (e *NoSessionError) Unwrap() error { return e.Err }

// rendezvous is the rendezvous timeout of one SUBSCRIBE.
const rendezvous = 20 * time.Second

// Subscribe subscribes to a track from its largest object on and fetches the current group; see
// moqt.Subscription.Joined. timeout is the object delivery timeout; 0 means the publisher's. If
// wait is set, Subscribe retries until a publisher appears.
func Subscribe(
	ctx context.Context,
	s *moqt.Session,
	name moqt.TrackName,
	timeout time.Duration,
	wait bool,
) (*moqt.Subscription, error) {
	o := moqt.SubscribeOptions{
		Filter:                &moqt.Filter{Type: wire.FilterLargestObject},
		ObjectDeliveryTimeout: timeout,
		Join:                  true,
	}
	if wait {
		o.RendezvousTimeout = rendezvous
	}
	for {
		sub, err := s.Subscribe(ctx, name, o)
		var refused *moqt.RequestError
		if !wait || ctx.Err() != nil || !errors.As(err, &refused) ||
			refused.Code != wire.RequestTimeout && refused.Code != wire.RequestDoesNotExist {
			return sub, err
		}
		slog.Debug("waiting for a publisher", "track", name.String(), "reason", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Ended reports whether err means that the track or the subscription has ended.
func Ended(err error) bool {
	var done *moqt.DoneError
	return errors.As(err, &done) && (done.Code == wire.DoneTrackEnded || done.Code == wire.DoneSubscriptionEnded)
}

// Away reports whether err means that the publisher left and may return.
func Away(err error) bool {
	var done *moqt.DoneError
	return errors.As(err, &done) && !Ended(err)
}
