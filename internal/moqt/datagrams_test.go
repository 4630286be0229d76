package moqt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"holocast/internal/moqt/wire"
	"holocast/internal/quiccc"
)

// TestDatagramQueue pushes datagrams named by publication, group and number, and checks which
// are sent, and in which order.
func TestDatagramQueue(t *testing.T) {
	type push struct {
		name string // "a1.0" is a datagram of publication a, group 1
		prio uint16
		size int
		at   time.Duration
		pop  int  // datagrams to pop before this push
		late bool // a datagram has just missed its deadline
	}
	frame := func(name string, prio uint16, at time.Duration, parts, size int) (list []push) {
		for i := range parts {
			list = append(list, push{name: fmt.Sprintf("%s.%d", name, i), prio: prio, size: size, at: at})
		}
		return list
	}
	const ms = time.Millisecond
	for _, c := range []struct {
		name            string
		pushes          []push
		want            string
		dropped, refuse int
	}{
		{"as they came", []push{{name: "a1.0"}, {name: "a1.1"}, {name: "b1.0"}, {name: "a2.0"}}, "a1.0 a1.1 b1.0 a2.0", 0, 0},
		{
			"by priority",
			[]push{{name: "a1.0", prio: 9}, {name: "b1.0", prio: 3}, {name: "b2.0", prio: 3}, {name: "c1.0", prio: 1}},
			"c1.0 b1.0 b2.0 a1.0", 0, 0,
		},
		{"group after group", []push{{name: "a1.0"}, {name: "a2.0"}, {name: "a1.1"}}, "a1.0 a1.1 a2.0", 0, 0},
		{
			"second descriptions after all first ones",
			[]push{{name: "a1.0", prio: 1}, {name: "a1.1", prio: 2}, {name: "a2.0", prio: 1}, {name: "a2.1", prio: 2}},
			"a1.0 a2.0 a1.1 a2.1", 0, 0,
		},
		{
			"small ones wait",
			[]push{{name: "a1.0"}, {name: "a2.0", at: 150 * ms}, {name: "a3.0", at: 300 * ms}},
			"a1.0 a2.0 a3.0", 0, 0,
		},
		{"frames at a bottleneck: the one being sent and the newest", slices.Concat(
			frame("a1", 0, 0, 2, 30000), []push{
				{name: "a2.0", at: 33 * ms, size: 30000, pop: 1, late: true},
				{name: "a2.1", at: 33 * ms, size: 30000},
				{name: "a3.0", at: 66 * ms, size: 30000},
				{name: "a4.0", at: 140 * ms, size: 30000},
			}), "a1.0 a1.1 a4.0", 3, 0},
		{"later datagrams of a dropped frame", slices.Concat(
			frame("a1", 0, 0, 3, 30000), []push{
				{name: "a2.0", at: 33 * ms, size: 30000, pop: 1, late: true},
				{name: "a3.0", at: 140 * ms, size: 30000},
				{name: "a2.1", at: 141 * ms, size: 30000},
				{name: "a3.1", at: 141 * ms, size: 30000},
			}), "a1.0 a1.1 a1.2 a3.0 a3.1", 1, 1},
		{
			"a frame that was sent as far as it had come", slices.Concat(
				frame("a1", 0, 0, 2, 30000), []push{
					{name: "a2.0", at: 33 * ms, size: 30000, late: true},
					{name: "a2.1", at: 34 * ms, size: 30000, pop: 3},
					{name: "a3.0", at: 140 * ms, size: 30000},
					{name: "a2.2", at: 141 * ms, size: 30000, pop: 1},
					{name: "a4.0", at: 250 * ms, size: 30000},
				}),
			"a1.0 a1.1 a2.0 a2.1 a2.2 a4.0", 1, 0,
		},
		{"frames where none was late", slices.Concat(
			frame("a1", 0, 0, 2, 30000), []push{
				{name: "a2.0", at: 33 * ms, size: 30000, pop: 1},
				{name: "a3.0", at: 66 * ms, size: 30000},
				{name: "a4.0", at: 400 * ms, size: 30000},
			}), "a1.0 a1.1 a2.0 a3.0 a4.0", 0, 0},
		{
			"frames long after one was late", slices.Concat(
				[]push{{name: "a0.0", late: true}}, frame("a1", 0, 3*time.Second, 2, 30000),
				frame("a2", 0, 3100*ms, 2, 30000), frame("a3", 0, 3200*ms, 2, 30000)),
			"a0.0 a1.0 a1.1 a2.0 a2.1 a3.0 a3.1", 0, 0,
		},
		{
			"frames after a hitch", slices.Concat(
				frame("a1", 0, 0, 2, 30000), frame("a2", 0, 33*ms, 2, 30000), frame("a3", 0, 66*ms, 2, 30000)),
			"a1.0 a1.1 a2.0 a2.1 a3.0 a3.1", 0, 0,
		},
		{
			"a full queue: the oldest group of the last priority goes", slices.Concat(
				frame("a1", 9, 0, 2, 1<<20), frame("b1", 3, 0, 1, 1<<20),
				[]push{{name: "b2.0", prio: 3, size: 1<<20 - 1000}, {name: "b3.0", prio: 3, size: 1000}}),
			"b1.0 b2.0 b3.0", 2, 0,
		},
		{
			"a full queue refuses what matters less",
			slices.Concat(frame("b1", 3, 0, 3, 1<<20), []push{{name: "a1.0", prio: 9, size: 1 << 20}}),
			"b1.0 b1.1 b1.2", 0, 1,
		},
		{"a group larger than the queue", frame("a1", 0, 0, 5, 1<<20), "a1.0 a1.1 a1.2", 0, 2},
		{"more groups than there is room for", func() (list []push) {
			for i := range maxDatagramGroups + 1 {
				list = append(list, push{name: fmt.Sprintf("a%d.0", i)})
			}
			return list
		}(), "", 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, began := newDatagramQueue(), time.Now()
			pubs := map[string]*Publication{"a": {}, "b": {}, "c": {}}
			var got []string
			send := func(n int) {
				for range n {
					waits := q.pending()
					d, g := q.pop()
					if (g != nil) != waits {
						t.Errorf("queue pending: %v; popped a datagram: %v", waits, g != nil)
					}
					if g == nil {
						return
					}
					got = append(got, strings.TrimRight(string(d.b), " "))
				}
			}
			dropped, refused := 0, 0
			for _, p := range c.pushes {
				send(p.pop)
				if p.late {
					q.late(&datagramGroup{}, began.Add(p.at)) // for a publication that has nothing else queued
				}
				var group uint64
				pub, i := p.name[:1], 0
				if _, err := fmt.Sscanf(p.name[1:], "%d.%d", &group, &i); err != nil {
					t.Fatal(err)
				}
				b := []byte(p.name + strings.Repeat(" ", max(0, p.size-len(p.name))))
				n, queued := q.push(pubs[pub], group, p.prio, outgoingDatagram{b: b}, began.Add(p.at))
				dropped += n
				if !queued {
					refused++
				}
			}
			send(len(c.pushes))
			if c.want != "" && strings.Join(got, " ") != c.want {
				t.Errorf("sent %v, want %s", got, c.want)
			}
			if dropped != c.dropped || refused != c.refuse {
				t.Errorf("%d dropped and %d refused, want %d and %d", dropped, refused, c.dropped, c.refuse)
			}
			if q.bytes != 0 || len(q.tracks) != 0 || len(q.order) != 0 {
				t.Errorf("%d bytes of %d publications are left", q.bytes, len(q.tracks))
			}
		})
	}
}

// TestLateDatagram checks that a late datagram drops its group if more than minDropBytes are queued,
// and that the group cannot be fetched meanwhile.
func TestLateDatagram(t *testing.T) {
	for _, c := range []struct {
		name    string
		size    int
		dropped int
	}{{"frames", 30000, 3}, {"sound", 300, 0}} {
		t.Run(c.name, func(t *testing.T) {
			q, p, now := newDatagramQueue(), &Publication{track: testTrack}, time.Now()
			push := func(group uint64) bool {
				_, queued := q.push(p, group, 0, outgoingDatagram{b: make([]byte, c.size)}, now)
				return queued
			}
			for _, group := range []uint64{1, 1, 1, 1, 2, 2, 2} {
				push(group)
			}
			_, g := q.pop()
			if n := q.late(g, now); n != c.dropped {
				t.Errorf("%d dropped, want %d", n, c.dropped)
			}
			gone := c.dropped > 0
			if push(1) == gone {
				t.Error("whether later datagrams are queued")
			}
			for group, want := range map[uint64]bool{1: gone, 2: false} {
				if got := q.dropped(testTrack, group); got != want {
					t.Errorf("group %d dropped: %v, want %v", group, got, want)
				}
			}
			if q.dropped(TrackName{Name: "another"}, 1) {
				t.Error("a group of another track counts as dropped")
			}
			for _, g := q.pop(); g != nil; _, g = q.pop() {
			}
			if q.dropped(testTrack, 1) {
				t.Error("a group counts as dropped though the queue is empty")
			}
		})
	}
}

// TestDatagramQueueForgets checks that the queue drops the datagrams of an ended publication.
func TestDatagramQueueForgets(t *testing.T) {
	q, a, b := newDatagramQueue(), &Publication{}, &Publication{}
	for group := range uint64(5) {
		q.push(a, group, 0, outgoingDatagram{b: []byte("a")}, time.Now())
		q.push(b, group, 0, outgoingDatagram{b: []byte("b")}, time.Now())
	}
	q.forget(a)
	n := 0
	for d, g := q.pop(); g != nil; d, g = q.pop() {
		if n++; string(d.b) != "b" {
			t.Errorf("sent %q", d.b)
		}
	}
	if n != 5 || q.bytes != 0 {
		t.Errorf("%d sent, %d bytes left", n, q.bytes)
	}
}

// TestFrameInDatagrams sends frames of hundreds of datagrams each over all transports. All
// datagrams must arrive, and in order unless there are several paths.
func TestFrameInDatagrams(t *testing.T) {
	if !quiccc.Patched() {
		t.Skip("the published quic-go drops received datagrams beyond 128")
	}
	forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
		const parts, frames = 270, 10
		accepted := make(chan *Publication, 1)
		p := connect(Handler{}, Handler{Subscribe: func(r *SubscribeRequest) {
			if pub, err := r.Accept(TrackInfo{}); err == nil {
				accepted <- pub
			}
		}})
		sub, err := p.client.Subscribe(p.ctx, testTrack, SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pub := <-accepted
		properties := wire.AppendKeyValues(nil, wire.KeyValue{Type: 0x6863_706c, Int: 1 << 20})
		payload := make([]byte, 1130)
		for group := range uint64(frames) {
			for i := range uint64(parts) {
				// Large IDs give the longest header.
				d := Datagram{Group: 1<<41 + group, Object: i, Priority: 96, EndOfGroup: i == parts-1, Payload: payload}
				if i == 0 {
					d.Properties = properties
				}
				if err := pub.SendDatagram(d); err != nil {
					t.Fatalf("part %d: %v", i, err)
				}
			}
			seen := map[uint64]bool{}
			for i := range uint64(parts) {
				d, err := sub.AcceptDatagram(p.ctx)
				if err != nil {
					t.Fatalf(
						"frame %d, part %d: %v; sent %+v, received %+v",
						group,
						i,
						err,
						p.server.Stats(),
						p.client.Stats(),
					)
				}
				wanted := d.Object == i || p.client.Paths() != nil && d.Object < parts && !seen[d.Object]
				if seen[d.Object] = true; !wanted || len(d.Payload) != len(payload) {
					t.Fatalf(
						"frame %d: part %d of %d bytes, want %d of %d",
						group,
						d.Object,
						len(d.Payload),
						i,
						len(payload),
					)
				}
			}
		}
		if n := p.server.Stats().DatagramsUnsent; n != 0 {
			t.Errorf("%d datagrams were not sent", n)
		}
		pub.end(errors.New("over"))
	})
}

// TestFetchOfDroppedGroup checks that a group dropped on a congested path cannot be fetched.
func TestFetchOfDroppedGroup(t *testing.T) {
	p := connect(
		t,
		"moqt",
		Handler{},
		Handler{Fetch: func(r *FetchRequest) { _ = r.Reject(wire.RequestDoesNotExist, "asked") }},
	)
	q, pub, now := p.server.sendq, &Publication{track: testTrack}, time.Now()
	for _, group := range []uint64{1, 1, 2, 2, 2} {
		q.push(pub, group, 0, outgoingDatagram{b: make([]byte, 30000)}, now)
	}
	_, g := q.pop()
	q.late(g, now)
	for group, want := range map[uint64]wire.RequestCode{1: wire.RequestExcessiveLoad, 2: wire.RequestDoesNotExist} {
		var e *RequestError
		_, err := p.client.Fetch(
			p.ctx,
			testTrack,
			Location{Group: group, Object: 1},
			Location{Group: group, Object: 2},
			FetchOptions{},
		)
		if !errors.As(err, &e) || e.Code != want {
			t.Errorf("FETCH of group %d: %v, want %v", group, err, want)
		}
	}
}
