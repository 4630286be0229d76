package origin

import (
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// A queue tells of each subgroup that it sent, or why it did not send it whole.
func TestSent(t *testing.T) {
	tr := NewTrack(testName, nil, Limits{})
	told := make(chan Sent, 10)
	r := newRoom(t)
	r.set.Sent = func(s Sent) { told <- s }
	r.set.Add(tr)
	sub := r.subscribe(r.dial(), moqt.SubscribeOptions{})
	before := time.Now()
	if err := tr.WriteObject(header(1, 3), moqt.Object{}, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.read(sub); err != nil {
		t.Fatal(err)
	}
	s := <-told
	if s.Track != tr || s.Group != 1 || s.Subgroup != 3 || s.Failed != "" || s.Bytes < 1000 || s.Arrived.Before(before) || s.Ended.Before(s.Arrived) {
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
	if s = <-told; s.Group != 2 || s.Failed != "reset" {
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
	tr.Discard() // evicts what is under way
	if s = <-told; s.Group != 3 || s.Failed != "behind" {
		t.Errorf("%+v", s)
	}
}
