package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// excess returns the limit that a refused request would have exceeded, or "".
func excess(err error) string {
	var refused *moqt.RequestError
	if !errors.As(err, &refused) || refused.Code != wire.RequestExcessiveLoad || refused.RetryInterval == 0 {
		return ""
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(refused.Reason, "limit "), " ")
	return name
}

// TestLimits checks that each limit refuses the excess and reports it in the response and the metrics.
// Other sessions are not affected, and released capacity is available again.
func TestLimits(t *testing.T) {
	long := wire.AppendKeyValues(nil, wire.KeyValue{Type: 0x3fff1, Bytes: make([]byte, 900)})
	numbered := func(i int) moqt.TrackName {
		return moqt.TrackName{Namespace: moqt.Namespace{"holocast-test", "own"}, Name: fmt.Sprint(i)}
	}
	for name, c := range map[string]struct {
		limit string
		ask   func(s *moqt.Session, i int) error // the i-th request
	}{
		"subscriptions of a session": {"subscriptions.session", func(s *moqt.Session, i int) error {
			if i == 0 {
				_, err := s.Subscribe(within(t), points, moqt.SubscribeOptions{})
				return err
			}
			_, err := s.SubscribeNamespace(within(t), moqt.Namespace{fmt.Sprint(i)})
			return err
		}},
		"subscriptions of an address": {"subscriptions.address", func(s *moqt.Session, i int) error {
			_, err := s.SubscribeNamespace(within(t), moqt.Namespace{fmt.Sprint(i)})
			return err
		}},
		"fetches": {"fetches.session", func(s *moqt.Session, i int) error { // the response is not read
			_, err := s.Fetch(within(t), points, moqt.Location{}, moqt.Location{}, moqt.FetchOptions{})
			return err
		}},
		"namespaces": {"namespaces.session", func(s *moqt.Session, i int) error {
			_, err := s.PublishNamespace(within(t), moqt.Namespace{"holocast-test", fmt.Sprint(i)})
			return err
		}},
		"tracks": {"tracks.session", func(s *moqt.Session, i int) error {
			_, err := s.Publish(within(t), numbered(i), moqt.TrackInfo{})
			return err
		}},
		"properties": {"properties.session", func(s *moqt.Session, i int) error {
			_, err := s.Publish(within(t), numbered(i), moqt.TrackInfo{Properties: long})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bound := "3"
			if strings.HasPrefix(c.limit, "properties") {
				bound = "3000"
			}
			p := start(t, "--limits", c.limit+"="+bound)
			tr := origin.NewTrack(points, nil, origin.Limits{})
			p.publish(tr)
			write(t, tr, 0, make([]byte, 8<<20))
			s := p.dial(moqt.Handler{})
			var err error
			asked := 0
			for ; err == nil && asked < 10; asked++ {
				err = c.ask(s, asked)
			}
			if excess(err) != c.limit || asked > 4 {
				t.Fatalf("request %d: %v; want a refusal by %s", asked, err, c.limit)
			}
			if s.Err() != nil {
				t.Errorf("the session ended: %v", s.Err())
			}
			kind, scope, _ := strings.Cut(c.limit, ".")
			series := fmt.Sprintf("holocast_relay_limit_reached_total{kind=%q,scope=%q}", kind, scope)
			if n := p.metric(series); n < 1 {
				t.Errorf("%s is %v", series, n)
			}
			if n := p.metric(`holocast_relay_refused_requests_total{reason="EXCESSIVE_LOAD"}`); n < 1 {
				t.Errorf("%v refused requests", n)
			}
			if scope == "session" {
				sub := subscribe(t, p.dial(moqt.Handler{}), points)
				write(t, tr, 1, []byte("undisturbed"))
				expect(t, sub, 1, []byte("undisturbed"))
			}
			s.Close(wire.NoError, "")
			eventually(t, "there is room again", func() bool { return c.ask(p.dial(moqt.Handler{}), 9) == nil })
		})
	}
}

// TestWaitingRequests checks that with a limit of three waiting requests, a fourth is refused while the
// others keep waiting for a publisher.
func TestWaitingRequests(t *testing.T) {
	p := start(t, "--limits", "waiting.session=3")
	s := p.dial(moqt.Handler{})
	answers := make(chan error, 4)
	for i := range cap(answers) {
		go func() {
			track := moqt.TrackName{Namespace: moqt.Namespace{"holocast-test", "nobody"}, Name: fmt.Sprint(i)}
			_, err := s.Subscribe(t.Context(), track, moqt.SubscribeOptions{RendezvousTimeout: 20 * time.Second})
			answers <- err
		}()
	}
	if err := <-answers; excess(err) != "waiting.session" {
		t.Errorf("the first answer: %v", err)
	}
	select {
	case err := <-answers:
		t.Errorf("another answer: %v", err)
	default:
	}
}

// TestConnectionLimit checks that connections beyond an address's limit are refused, and that closing
// one admits another.
func TestConnectionLimit(t *testing.T) {
	for name, protocol := range map[string]string{
		"sessions":                 wire.ALPN,
		"HTTP/3 without a session": http3.NextProtoH3,
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, "--limits", "connections.address=2")
			conf := pinned(t, p.hash)
			conf.NextProtos, conf.ServerName = []string{protocol}, "localhost"
			connect := func() (*quic.Conn, error) {
				return quic.DialAddr(t.Context(), p.udp, conf,
					&quic.Config{EnableDatagrams: true, EnableStreamResetPartialDelivery: true})
			}
			var there []*quic.Conn
			for range 2 {
				c, err := connect()
				if err != nil {
					t.Fatal(err)
				}
				there = append(there, c)
			}
			if c, err := connect(); err == nil {
				_ = c.CloseWithError(0, "")
				t.Error("a third connection was admitted")
			}
			for _, c := range there {
				if err := c.Context().Err(); err != nil {
					t.Errorf("one that was there ended: %v", err)
				}
			}
			_ = there[1].CloseWithError(0, "")
			eventually(t, "there is room again", func() bool {
				c, err := connect()
				if err == nil {
					_ = c.CloseWithError(0, "")
				}
				return err == nil
			})
			_ = there[0].CloseWithError(0, "")
		})
	}
}

// TestHandshakeLimit checks that an address that reconnects too often is refused until it slows down.
func TestHandshakeLimit(t *testing.T) {
	p := start(t, "--limits", "handshakes.address=5")
	connect := func() error {
		s, err := moqt.Dial(t.Context(), "moqt://"+p.udp, pinned(t, p.hash), moqt.Handler{}, quiet)
		if err == nil {
			s.Close(wire.NoError, "")
		}
		return err
	}
	eventually(t, "an attempt is refused", func() bool {
		var refused atomic.Bool
		var wg sync.WaitGroup
		for range 50 { // concurrently, so that even a slow machine exceeds the rate
			wg.Go(func() {
				if connect() != nil {
					refused.Store(true)
				}
			})
		}
		wg.Wait()
		return refused.Load()
	})
	eventually(t, "it may connect again", func() bool { return connect() == nil })
}

// TestInitialsLimit checks that others can connect during a flood of Initial packets from one
// address, and that this address itself can connect once the flood has stopped.
func TestInitialsLimit(t *testing.T) {
	p := start(t, "--limits", "initials.address=100")
	to, err := net.ResolveUDPAddr("udp", p.udp)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)}, to)
	if err != nil {
		t.Skip(err) // other systems have one loopback address
	}
	defer func() { _ = c.Close() }()
	dropped := `holocast_relay_limit_reached_total{kind="initials",scope="address"}`
	packet := append([]byte{0xc0, 0, 0, 0, 1, 8}, make([]byte, 1200)...)
	eventually(t, "first packets are dropped", func() bool {
		for range 1000 {
			copy(packet[6:], rand.Text()[:8])
			_, _ = c.Write(packet)
		}
		return p.metric(dropped) > 0
	})
	if n := p.metric(`holocast_relay_limit_reached_total{kind="initials",scope="all"}`); n > 0 {
		t.Errorf("%v first packets of others were dropped", n)
	}
	s, err := moqt.Dial(within(t), "moqt://"+p.udp, pinned(t, p.hash), moqt.Handler{}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	s.Close(wire.NoError, "")
	used := `holocast_relay_limit_used{kind="initials",scope="address"}`
	eventually(t, "nothing is dropped any more", func() bool { return p.metric(used) == 0 })
}

// TestStreamLimit checks that streams beyond the limit are refused and the session stays open.
func TestStreamLimit(t *testing.T) {
	p := start(t, "--limits", "streams.session=8")
	r := p.raw(p.udp)
	for range 30 {
		r.uni([]byte{0x10}) // half a header
	}
	series := `holocast_relay_limit_reached_total{kind="streams",scope="session"}`
	eventually(t, "streams are refused", func() bool { return p.metric(series) > 0 })
	if n := p.metric(`holocast_relay_limit_used{kind="streams",scope="session"}`); n > 8 {
		t.Errorf("%v streams are open", n)
	}
	if r.conn.Context().Err() != nil {
		t.Error("the session ended")
	}
}

// TestRates checks that a session that exceeds a rate is delayed and counted in the metrics. It stays
// open, and another session loses no frame.
func TestRates(t *testing.T) {
	publishing := func(send func(p *moqt.Publication, group uint64) error) func(*testing.T,
		*moqt.Session) func(uint64) error {
		return func(t *testing.T, s *moqt.Session) func(uint64) error {
			p, err := s.Publish(within(t), moqt.TrackName{Namespace: moqt.Namespace{"greedy"}, Name: "x"},
				moqt.TrackInfo{})
			if err != nil {
				t.Fatal(err)
			}
			return func(group uint64) error {
				if err := send(p, group); !errors.Is(err, moqt.ErrStreamsBlocked) &&
					!errors.Is(err, moqt.ErrQueueFull) {
					return err
				}
				return nil
			}
		}
	}
	objects := func(number, size int) func(*moqt.Publication, uint64) error {
		return func(p *moqt.Publication, group uint64) error {
			w, err := p.OpenSubgroup(header(group))
			if err != nil {
				return err
			}
			for i := range number {
				if err := w.WriteObject(moqt.Object{ID: uint64(i)}, make([]byte, size)); err != nil {
					return err
				}
			}
			return w.Close()
		}
	}
	for name, c := range map[string]struct {
		kind, bound string
		greed       func(*testing.T, *moqt.Session) (once func(n uint64) error)
	}{
		"requests": {"requests", "20", func(t *testing.T, s *moqt.Session) func(uint64) error {
			return func(n uint64) error {
				_, _, err := s.TrackStatus(within(t),
					moqt.TrackName{Namespace: moqt.Namespace{"nobody"}, Name: fmt.Sprint(n)})
				var refused *moqt.RequestError
				if errors.As(err, &refused) {
					return nil
				}
				return err
			}
		}},
		"groups":  {"groups", "40", publishing(objects(1, 1))},
		"objects": {"objects", "100", publishing(objects(100, 1))},
		"datagrams": {"objects", "100", publishing(func(p *moqt.Publication,
			group uint64,
		) error {
			return p.SendDatagram(moqt.Datagram{Group: group})
		})},
		"bytes": {"bytes", "100000", publishing(objects(1, 20_000))},
		"properties": {"bytes", "100000", publishing(func(p *moqt.Publication, group uint64) error {
			w, err := p.OpenSubgroup(wire.SubgroupHeader{Group: group, FirstObject: true, HasProperties: true})
			if err != nil {
				return err
			}
			props := wire.AppendKeyValues(nil, wire.KeyValue{Type: 0x3fff1, Bytes: make([]byte, 10_000)})
			return errors.Join(w.WriteObject(moqt.Object{Properties: props}, nil), w.Close())
		})},
	} {
		for _, scope := range []string{"session", "address", "all"} {
			t.Run(name+" of "+scope, func(t *testing.T) {
				p := start(t, "--limits", c.kind+"."+scope+"="+c.bound)
				greedy := p.dial(moqt.Handler{})
				once := c.greed(t, greedy)
				series := fmt.Sprintf("holocast_relay_limit_reached_total{kind=%q,scope=%q}", c.kind, scope)
				n := uint64(0)
				eventually(t, "it is delayed", func() bool {
					for range 20 {
						if err := once(n); err != nil {
							t.Fatal(err)
						}
						n++
					}
					return p.metric(series) > 0
				})
				if greedy.Err() != nil {
					t.Errorf("its session ended: %v", greedy.Err())
				}
				honest := origin.NewTrack(points, nil, origin.Limits{})
				p.publish(honest)
				sub := subscribe(t, p.dial(moqt.Handler{}), points)
				write(t, honest, 1, []byte("undisturbed"))
				expect(t, sub, 1, []byte("undisturbed"))
			})
		}
	}
}

// TestGreedyPublisherIsSlowedDown checks that a publisher that sends as fast as it can is limited
// to its rate, and that another one loses no frame.
func TestGreedyPublisherIsSlowedDown(t *testing.T) {
	p := start(t, "--limits", "bytes.all=2000000", "--limits", "cached.session=1000000")
	honest := origin.NewTrack(points, nil, origin.Limits{})
	p.publish(honest)
	sub := subscribe(t, p.dial(moqt.Handler{}), points)
	greedy := p.dial(moqt.Handler{})
	pub, err := greedy.Publish(within(t), moqt.TrackName{Namespace: moqt.Namespace{"greedy"}, Name: "x"},
		moqt.TrackInfo{})
	if err != nil {
		t.Fatal(err)
	}
	flooding := make(chan struct{})
	go func() {
		defer close(flooding)
		payload := make([]byte, 100_000)
		for group := uint64(0); ; group++ {
			w, err := pub.OpenSubgroup(header(group))
			if errors.Is(err, moqt.ErrStreamsBlocked) {
				time.Sleep(time.Millisecond)
				continue
			}
			if err != nil {
				return
			}
			if err := w.WriteObject(moqt.Object{}, payload); err != nil && greedy.Err() != nil {
				return
			}
			_ = w.Close()
		}
	}()
	eventually(t, "the greedy one is slowed down", func() bool {
		return p.metric(`holocast_relay_limit_reached_total{kind="bytes",scope="all"}`) > 0
	})
	for group := range uint64(50) {
		payload := []byte(fmt.Sprint("frame ", group, strings.Repeat(".", 10_000)))
		write(t, honest, group, payload)
		expect(t, sub, group, payload)
	}
	if n := p.metric(`holocast_relay_limit_used{kind="cached",scope="session"}`); n > 1_000_000 {
		t.Errorf("%v bytes cached of one session", n)
	}
	greedy.Close(wire.NoError, "")
	<-flooding
}

// TestLimitsReload checks that SIGHUP applies limits to open sessions. Invalid limits change nothing.
func TestLimitsReload(t *testing.T) {
	config := filepath.Join(t.TempDir(), "relay.yaml")
	write := func(yaml string) {
		if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("limits: {namespaces: {session: 1}}\n")
	p := start(t, "--config", config)
	hup := func(says string) {
		t.Helper()
		p.Signal(syscall.SIGHUP)
		eventually(t, says, func() bool { return strings.Contains(p.output(), says) })
	}
	s := p.dial(moqt.Handler{})
	publish := func(name string) error {
		_, err := s.PublishNamespace(within(t), moqt.Namespace{"holocast-test", name})
		return err
	}
	if err := publish("a"); err != nil {
		t.Fatal(err)
	}
	if err := publish("b"); excess(err) != "namespaces.session" {
		t.Fatalf("the second namespace: %v", err)
	}
	write("limits: {namespaces: {session: -1}}\n")
	hup("limits.namespaces.session must not be negative")
	if err := publish("b"); excess(err) != "namespaces.session" {
		t.Errorf("after a wrong file: %v", err)
	}
	write("limits: {namespaces: {session: 2}}\n")
	hup("configuration reloaded")
	if err := publish("b"); err != nil {
		t.Errorf("with the new limit: %v", err)
	}
	if strings.Contains(p.output(), "take effect after a restart") {
		t.Error("limits are said to need a restart")
	}
}
