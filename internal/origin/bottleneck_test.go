//go:build linux

package origin

import (
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
)

const bottleneckTopology = `
name: narrow
late: 1s # tests share their machine
hosts: [a, b]
edges: [ea, eb]
links: [{between: [a, ea]}, {between: [eb, b]}]
paths: [{name: p, between: [ea, eb], rate: 16Mbit, delay: 20ms}]
`

// TestBottleneck publishes at twice the rate of a path. The path must carry complete frames, not
// the beginnings of all frames.
func TestBottleneck(t *testing.T) {
	if err := netlab.Supported(); err != nil {
		t.Skip("network lab unavailable: ", err)
	}
	parsed, err := topology.Parse([]byte(bottleneckTopology))
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
		size     = 100_000 // bytes; 32 Mbit/s
		timeout  = 400 * time.Millisecond
	)
	tr := NewTrack(testName, nil, Limits{})
	a, b := lab.Node("a"), lab.Node("b")
	r := newTestServerAt(t, a.Addr, a.Namespace.Do, tr)
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
		tr.End(wire.DoneTrackEnded, "")
	}()
	arrived, dropped := 0, 0
	for sub.Err() == nil {
		_, objects, err := r.read(sub)
		if r.ctx.Err() != nil {
			t.Fatal(r.ctx.Err())
		}
		if err == nil && len(objects) == 1 && len(objects[0]) == size {
			arrived++
		} else {
			dropped++
		}
	}
	var carried uint64 // bytes
	if err := b.Namespace.Do(func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			carried += l.Attrs().Statistics.RxBytes
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d frames arrived, %d were dropped; the path carried %d bytes", arrived, frames, dropped, carried)
	if uint64(arrived)*size < carried/2 {
		t.Errorf("complete frames are %d of %d bytes carried, want half", arrived*size, carried)
	}
}
