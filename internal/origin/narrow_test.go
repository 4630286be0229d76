//go:build linux

package origin

import (
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
)

const narrowPath = `
name: narrow
late: 1s # tests share their machine
hosts: [a, b]
edges: [ea, eb]
links: [{between: [a, ea]}, {between: [eb, b]}]
paths: [{name: p, between: [ea, eb], rate: 16Mbit, delay: 20ms}]
`

// TestNarrowPath sends twice as many frames as a path carries: it is to carry what it
// can, not the beginnings of them all.
func TestNarrowPath(t *testing.T) {
	if err := netlab.Supported(); err != nil {
		t.Skip("network lab unavailable: ", err)
	}
	parsed, err := topology.Parse([]byte(narrowPath))
	if err != nil {
		t.Fatal(err)
	}
	lab, err := netlab.Start(parsed, netlab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lab.Close() })

	const (
		frames   = 120
		interval = 25 * time.Millisecond
		size     = 100_000 // bytes: 32 Mbit/s
		timeout  = 400 * time.Millisecond
	)
	tr := NewTrack(testName, nil, Limits{})
	a, b := lab.Node("a"), lab.Node("b")
	r := newRoomAt(t, a.Addr, a.Namespace.Do, tr)
	sub := r.subscribe(r.dialFrom(b.Namespace.Do), moqt.SubscribeOptions{ObjectDeliveryTimeout: timeout})
	go func() {
		next := time.Now()
		for group := range uint64(frames) {
			if tr.WriteObject(header(group, 0), moqt.Object{}, make([]byte, size)) != nil {
				return
			}
			next = next.Add(interval)
			time.Sleep(time.Until(next))
		}
	}()
	whole, given := 0, 0
	for {
		group, objects, err := r.read(sub)
		if r.ctx.Err() != nil {
			t.Fatal(r.ctx.Err())
		}
		if err == nil && len(objects) == 1 && len(objects[0]) == size {
			whole++
		} else {
			given++
		}
		if group == frames-1 {
			break
		}
	}
	t.Logf("%d of %d frames arrived, %d were given up", whole, frames, given)
	if whole < frames/4 {
		t.Errorf("%d of %d frames arrived over a path that carries %d", whole, frames, frames/2)
	}
}
