//go:build linux && (amd64 || arm64)

package fastpath

import (
	"os"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"holocast/internal/quicext"
	"holocast/relay/fastpath/kernel"
)

// port is a quicext.Port that counts reservations.
type port struct {
	next      int64
	reserved  int
	overtaken bool
	wait      bool
}

func (p *port) Reserve(n int) (int64, uint64, error) {
	first := p.next
	p.next += int64(n)
	p.reserved, p.overtaken = p.reserved+1, false
	return first, 1, nil
}

func (p *port) Sent([]quicext.Packet) error { return nil }
func (p *port) Release(int64, int) error    { return nil }
func (p *port) Overtaken() bool             { return p.overtaken }
func (p *port) DatagramsWait() bool         { return p.wait }
func (p *port) HoldKeyUpdates(bool)         {}
func (p *port) Detach()                     {}

// TestNumbersWhileUserSpaceSends checks that no packet numbers are reserved for the kernel while
// user space sends to a viewer, however many packets it sends. Once the queues are empty, they are
// reserved again.
func TestNumbersWhileUserSpaceSends(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: the kernel fast path needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON")
	}
	k, err := kernel.Open(kernel.Options{Port: 1, ConnIDLen: connIDLen})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	// With fake time, a stall of the machine does not trigger a handover.
	synctest.Test(t, func(t *testing.T) { testNumbersWhileUserSpaceSends(t, k) })
}

func testNumbersWhileUserSpaceSends(t *testing.T, k *kernel.Forwarder) {
	m := &Manager{forwarder: k, start: time.Now(), startK: kernel.Now()}
	queued := false
	c := &conn{
		m:        m,
		waits:    func() bool { return queued },
		source:   -1,
		on:       true,
		handover: newHandover(),
		state:    quicext.State{Generation: 1},
	}
	k.Viewer(0).Clear()
	// Start after one fallback, the second object of a group, which user space has passed on.
	shared := reflect.ValueOf(k.Viewer(0)).Elem().FieldByName("shared")
	for _, field := range []reflect.Value{
		shared.FieldByName("Fallbacks"),
		shared.FieldByName("LastFallback").FieldByName("Object"),
	} {
		*(*uint64)(unsafe.Pointer(field.UnsafeAddr())) = 1
	}
	c.passed = 1
	p := &port{next: 100}
	drain := func() {
		c.wanted = m.now() + time.Hour // objects keep arriving, however slow the machine is
		c.Drain(p)
	}
	for name, wait := range map[string]*bool{"in the session": &queued, "in the connection": &p.wait} {
		drain()
		before := p.reserved
		*wait = true
		for range 100 {
			p.overtaken = true // overtaken by a packet from user space
			drain()
		}
		if p.reserved != before || c.block != nil {
			t.Errorf("datagrams queued %s: numbers were reserved %d times", name, p.reserved-before)
		}
		*wait = false
		drain()
		if p.reserved != before+1 || c.block == nil || k.Viewer(0).Next() != c.block.first {
			t.Errorf("queues empty %s: numbers were reserved %d times", name, p.reserved-before)
		}
	}
}
