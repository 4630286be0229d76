//go:build linux

package main

import (
	"testing"
	"time"

	"holocast/netfunc/api"
)

const (
	staticSender   = "role: sender\nsender: {attach: [{interface: lan0}]}\nflows: [{destination: " + viewerAddress + ", paths: [1, 2, 3]}]"
	staticReceiver = "role: receiver\nflows: [{destination: " + viewerAddress + ", paths: [1, 2, 3]}]"
)

// pair starts both edges, which duplicate to the viewer without a controller.
func (s *site) pair() (near, far *edge) {
	s.t.Helper()
	near, far = s.edge(s.near, "near", staticSender), s.edge(s.far, "far", staticReceiver)
	far.start()
	near.start()
	near.until("paths", allUp)
	far.until("paths", allUp)
	return near, far
}

func TestPair(t *testing.T) {
	s := newSite(t)
	near, far := s.pair()
	f := s.traffic(4000)
	time.Sleep(500 * time.Millisecond)
	n := uint64(f.exact())

	sender, receiver := near.status(), far.status()
	if sender.Sender.Duplicated != n {
		t.Errorf("%d packets duplicated of %d", sender.Sender.Duplicated, n)
	}
	var first, late uint64
	for i := range paths {
		if p := sender.Paths[i]; p.Sent != n || p.RTT <= 0 || p.NextHop == "" {
			t.Errorf("sender's path %+v, want %d packets", p, n)
		}
		p := receiver.Paths[i]
		first, late = first+p.First, late+p.Late
		if p.First+p.Late != n || p.Lost != 0 || p.Rogue != 0 {
			t.Errorf("receiver's path %+v, want %d arrivals", p, n)
		}
	}
	if first != n || late != 2*n {
		t.Errorf("%d first and %d later replicas of %d packets", first, late, n)
	}
	if p := sender.Sender.Policies; len(p) != 1 || p[0].Destination != viewerAddr || p[0].Paths != api.Paths(1, 2, 3) || p[0].Signalled {
		t.Errorf("policies %+v", p)
	}
	if len(sender.Attached) != 1 || sender.Attached[0] != (Attached{"duplicate", "lan0", "TCX ingress"}) {
		t.Errorf("the sender is attached as %+v", sender.Attached)
	}
	if len(receiver.Attached) != paths || receiver.Attached[0] != (Attached{"eliminate", "wan1", "native XDP"}) {
		t.Errorf("the receiver is attached as %+v", receiver.Attached)
	}
}
