package quicext

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	_ "unsafe" // for linkname

	"github.com/quic-go/quic-go"

	"holocast/internal/quiccc/quiccctest"
)

// The interval between key updates of both ends, in packets sent or received with one key.

//go:linkname keyUpdateInterval github.com/quic-go/quic-go/internal/handshake.keyUpdateInterval
var keyUpdateInterval atomic.Uint64

func needsHooks(t *testing.T) {
	t.Helper()
	if !Supported() {
		t.Skip("the published quic-go has no hooks")
	}
}

// useAES makes connections select the cipher suite supported by kernel.
func useAES(t *testing.T) {
	t.Helper()
	restoreOrder(t)
	defaultCipherSuitesTLS13, defaultCipherSuitesTLS13NoAES = []uint16{aes128}, []uint16{aes128}
}

// datagrams is the configuration of both ends.
var datagrams = &quic.Config{EnableDatagrams: true}

func connect(t *testing.T, ln *quic.Listener, addr net.Addr) (client, server *quic.Conn) {
	t.Helper()
	client, err := quic.DialAddr(t.Context(), addr.String(), quiccctest.ClientTLS(), datagrams)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.CloseWithError(0, "") })
	if server, err = ln.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	return client, server
}

// eventually waits for a condition, long enough for a busy machine.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for range 2000 {
		if f() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("not within 20 s: %s", what)
}

// TestSendOutside lets a connection and an external sender send at the same time over a path that
// drops and reorders packets, while both ends update keys.
func TestSendOutside(t *testing.T) {
	needsHooks(t)
	for _, controller := range []string{"", "newreno", "cubic", "bbr"} {
		name := controller
		if name == "" {
			name = "stock"
		}
		t.Run(name, func(t *testing.T) { testSendOutside(t, controller) })
	}
}

func testSendOutside(t *testing.T, controller string) {
	const packets, delay = 3000, 4 * time.Millisecond
	useAES(t)
	old := keyUpdateInterval.Swap(500)
	defer keyUpdateInterval.Store(old)
	udp, ln := quiccctest.Listen(t, controller, datagrams)
	p, addr := newPath(t, ln.Addr(), delay, 0.01, 0.02)
	client, server := connect(t, ln, addr)

	k := newKernel(t, udp)
	h, err := Attach(server, k)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Attach(server, k); err == nil {
		t.Error("attached twice")
	}

	var work sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	streams := func(from, to *quic.Conn) {
		work.Go(func() {
			s, err := from.OpenUniStreamSync(ctx)
			if err != nil {
				return
			}
			defer func() { _ = s.Close() }()
			b := make([]byte, 3000)
			for ctx.Err() == nil {
				if _, err := s.Write(b); err != nil {
					t.Error(err)
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
		work.Go(func() {
			s, err := to.AcceptUniStream(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := io.Copy(io.Discard, s); err != nil {
				t.Error(err)
			}
		})
	}
	streams(server, client)
	streams(client, server)
	var received atomic.Int64
	var reading sync.WaitGroup
	readCtx, stopReading := context.WithCancel(t.Context())
	defer reading.Wait()
	defer stopReading()
	reading.Go(func() {
		for {
			b, err := client.ReceiveDatagram(readCtx)
			if err != nil {
				return
			}
			if len(b) != 1000 || binary.BigEndian.Uint64(b) >= packets {
				t.Errorf("datagram of %d bytes", len(b))
			}
			received.Add(1)
		}
	})

	for i := 0; i < packets; {
		b := make([]byte, 1000)
		binary.BigEndian.PutUint64(b, uint64(i))
		lag := -time.Nanosecond
		if i%100 == 50 {
			lag = 3 * delay // the ACK arrives before the registration
		}
		if k.send(b, lag) {
			i++
		} else {
			time.Sleep(200 * time.Microsecond)
		}
		if err := context.Cause(server.Context()); err != nil {
			t.Fatal(err)
		}
		if i%8 == 0 || k.unregistered() > 8000 {
			h.Wake()
		}
	}
	stop()
	work.Wait()
	k.finish(t, h)
	for _, c := range []*quic.Conn{client, server} {
		if err := context.Cause(c.Context()); err != nil {
			t.Errorf("connection ended: %v", err)
		}
	}
	// Delivered packets must reach the application, except for overtaken packets and a few that
	// the path itself reordered.
	delivered, overtaken := checkOutcome(t, p, k)
	eventually(t, "the client receives the datagrams", func() bool {
		return received.Load() >= int64(delivered-overtaken-delivered/50)
	})
	if rtt := h.Budget().SmoothedRTT; rtt < 2*delay || rtt > 50*delay {
		t.Errorf("smoothed RTT %v, a round trip takes %v", rtt, 2*delay)
	}
	if rtt := h.Budget().MinRTT; rtt < 2*delay {
		t.Errorf("minimal RTT %v, a round trip takes %v", rtt, 2*delay)
	}
	if s := server.ConnectionStats(); s.PacketsSent < packets {
		t.Errorf("%d packets sent according to the connection, %d outside alone", s.PacketsSent, packets)
	}
	t.Logf("%d packets in %d blocks, %d received, %d lost, %d key phases, %+v",
		len(k.used), k.blocks, received.Load(), len(k.lost), len(k.states), h.Budget())
}

// checkOutcome decrypts all packets of the server and checks that no number occurs twice and that
// the reports to the sender were correct.
//
// A receiver may drop a packet that follows a higher number by more than a round trip (RFC 9000,
// Section 13.2.3). On a busy machine the kernel sends such packets, because it is not scheduled
// between taking a number and sending.
//
// It returns the number of external packets that the path delivered, and how many of these were
// overtaken.
func checkOutcome(t *testing.T, p *path, k *kernel) (delivered, overtaken int) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(k.states) < 4 {
		t.Errorf("%d key phases", len(k.states))
	}
	seen := map[int64]bool{}
	largest := int64(-1)
	var lost, late, own int
	highest := []numberAt{{-1, time.Time{}}} // each packet numbered above all before it
	for i, b := range p.captured {
		number, ok := int64(0), false
		for _, s := range k.states {
			pn, phase, _, err := open(s.Tx, b, 1+len(s.DestConnID), largest)
			if err == nil && phase == byte(s.KeyPhase&1) {
				number, ok = pn, true
			}
		}
		if !ok {
			t.Fatalf("packet %d of %d does not open with any key", i, len(p.captured))
		}
		if seen[number] {
			t.Errorf("number %d twice", number)
		}
		seen[number] = true
		if number > largest {
			largest = number
			highest = append(highest, numberAt{number, p.seenAt[i]})
		}
		// The first packet with a higher number, if any.
		higher, _ := slices.BinarySearchFunc(highest, number+1, func(h numberAt, n int64) int {
			return cmp.Compare(h.number, n)
		})
		switch {
		case !k.used[number]:
			own++
		case p.dropped[i]:
			lost++
			if !k.lost[number] {
				t.Errorf("packet %d was dropped; reported acknowledged: %v, lost: %v",
					number, k.acked[number], k.lost[number])
			}
		case k.lost[number] && higher < len(highest) && p.seenAt[i].Sub(highest[higher].at) > 2*p.delay:
			overtaken++ // the client may drop it as a duplicate
		case k.lost[number]:
			late++ // it, or its acknowledgement, came too late
		case !k.acked[number]:
			t.Errorf("packet %d arrived, and nothing was reported", number)
		}
	}
	for number := range k.used {
		if !seen[number] {
			t.Errorf("packet %d was not seen on the path", number)
		}
	}
	if own < 100 {
		t.Errorf("%d packets of the connection's own", own)
	}
	t.Logf("%d packets of the connection, external packets: %d dropped, %d overtaken, %d not acknowledged",
		own, lost, overtaken, late)
	return len(k.used) - lost, overtaken
}

// numberAt is a packet number and the time that packet crossed the path.
type numberAt struct {
	number int64
	at     time.Time
}

// TestMigration changes the client's address while external packets are sent.
func TestMigration(t *testing.T) {
	needsHooks(t)
	for _, controller := range []string{"", "bbr"} {
		t.Run("controller "+controller, func(t *testing.T) { testMigration(t, controller) })
	}
}

func testMigration(t *testing.T, controller string) {
	useAES(t)
	udp, ln := quiccctest.Listen(t, controller, datagrams)
	var transports [2]*quic.Transport
	for i := range transports {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		// A client needs spare connection IDs to migrate.
		transports[i] = &quic.Transport{Conn: c, ConnectionIDLength: 4}
		t.Cleanup(func() { _ = transports[i].Close(); _ = c.Close() })
	}
	client, err := transports[0].Dial(t.Context(), ln.Addr(), quiccctest.ClientTLS(), datagrams)
	if err != nil {
		t.Fatal(err)
	}
	server, err := ln.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k := newKernel(t, udp)
	h, err := Attach(server, k)
	if err != nil {
		t.Fatal(err)
	}
	arrives := func(what string) {
		t.Helper()
		payload := []byte(what)
		eventually(t, what, func() bool {
			k.send(payload, -1)
			h.Wake()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			b, err := client.ReceiveDatagram(ctx)
			return err == nil && string(b) == what
		})
	}
	arrives("before")
	before := h.State()
	path, err := client.AddPath(transports[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := path.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	arrives("probed")
	if err := path.Switch(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new path", func() bool {
		// The server may still be validating the new path.
		if err := client.SendDatagram([]byte("here")); err != nil {
			t.Fatal(err)
		}
		return h.State().Remote != before.Remote
	})
	if s := h.State(); s.Generation <= before.Generation ||
		s.Remote.Port() != uint16(transports[1].Conn.LocalAddr().(*net.UDPAddr).Port) {
		t.Errorf("state before %+v, after migration %+v", before, s)
	}
	arrives("after")
	k.finish(t, h)
	for _, c := range []*quic.Conn{client, server} {
		if err := context.Cause(c.Context()); err != nil {
			t.Errorf("connection ended: %v", err)
		}
	}
}

// TestUnregistered and TestReleased check that an ACK of an unused number closes the connection.
func TestUnregistered(t *testing.T) { testViolation(t, func(*kernel) {}) }

func TestReleased(t *testing.T) {
	testViolation(t, func(k *kernel) { k.mute = true })
}

func testViolation(t *testing.T, then func(k *kernel)) {
	needsHooks(t)
	useAES(t)
	udp, ln := quiccctest.Listen(t, "", datagrams)
	_, server := connect(t, ln, ln.Addr())
	k := newKernel(t, udp)
	h, err := Attach(server, k)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a block", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.next < k.end
	})
	k.mu.Lock()
	packet, remote := seal(&k.state, k.next, []byte("unregistered")), net.UDPAddrFromAddrPort(k.state.Remote)
	then(k)
	k.mu.Unlock()
	h.Wake()
	eventually(t, "the end of the connection", func() bool {
		h.Wake()
		if _, err := udp.WriteToUDP(packet, remote); err != nil {
			t.Fatal(err)
		}
		return server.Context().Err() != nil
	})
	var e *quic.TransportError
	if err := context.Cause(server.Context()); !errors.As(err, &e) || e.ErrorCode != quic.ProtocolViolation ||
		e.Remote {
		t.Errorf("the connection ended with %v", err)
	}
}
