package origin

import (
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// TestDeliveryReports checks that OnDone reports complete, reset and evicted deliveries.
func TestDeliveryReports(t *testing.T) {
	tr := NewTrack(testName, nil, Limits{})
	deliveries := make(chan Delivery, 10)
	r := newTestServer(t)
	r.set.OnDone = func(s Delivery) { deliveries <- s }
	r.set.Add(tr)
	sub := r.subscribe(r.dial(), moqt.SubscribeOptions{})
	before := time.Now()
	if err := tr.WriteObject(header(1, 3), moqt.Object{}, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.read(sub); err != nil {
		t.Fatal(err)
	}
	s := <-deliveries
	if s.Track != tr || s.Group != 1 || s.Subgroup != 3 || s.Dropped != "" || s.Bytes < 1000 ||
		s.Arrived.Before(before) ||
		s.Ended.Before(s.Arrived) {
		t.Errorf("%+v", s)
	}
	f, err := tr.OpenSubgroup(header(2, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.WriteObject(moqt.Object{}, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if _, err := sub.AcceptSubgroup(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.Reset(wire.StreamTooFarBehind)
	if s = <-deliveries; s.Group != 2 || s.Dropped != "reset" {
		t.Errorf("%+v", s)
	}
	f, err = tr.OpenSubgroup(header(3, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.WriteObject(moqt.Object{}, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if _, err := sub.AcceptSubgroup(t.Context()); err != nil {
		t.Fatal(err)
	}
	tr.Discard() // evicts the subgroup in flight
	if s = <-deliveries; s.Group != 3 || s.Dropped != "behind" {
		t.Errorf("%+v", s)
	}
}
