package hostile

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"golang.org/x/net/ipv4"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/pause"
	"holocast/tools/lab/bench/internal/direct"
)

// Target is a relay under attack.
type Target struct {
	Addr string // UDP address for sessions
	HTTP string // address of /metrics
	TLS  *tls.Config
}

// attack is the behavior of a hostile peer until ctx is done.
type attack struct {
	name, about string
	run         func(ctx context.Context, t *Target) error
}

// forged names the attack that may keep out new viewers, because their first packets look like the
// attacker's.
const forged = "forged addresses"

// attacks lists the attacks.
func attacks() []attack {
	return []attack{
		{"namespace", "publishes the camera's namespace, its parent, the empty one, and the camera's track with " +
			"other properties and a later largest group", stealNamespace},
		{"bad publisher", "a track with groups far ahead, a delivery timeout of 1 ms, a hundred open subgroups and " +
			"junk, and its viewers", badPublisher},
		{"reset requests", "SUBSCRIBEs in the camera's namespace whose streams are reset at once", resetRequests},
		{"missing tracks", "SUBSCRIBEs of missing tracks of the camera, as fast as they are refused", missingTracks},
		{"waiting requests", "SUBSCRIBEs that wait for a publisher, as many as admitted", waitingRequests},
		{"unread fetches", "20 sessions FETCH the camera's old groups and read nothing", unreadFetches},
		{"namespaces", "100 sessions with 1,000 namespaces each", manyNamespaces},
		{"cache flood", "16 sessions with 8 tracks each, objects of 1 MB at full rate", cacheFlood},
		{"property flood", "tracks and objects with 12 kB of properties each", propertyFlood},
		{"empty objects", "objects of zero bytes at full rate, and a viewer of them", emptyObjects},
		{"empty groups", "streams of one empty object each at full rate", emptyGroups},
		{"small datagrams", "objects of ten bytes in datagrams at full rate", smallDatagrams},
		{"long timers", "20 viewers of a track of small groups, with a delivery timeout of 24 h", longTimers},
		{"slow readers", "20 viewers of the camera that read nothing", slowReaders},
		{"new groups", "4 viewers of the camera that request new groups continuously", newGroups},
		{"churn", "SUBSCRIBE to the camera and cancel, repeatedly, in 8 sessions", churn},
		{"half-open streams", "8 sessions with 2,000 streams each that carry one byte", halfOpen},
		{
			"unread windows", "16 sessions that send megabytes after a request, which the relay does not read",
			unreadWindows,
		},
		{"long names", "paths, names and namespaces of kilobytes, which reach the logs", longNames},
		{"idle sessions", "1,000 sessions that do nothing", idleSessions},
		{"scrapes", "200 sessions, and 20 concurrent requests for metrics", scrapes},
		{"connections", "connects and disconnects at full rate", connections},
		{"handshakes", "starts handshakes and does not continue them", handshakes},
		{"datagram flood", "UDP datagrams of junk at full rate", datagramFlood},
		{"first packets", "Initial packets with valid headers at full rate, from one address", firstPackets(1)},
		{forged, "Initial packets with valid headers at full rate, from 60,000 addresses", firstPackets(60_000)},
	}
}

// Attack runs an attack on a local relay until ctx is done. It writes started to out once the
// attack is running.
func Attack(ctx context.Context, name string, t *Target, out io.Writer) error {
	host, _, err := net.SplitHostPort(t.Addr)
	if ip := net.ParseIP(host); err != nil || !ip.IsLoopback() {
		return fmt.Errorf("%s is not a loopback address: only local relays can be attacked", t.Addr)
	}
	for _, a := range attacks() {
		if a.name == name {
			fmt.Fprint(out, started)
			err := a.run(ctx, t)
			<-ctx.Done()
			return err
		}
	}
	return fmt.Errorf("no attack %q; want one of %s", name, strings.Join(Names(), ", "))
}

// The attacker's sessions.

func (t *Target) dial(ctx context.Context) (*moqt.Session, error) {
	return moqt.Dial(ctx, "moqt://"+t.Addr, t.TLS, moqt.Handler{}, direct.Quiet)
}

// raw is a session without the MOQT library.
type raw struct {
	*quic.Conn
	next uint64 // next request ID
}

func (t *Target) raw(ctx context.Context, setup *wire.Setup) (*raw, error) {
	conf := t.TLS.Clone()
	conf.NextProtos, conf.ServerName = []string{wire.ALPN}, "localhost"
	c, err := quic.DialAddr(ctx, t.Addr, conf, &quic.Config{
		EnableDatagrams: true, EnableStreamResetPartialDelivery: true, KeepAlivePeriod: time.Second,
		MaxIncomingUniStreams: 1 << 20,
	})
	if err != nil {
		return nil, err
	}
	r := &raw{Conn: c}
	if setup == nil {
		setup = &wire.Setup{Path: "/", HasPath: true}
	}
	control, err := r.OpenUniStream()
	if err != nil {
		return nil, err
	}
	b, err := wire.AppendMessage(nil, setup)
	if err != nil {
		return nil, err
	}
	_, err = control.Write(b)
	return r, err
}

// request opens a request stream and sends the message that build returns for its ID.
func (r *raw) request(ctx context.Context, build func(id uint64) wire.Message) (*quic.Stream, error) {
	s, err := r.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	b, err := wire.AppendMessage(nil, build(r.next))
	if err != nil {
		return nil, err
	}
	r.next += 2
	_, err = s.Write(b)
	return s, err
}

// repeat calls f until ctx is done. It pauses briefly after errors, because the relay closes
// attacking sessions.
func repeat(ctx context.Context, f func() error) {
	for ctx.Err() == nil {
		if f() != nil {
			_ = pause.For(ctx, 20*time.Millisecond)
		}
	}
}

// each calls f repeatedly in n goroutines, with the goroutine's index.
func each(ctx context.Context, n int, f func(i int) error) error {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { repeat(ctx, func() error { return f(i) }) })
	}
	wg.Wait()
	return nil
}

// inSession runs f in a new session.
func (t *Target) inSession(ctx context.Context, f func(*moqt.Session) error) error {
	s, err := t.dial(ctx)
	if err != nil {
		return err
	}
	defer s.Close(wire.NoError, "")
	return f(s)
}

// inRaw runs f in a new raw session.
func (t *Target) inRaw(ctx context.Context, f func(*raw) error) error {
	r, err := t.raw(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = r.CloseWithError(0, "") }()
	stop := context.AfterFunc(ctx, func() { _ = r.CloseWithError(0, "") })
	defer stop()
	return f(r)
}

// own returns the name of a track in a new namespace of the attacker.
func own(name string) moqt.TrackName {
	return moqt.TrackName{Namespace: moqt.Namespace{"attack", rand.Text()}, Name: name}
}

// publishing publishes a track in a new session and runs f with the publication.
func (t *Target) publishing(ctx context.Context, track moqt.TrackName, info moqt.TrackInfo,
	f func(*moqt.Publication) error,
) error {
	return t.inSession(ctx, func(s *moqt.Session) error {
		p, err := s.Publish(ctx, track, info)
		if err != nil {
			return err
		}
		return f(p)
	})
}

// object sends a group of one object.
func object(p *moqt.Publication, group uint64, o moqt.Object, payload []byte) error {
	w, err := p.OpenSubgroup(wire.SubgroupHeader{Group: group, FirstObject: true, HasProperties: len(o.Properties) > 0})
	if err != nil {
		return err
	}
	if err := w.WriteObject(o, payload); err != nil {
		return err
	}
	return w.Close()
}

// The attacks.

func stealNamespace(ctx context.Context, t *Target) error {
	bad := moqt.TrackInfo{
		Largest:    func() (moqt.Location, bool) { return moqt.Location{Group: 1<<62 - 1}, true },
		Properties: wire.AppendKeyValues(nil, wire.KeyValue{Type: wire.PropertySubgroupDeliveryTimeout, Int: 1}),
	}
	return each(ctx, 2, func(int) error {
		return t.inSession(ctx, func(s *moqt.Session) error {
			for ctx.Err() == nil && s.Err() == nil {
				for _, ns := range []moqt.Namespace{camera.Namespace, camera.Namespace[:1], {}, {".relay"}} {
					_, _ = s.PublishNamespace(ctx, ns)
				}
				_, _ = s.Publish(ctx, camera, bad)
			}
			return s.Err()
		})
	})
}

func badPublisher(ctx context.Context, t *Target) error {
	return each(ctx, 2, func(int) error {
		info := moqt.TrackInfo{
			Largest:    func() (moqt.Location, bool) { return moqt.Location{Group: 1 << 50}, true },
			Properties: wire.AppendKeyValues(nil, wire.KeyValue{Type: wire.PropertySubgroupDeliveryTimeout, Int: 1}),
		}
		track := own("catalog")
		return t.publishing(ctx, track, info, func(p *moqt.Publication) error {
			viewer, err := t.dial(ctx)
			if err != nil {
				return err
			}
			defer viewer.Close(wire.NoError, "")
			if _, err := viewer.Subscribe(ctx, track, moqt.SubscribeOptions{}); err != nil {
				return err
			}
			for i := range uint64(100) {
				if w, err := p.OpenSubgroup(wire.SubgroupHeader{
					Group: 1 << 50, Subgroup: i,
					Mode: wire.SubgroupIDExplicit,
				}); err == nil {
					_ = w.WriteObject(moqt.Object{ID: i}, []byte("{\"version\":"))
				}
			}
			for group := uint64(1<<50 + 1); ctx.Err() == nil; group++ {
				if err := object(p, group, moqt.Object{}, []byte("junk")); err != nil && !errors.Is(err,
					moqt.ErrStreamsBlocked) {
					return err
				}
				_ = pause.For(ctx, time.Millisecond)
			}
			return nil
		})
	})
}

func subscribeTo(name string) func(id uint64) wire.Message {
	return func(id uint64) wire.Message {
		return &wire.Subscribe{RequestID: id, Track: moqt.TrackName{Namespace: camera.Namespace, Name: name}}
	}
}

// missing requests nonexistent tracks and passes each request's stream to then.
func missing(ctx context.Context, t *Target, then func(*quic.Stream)) error {
	return each(ctx, 4, func(int) error {
		return t.inRaw(ctx, func(r *raw) error {
			for i := 0; ; i++ {
				s, err := r.request(ctx, subscribeTo(fmt.Sprint("missing", i)))
				if err != nil {
					return err
				}
				then(s)
			}
		})
	})
}

func resetRequests(ctx context.Context, t *Target) error {
	return missing(ctx, t, func(s *quic.Stream) {
		s.CancelWrite(quic.StreamErrorCode(wire.StreamCancelled))
		s.CancelRead(quic.StreamErrorCode(wire.StreamCancelled))
	})
}

func missingTracks(ctx context.Context, t *Target) error {
	return missing(ctx, t, func(s *quic.Stream) {
		_ = s.Close()
		go func() { _, _ = io.Copy(io.Discard, s) }()
	})
}

func waitingRequests(ctx context.Context, t *Target) error {
	return each(ctx, 16, func(int) error {
		return t.inRaw(ctx, func(r *raw) error {
			for i := 0; ; i++ {
				s, err := r.request(ctx, func(id uint64) wire.Message {
					return &wire.Subscribe{
						RequestID: id, Track: own("never"),
						Parameters: moqt.Parameters{RendezvousTimeout: new(uint64(1 << 30))},
					}
				})
				if err != nil {
					return err
				}
				go func() { _, _ = io.Copy(io.Discard, s) }()
			}
		})
	})
}

func unreadFetches(ctx context.Context, t *Target) error {
	return each(ctx, 20, func(int) error {
		return t.inSession(ctx, func(s *moqt.Session) error {
			for range 4 {
				_, _ = s.Fetch(ctx, camera, moqt.Location{}, moqt.Location{Group: 1 << 40}, moqt.FetchOptions{})
			}
			_ = pause.For(ctx, 4*time.Second)
			return s.Err()
		})
	})
}

func manyNamespaces(ctx context.Context, t *Target) error {
	return each(ctx, 100, func(i int) error {
		return t.inRaw(ctx, func(r *raw) error {
			for n := 0; n < 1000; n++ {
				s, err := r.request(ctx, func(id uint64) wire.Message {
					return &wire.PublishNamespace{RequestID: id, Namespace: moqt.Namespace{
						"attack", fmt.Sprint(i), fmt.Sprint(n),
					}}
				})
				if err != nil {
					return err
				}
				go func() { _, _ = io.Copy(io.Discard, s) }()
			}
			<-r.Context().Done()
			return nil
		})
	})
}

// flood publishes 8 tracks per session and calls send for each repeatedly.
func flood(ctx context.Context, t *Target, sessions int, send func(p *moqt.Publication, group uint64) error) error {
	return each(ctx, sessions, func(int) error {
		return t.inSession(ctx, func(s *moqt.Session) error {
			var list []*moqt.Publication
			for range 8 {
				p, err := s.Publish(ctx, own("flood"), moqt.TrackInfo{})
				if err != nil {
					return err
				}
				list = append(list, p)
			}
			for group := uint64(0); ctx.Err() == nil; group++ {
				for _, p := range list {
					switch err := send(p, group); {
					case errors.Is(err, moqt.ErrStreamsBlocked):
						_ = pause.For(ctx, time.Millisecond)
					case err != nil:
						return err
					}
				}
			}
			return nil
		})
	})
}

func cacheFlood(ctx context.Context, t *Target) error {
	payload := make([]byte, 1<<20)
	return flood(ctx, t, 16, func(p *moqt.Publication,
		group uint64,
	) error {
		return object(p, group, moqt.Object{}, payload)
	})
}

// twelveKB returns 12 kB of properties of an unknown type.
func twelveKB() moqt.Properties {
	return wire.AppendKeyValues(nil, wire.KeyValue{Type: 0x3fff1, Bytes: make([]byte, 12<<10)})
}

func propertyFlood(ctx context.Context, t *Target) error {
	props := twelveKB()
	go func() {
		_ = each(ctx, 4, func(int) error {
			return t.inSession(ctx, func(s *moqt.Session) error {
				for range 1000 {
					if _, err := s.Publish(ctx, own("properties"), moqt.TrackInfo{Properties: props}); err != nil &&
						s.Err() != nil {
						return err
					}
				}
				_ = pause.For(ctx, time.Second)
				return nil
			})
		})
	}()
	return flood(ctx, t, 2, func(p *moqt.Publication, group uint64) error {
		return object(p, group, moqt.Object{Properties: props}, nil)
	})
}

func emptyObjects(ctx context.Context, t *Target) error {
	return each(ctx, 4, func(int) error {
		track := own("empty")
		return t.publishing(ctx, track, moqt.TrackInfo{}, func(p *moqt.Publication) error {
			viewer, err := t.dial(ctx)
			if err != nil {
				return err
			}
			defer viewer.Close(wire.NoError, "")
			sub, err := viewer.Subscribe(ctx, track, moqt.SubscribeOptions{})
			if err != nil {
				return err
			}
			go func() {
				for {
					r, err := sub.AcceptSubgroup(ctx)
					if err != nil {
						return
					}
					go func() {
						b := make([]byte, 32<<10)
						for err == nil {
							_, err = r.ReadRaw(b)
						}
					}()
				}
			}()
			w, err := p.OpenSubgroup(wire.SubgroupHeader{FirstObject: true})
			if err != nil {
				return err
			}
			enc := wire.ObjectEncoder{}
			var b []byte
			for id := uint64(0); ctx.Err() == nil; id++ {
				if b, err = enc.Append(b, moqt.Object{ID: id}); err != nil {
					return err
				}
				if len(b) > 16<<10 {
					if err := w.WriteRaw(b); err != nil {
						return err
					}
					b = b[:0]
				}
			}
			return nil
		})
	})
}

func emptyGroups(ctx context.Context, t *Target) error {
	return flood(ctx, t, 4, func(p *moqt.Publication,
		group uint64,
	) error {
		return object(p, group, moqt.Object{}, nil)
	})
}

func smallDatagrams(ctx context.Context, t *Target) error {
	return flood(ctx, t, 4, func(p *moqt.Publication, group uint64) error {
		err := p.SendDatagram(moqt.Datagram{Group: group, Payload: []byte("ten bytes.")})
		if errors.Is(err, moqt.ErrQueueFull) {
			_ = pause.For(ctx, time.Millisecond)
			return nil
		}
		return err
	})
}

func longTimers(ctx context.Context, t *Target) error {
	track := own("timers")
	go func() {
		_ = each(ctx, 20, func(int) error {
			return t.inSession(ctx, func(s *moqt.Session) error {
				sub, err := s.Subscribe(ctx, track, moqt.SubscribeOptions{
					SubgroupDeliveryTimeout: 24 * time.Hour,
					ObjectDeliveryTimeout:   24 * time.Hour,
				})
				if err != nil {
					return err
				}
				for {
					r, err := sub.AcceptSubgroup(ctx)
					if err != nil {
						return err
					}
					go func() { _, _ = io.Copy(io.Discard, readerOf(r)) }()
				}
			})
		})
	}()
	return each(ctx, 1, func(int) error {
		return t.publishing(ctx, track, moqt.TrackInfo{}, func(p *moqt.Publication) error {
			for group := uint64(0); ctx.Err() == nil; group++ {
				if err := object(p, group, moqt.Object{}, []byte("small")); err != nil && !errors.Is(err,
					moqt.ErrStreamsBlocked) {
					return err
				}
				_ = pause.For(ctx, time.Millisecond)
			}
			return nil
		})
	})
}

// readerOf returns a reader of a subgroup's bytes.
func readerOf(r *moqt.SubgroupReader) io.Reader { return rawReader{r} }

type rawReader struct{ r *moqt.SubgroupReader }

func (r rawReader) Read(p []byte) (int, error) { return r.r.ReadRaw(p) }

func slowReaders(ctx context.Context, t *Target) error {
	return each(ctx, 20, func(int) error {
		return t.inRaw(ctx, func(r *raw) error {
			if _, err := r.request(ctx, subscribeTo(camera.Name)); err != nil {
				return err
			}
			<-r.Context().Done()
			return r.Context().Err()
		})
	})
}

func newGroups(ctx context.Context, t *Target) error {
	return each(ctx, 4, func(int) error {
		return t.inRaw(ctx, func(r *raw) error {
			s, err := r.request(ctx, subscribeTo(camera.Name))
			if err != nil {
				return err
			}
			go func() { _, _ = io.Copy(io.Discard, s) }()
			for group := uint64(1); ; group++ {
				b, err := wire.AppendMessage(nil, &wire.RequestUpdate{
					RequestID:  r.next,
					Parameters: moqt.Parameters{NewGroupRequest: &group, Forward: new(false)},
				})
				if err != nil {
					return err
				}
				r.next += 2
				if _, err := s.Write(b); err != nil {
					return err
				}
			}
		})
	})
}

func churn(ctx context.Context, t *Target) error {
	return each(ctx, 8, func(int) error {
		return t.inSession(ctx, func(s *moqt.Session) error {
			for ctx.Err() == nil {
				sub, err := s.Subscribe(ctx, camera, moqt.SubscribeOptions{Join: true})
				if err != nil {
					if s.Err() != nil {
						return err
					}
					_ = pause.For(ctx, 10*time.Millisecond)
					continue
				}
				sub.Cancel()
			}
			return nil
		})
	})
}

func halfOpen(ctx context.Context, t *Target) error {
	return each(ctx, 8, func(int) error {
		return t.inRaw(ctx, func(r *raw) error {
			for range 1000 {
				s, err := r.OpenStreamSync(ctx)
				if err != nil {
					return err
				}
				_, _ = s.Write([]byte{byte(wire.TypeSubscribe)})
				u, err := r.OpenUniStreamSync(ctx)
				if err != nil {
					return err
				}
				_, _ = u.Write([]byte{0x10})
			}
			_ = pause.For(ctx, time.Second)
			return errors.New("repeat with a new session")
		})
	})
}

func unreadWindows(ctx context.Context, t *Target) error {
	junk := make([]byte, 4<<20)
	return each(ctx, 16, func(int) error {
		return t.inRaw(ctx, func(r *raw) error {
			for range 32 {
				s, err := r.request(ctx, subscribeTo(camera.Name))
				if err != nil {
					return err
				}
				_ = s.SetWriteDeadline(time.Now().Add(time.Second))

				// Announce a message, fill the window with its body and never complete it.
				_, _ = s.Write(append([]byte{byte(wire.TypeRequestUpdate), 0xff, 0xff}, junk...))
			}
			_ = pause.For(ctx, 5*time.Second)
			return nil
		})
	})
}

func longNames(ctx context.Context, t *Target) error {
	long := strings.Repeat("x", 4000)
	return each(ctx, 4, func(int) error {
		r, err := t.raw(ctx, &wire.Setup{Path: "/" + strings.Repeat("y", 60_000), HasPath: true, Implementation: long})
		if err != nil {
			return err
		}
		defer func() { _ = r.CloseWithError(0, "") }()
		for range 200 {
			s, err := r.request(ctx, func(id uint64) wire.Message {
				return &wire.PublishNamespace{RequestID: id, Namespace: moqt.Namespace{"attack", rand.Text(), long}}
			})
			if err != nil {
				return err
			}
			_ = s.Close()
			s.CancelRead(0)
		}
		return nil
	})
}

func idleSessions(ctx context.Context, t *Target) error {
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	tr := &quic.Transport{Conn: udp}
	addr, err := net.ResolveUDPAddr("udp", t.Addr)
	if err != nil {
		return err
	}
	conf := t.TLS.Clone()
	conf.NextProtos, conf.ServerName = []string{wire.ALPN}, "localhost"
	setup, err := wire.AppendMessage(nil, &wire.Setup{Path: "/", HasPath: true})
	if err != nil {
		return err
	}
	for n := 0; n < 1000 && ctx.Err() == nil; {
		c, err := tr.Dial(ctx, addr, conf, &quic.Config{
			EnableDatagrams: true, EnableStreamResetPartialDelivery: true,
			KeepAlivePeriod: 2 * time.Second,
		})
		if err != nil {
			_ = pause.For(ctx, 50*time.Millisecond)
			continue
		}
		s, err := c.OpenUniStream()
		if err == nil {
			_, err = s.Write(setup)
		}
		if err == nil {
			n++
		}
	}
	<-ctx.Done()
	return nil
}

func scrapes(ctx context.Context, t *Target) error {
	go func() {
		for range 200 {
			if _, err := t.raw(ctx, nil); err != nil {
				_ = pause.For(ctx, 20*time.Millisecond)
			}
		}
	}()
	return each(ctx, 20, func(int) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.HTTP+"/metrics", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return errors.Join(err, resp.Body.Close())
	})
}

func connections(ctx context.Context, t *Target) error {
	return each(ctx, 8, func(int) error {
		r, err := t.raw(ctx, nil)
		if err == nil {
			_ = r.CloseWithError(0, "")
		}
		return nil // and immediately again
	})
}

// hello returns the first datagram of a client's connection. It abandons the connection.
func (t *Target) hello(ctx context.Context) ([]byte, error) {
	in, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	conf := t.TLS.Clone()
	conf.NextProtos, conf.ServerName = []string{wire.ALPN}, "localhost"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { _, _ = quic.DialAddr(ctx, in.LocalAddr().String(), conf, nil) }()
	b := make([]byte, 2048)
	n, _, err := in.ReadFrom(b)
	return b[:n], err
}

func handshakes(ctx context.Context, t *Target) error {
	return each(ctx, 4, func(int) error {
		b, err := t.hello(ctx)
		if err != nil {
			return err
		}
		out, err := net.Dial("udp", t.Addr)
		if err != nil {
			return err
		}
		defer func() { _ = out.Close() }()
		for range 3 {
			_, _ = out.Write(b)
		}
		return nil
	})
}

func datagramFlood(ctx context.Context, t *Target) error {
	return each(ctx, 2, func(int) error {
		out, err := net.Dial("udp", t.Addr)
		if err != nil {
			return err
		}
		defer func() { _ = out.Close() }()
		junk := make([]byte, 1200)
		_, _ = rand.Read(junk)
		forms := [][]byte{junk, bytes.Clone(junk), junk[:40]}
		forms[0][0] &= 0x7f // short header
		forms[1][0] |= 0xc0 // an Initial of QUIC version 1
		copy(forms[1][1:], []byte{0, 0, 0, 1, 8})
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = out.Write(forms[i%len(forms)])
		}
		return nil
	})
}

// firstPackets sends Initial packets (RFC 9000, Section 17.2.2) from a number of addresses. Only a
// receiver that derives the Initial keys can detect that they do not decrypt.
func firstPackets(addresses int) func(ctx context.Context, t *Target) error {
	return func(ctx context.Context, t *Target) error {
		hello, err := t.hello(ctx)
		if err != nil {
			return err
		}
		to, err := net.ResolveUDPAddr("udp4", t.Addr)
		if err != nil {
			return err
		}
		out, err := net.ListenUDP("udp4", nil)
		if err != nil {
			return err
		}
		defer func() { _ = out.Close() }()
		batch := make([]ipv4.Message, 64)
		for i := range batch {
			batch[i] = ipv4.Message{Buffers: [][]byte{bytes.Clone(hello)}, Addr: to}
		}
		packets := ipv4.NewPacketConn(out)
		for i := 0; ctx.Err() == nil; {
			for j := range batch {
				const id = 6 // offset of the connection ID, which has at least eight bytes
				_, _ = rand.Read(batch[j].Buffers[0][id : id+8])
				from := ipv4.ControlMessage{Src: net.IPv4(127, 1+byte(i>>16), byte(i>>8), byte(i))}
				batch[j].OOB = from.Marshal()
				i = (i + 1) % addresses
			}
			_, _ = packets.WriteBatch(batch, 0)
		}
		return nil
	}
}
