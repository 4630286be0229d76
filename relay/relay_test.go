package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/programtest"
)

// Environment variables that turn the test binary into a publisher or viewer that a test kills.
const (
	envPublish = "HOLOCAST_TEST_PUBLISH"
	envView    = "HOLOCAST_TEST_VIEW"
	envHash    = "HOLOCAST_TEST_HASH"
	envSize    = "HOLOCAST_TEST_SIZE" // size of the publisher's frames in bytes; a few by default
)

// binary is the relay under test.
var binary string

func TestMain(m *testing.M) {
	if url := os.Getenv(envPublish); url != "" {
		publishUntilKilled(url)
	}
	if url := os.Getenv(envView); url != "" {
		viewUntilKilled(url)
	}
	programtest.Main(m, func(dir string) { binary = filepath.Join(dir, "relay") }, ".")
}

// process is a running relay.
type process struct {
	*programtest.Process
	t     *testing.T
	udp   string
	http  string
	admin string
	hash  string
}

// start runs a relay on free ports.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startBy(t, (*exec.Cmd).Start, append([]string{"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"},
		args...)...)
}

// startBy runs a relay; begin starts its command.
func startBy(t *testing.T, begin func(*exec.Cmd) error, args ...string) *process {
	t.Helper()
	c := exec.Command(binary, append([]string{"--log-format", "json", "--log-level", "debug"}, args...)...)
	p := &process{Process: programtest.StartBy(t, c, begin), t: t}
	var line struct {
		UDP, HTTP, Admin string
		Hash             string `json:"certificate_sha256"`
	}
	if err := json.Unmarshal([]byte(p.Line(`"relay is listening"`)), &line); err != nil {
		t.Fatal(err)
	}
	p.udp, p.http, p.admin, p.hash = line.UDP, line.HTTP, line.Admin, line.Hash
	return p
}

func (p *process) output() string { return p.Stderr.String() }

var quiet = moqt.Config{Log: slog.New(slog.DiscardHandler)}

func pinned(t testing.TB, hash string) *tls.Config {
	h, err := devcert.ParseHash(hash)
	if err != nil {
		t.Fatal(err)
	}
	return devcert.Pinned(h)
}

// dial opens a session to the relay.
func (p *process) dial(h moqt.Handler) *moqt.Session {
	p.t.Helper()
	return p.dialTo(p.udp, h)
}

func (p *process) dialTo(addr string, h moqt.Handler) *moqt.Session {
	p.t.Helper()
	s, err := moqt.Dial(p.t.Context(), "moqt://"+addr, pinned(p.t, p.hash), h, quiet)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { s.Close(wire.NoError, "") })
	return s
}

func (p *process) get(path string) (status int, body string) {
	p.t.Helper()
	return p.getAs(path, "")
}

// getAs requests a page in a format.
func (p *process) getAs(path, accept string) (status int, body string) {
	p.t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+p.http+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return resp.StatusCode, string(b)
}

// scrape numbers the requests for metrics. A busy relay repeats its last page for a format, so each asks for its own.
var scrape atomic.Int64

// metric returns the current value of a series, named with its labels as in Prometheus' text format, or 0 if it is
// missing.
func (p *process) metric(series string) float64 {
	p.t.Helper()
	status, body := p.getAs("/metrics", fmt.Sprintf("text/plain;new=%d", scrape.Add(1)))
	if status != http.StatusOK {
		p.t.Fatalf("metrics: status %d", status)
	}
	return metricIn(p.t, body, series)
}

func metricIn(t testing.TB, body, series string) float64 {
	t.Helper()
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	return 0
}

// resident returns the process's resident memory in bytes.
func (p *process) resident() int64 {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.Cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

var (
	session = moqt.Namespace{"holocast", "test"}
	points  = moqt.TrackName{Namespace: session, Name: "points"}
)

// publish offers tracks in a new session.
func (p *process) publish(tracks ...*origin.Track) {
	p.t.Helper()
	var set origin.Set
	for _, t := range tracks {
		set.Add(t)
	}
	s := p.dial(set.Handler())
	if _, err := s.PublishNamespace(p.t.Context(), session); err != nil {
		p.t.Fatal(err)
	}
}

func header(group uint64) wire.SubgroupHeader {
	return wire.SubgroupHeader{Group: group, FirstObject: true, EndOfGroup: true}
}

func write(t testing.TB, tr *origin.Track, group uint64, payload []byte) {
	t.Helper()
	if err := tr.WriteObject(header(group), moqt.Object{}, payload); err != nil {
		t.Fatal(err)
	}
}

func subscribe(t testing.TB, s *moqt.Session, name moqt.TrackName) *moqt.Subscription {
	t.Helper()
	sub, err := s.Subscribe(t.Context(), name, moqt.SubscribeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

// frame is a subgroup of one object.
type frame struct {
	group   uint64
	payload []byte
}

func next(ctx context.Context, sub *moqt.Subscription) (frame, error) {
	r, err := sub.AcceptSubgroup(ctx)
	if err != nil {
		return frame{}, err
	}
	f := frame{group: r.Group}
	if _, err = r.NextObject(); err == nil {
		f.payload, err = r.ReadPayload(nil, 64<<20)
	}
	if err == nil {
		_, err = r.NextObject()
	}
	if err == io.EOF {
		err = nil
	}
	return f, err
}

// expect reads frames until the given one arrives.
func expect(t testing.TB, sub *moqt.Subscription, group uint64, payload []byte) {
	t.Helper()
	for {
		f, err := next(t.Context(), sub)
		if err != nil {
			t.Fatalf("waiting for group %d: %v", group, err)
		}
		if f.group == group {
			if !bytes.Equal(f.payload, payload) {
				t.Fatalf("group %d: %d bytes differ from those sent", group, len(f.payload))
			}
			return
		}
	}
}

// eventually waits for a condition that other processes fulfil.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("did not happen: %s", what)
}

// writeFrames writes 20 kB frames, 30 a second and one per group, until stopped. stop returns the last
// group.
func writeFrames(t testing.TB, tr *origin.Track) (stop func() (last uint64)) {
	return writeFramesOf(t, tr, func() []byte { return make([]byte, 20_000) })
}

// writeFramesOf is like writeFrames, but with the caller's payloads.
func writeFramesOf(t testing.TB, tr *origin.Track, payload func() []byte) (stop func() (last uint64)) {
	over, done := make(chan struct{}), make(chan uint64)
	go func() {
		tick := time.NewTicker(time.Second / 30)
		defer tick.Stop()
		for group := uint64(1); ; group++ {
			write(t, tr, group, payload())
			select {
			case <-tick.C:
			case <-over:
				done <- group
				return
			}
		}
	}()
	stop = sync.OnceValue(func() uint64 { close(over); return <-done })
	t.Cleanup(func() { stop() })
	return stop
}

// frameLog is a viewer that records received frames.
type frameLog struct {
	s      *moqt.Session
	frames atomic.Uint64
	newest atomic.Uint64
	oldest atomic.Uint64
	groups map[uint64]bool // valid once done is closed
	done   chan struct{}
}

// logFrames subscribes to points.
func logFrames(t testing.TB, s *moqt.Session) *frameLog {
	t.Helper()
	return logFramesAs(t, s, func(frame) {})
}

// logFramesAs is like logFrames, but calls a function for each frame.
func logFramesAs(t testing.TB, s *moqt.Session, arrived func(frame)) *frameLog {
	t.Helper()
	w := &frameLog{s: s, groups: map[uint64]bool{}, done: make(chan struct{})}
	w.oldest.Store(math.MaxUint64)
	sub := subscribe(t, s, points)
	go func() {
		defer close(w.done)
		for {
			f, err := next(context.Background(), sub)
			if err != nil {
				return
			}
			arrived(f)
			w.groups[f.group] = true
			w.newest.Store(max(f.group, w.newest.Load()))
			w.oldest.Store(min(f.group, w.oldest.Load()))
			w.frames.Add(1)
		}
	}()
	return w
}

// flows waits until each viewer has received more frames.
func flows(t testing.TB, all ...*frameLog) {
	t.Helper()
	for _, w := range all {
		n := w.frames.Load()
		eventually(t, "frames arrive", func() bool { return w.frames.Load() > n+10 })
	}
}

// lost waits for frame last and for stragglers, ends the session and returns the number of frames
// missing between the first and the last frame received.
func (w *frameLog) lost(t testing.TB, last uint64) uint64 {
	t.Helper()
	eventually(t, "the last frame", func() bool { return w.newest.Load() >= last })
	// Wait for stragglers, since a viewer that fell behind receives the newest frame first.
	for looks := 0; looks < 500 && w.frames.Load() < last-w.oldest.Load()+1; looks++ {
		time.Sleep(10 * time.Millisecond)
	}
	w.s.Close(wire.NoError, "")
	<-w.done
	if len(w.groups) == 0 {
		t.Fatal("a viewer without a frame")
	}
	groups := slices.Sorted(maps.Keys(w.groups))
	first, end := groups[0], groups[len(groups)-1]
	var lost []uint64
	for g := first; g <= end; g++ {
		if !w.groups[g] {
			lost = append(lost, g)
		}
	}
	t.Logf("frames %d to %d, lost: %v", first, end, lost)
	return uint64(len(lost))
}

// gate forwards UDP packets between a client and the relay, and can stop either direction.
type gate struct {
	addr  string
	front net.PacketConn

	mu     sync.Mutex
	client net.Addr
	hold   bool     // packets to the client are held
	held   [][]byte // in order
	drop   bool     // packets to the relay are dropped
}

func newGate(t *testing.T, addr string) *gate {
	t.Helper()
	front, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	back, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{addr: front.LocalAddr().String(), front: front}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = front.Close(); _ = back.Close(); wg.Wait() })
	wg.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := front.ReadFrom(buf)
			if err != nil {
				return
			}
			g.mu.Lock()
			g.client = from
			if !g.drop {
				_, _ = back.Write(buf[:n])
			}
			g.mu.Unlock()
		}
	})
	wg.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			n, err := back.Read(buf)
			if err != nil {
				return
			}
			g.mu.Lock()
			g.held = append(g.held, bytes.Clone(buf[:n]))
			g.flush()
			g.mu.Unlock()
		}
	})
	return g
}

// flush sends the held packets to the client unless g.hold is set. The caller holds g.mu.
func (g *gate) flush() {
	if g.hold {
		return
	}
	for _, b := range g.held {
		_, _ = g.front.WriteTo(b, g.client)
	}
	g.held = nil
}

// holdReplies holds packets to the client.
func (g *gate) holdReplies() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hold = true
}

// heldBytes returns the size of the held packets.
func (g *gate) heldBytes() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range g.held {
		n += len(b)
	}
	return n
}

// closeUplink drops further packets to the relay and passes the held packets to the client.
func (g *gate) closeUplink() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop, g.hold = true, false
	g.flush()
}

// raw is a session with hand-written messages.
type raw struct {
	t    *testing.T
	conn *quic.Conn
}

func (p *process) raw(addr string) *raw {
	p.t.Helper()
	conf := pinned(p.t, p.hash)
	conf.NextProtos = []string{wire.ALPN}
	conf.ServerName = "localhost"
	c, err := quic.DialAddr(p.t.Context(), addr, conf,
		&quic.Config{EnableDatagrams: true, EnableStreamResetPartialDelivery: true})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = c.CloseWithError(0, "") })
	r := &raw{p.t, c}
	r.uni(message(p.t, &wire.Setup{Path: "/", HasPath: true}))
	return r
}

func message(t testing.TB, m wire.Message) []byte {
	t.Helper()
	b, err := wire.AppendMessage(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (r *raw) uni(b []byte) *quic.SendStream {
	r.t.Helper()
	s, err := r.conn.OpenUniStream()
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := s.Write(b); err != nil {
		r.t.Fatal(err)
	}
	return s
}

// request sends a request and returns its stream.
func (r *raw) request(m wire.Message) *quic.Stream {
	r.t.Helper()
	s, err := r.conn.OpenStream()
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := s.Write(message(r.t, m)); err != nil {
		r.t.Fatal(err)
	}
	return s
}

// TestLateViewerInOneRoundTrip checks that a viewer that sends SUBSCRIBE and its joining FETCH together
// receives the newest frame, published earlier, within one round trip. The relay sends the whole frame
// before the viewer has received anything, and needs nothing else from the viewer. The frame fits into
// QUIC's initial congestion window; a larger one would take further round trips in slow start.
func TestLateViewerInOneRoundTrip(t *testing.T) {
	p := start(t)
	tr := origin.NewTrack(points, nil, origin.Limits{})
	p.publish(tr)
	early := subscribe(t, p.dial(moqt.Handler{}), points)
	payload := bytes.Repeat([]byte("frame"), 5000)
	write(t, tr, 7, payload)
	expect(t, early, 7, payload)

	g := newGate(t, p.udp)
	v := p.dialTo(g.addr, moqt.Handler{})
	g.holdReplies()
	received := make(chan error, 1)
	ctx := within(t)
	go func() {
		received <- func() error {
			sub, err := v.Subscribe(ctx, points, moqt.SubscribeOptions{Join: true})
			if err != nil {
				return err
			}
			f, err := sub.Joined(ctx)
			if err != nil {
				return err
			}
			o, err := f.Next()
			if err != nil {
				return err
			}
			got, err := f.ReadPayload(nil, len(payload))
			if err == nil && (o.Group != 7 || !bytes.Equal(got, payload)) {
				err = fmt.Errorf("group %d, %d bytes", o.Group, len(got))
			}
			return err
		}()
	}()
	eventually(t, "the relay sends the frame", func() bool { return g.heldBytes() >= len(payload) })
	g.closeUplink()
	select {
	case err := <-received:
		if err != nil {
			t.Error(err)
		}
	case <-ctx.Done():
		t.Error("the frame does not arrive in one round trip")
	}
}

// TestViewerThatReadsNothing checks that a viewer that does not read neither increases the relay's
// memory beyond its limits nor delays other viewers.
func TestViewerThatReadsNothing(t *testing.T) {
	const cache, frames = 8 << 20, 160
	p := start(t, "--cache-max-bytes", strconv.Itoa(cache))
	tr := origin.NewTrack(points, nil, origin.Limits{})
	p.publish(tr)
	good := subscribe(t, p.dial(moqt.Handler{}), points)
	payload := make([]byte, 600_000)
	group := uint64(0)
	delays := func(n int) time.Duration {
		d := make([]time.Duration, 0, n)
		for range n {
			began := time.Now()
			write(t, tr, group, payload)
			expect(t, good, group, payload)
			d = append(d, time.Since(began))
			group++
		}
		slices.Sort(d)
		return d[len(d)/2]
	}
	before := delays(frames / 4)
	heap := p.resident()
	stuck := subscribe(t, p.dial(moqt.Handler{}), points)
	go func() { // accepts streams without reading them; otherwise its session would refuse them
		for {
			if _, err := stuck.AcceptSubgroup(t.Context()); err != nil {
				return
			}
		}
	}()
	after := delays(frames)
	if after > 10*before+time.Second { // use the median, so that occasional stalls of the machine do not matter
		t.Errorf("median delay of the other viewer was %v, is %v", before, after)
	}
	if n := p.metric(`holocast_relay_cached_bytes{track="holocast-test--points"}`); n == 0 || n > cache {
		t.Errorf("%.0f bytes cached, at most %d allowed", n, cache)
	}
	if p.metric(`holocast_relay_dropped_subgroups_total{reason="behind"}`) == 0 {
		t.Error("nothing was dropped for the viewer that does not read")
	}
	// Data sent before the viewer's flow-control window closed is no longer held in memory.
	if grown := p.resident() - heap; grown > 64<<20 {
		t.Errorf("the relay grew by %d MB over %d frames of %d bytes", grown>>20, frames, len(payload))
	}
}

// helper runs the test binary as a publisher or viewer.
func (p *process) helper(env string) *exec.Cmd {
	p.t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), env+"=moqt://"+p.udp, envHash+"="+p.hash)
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c
}

func helperSession(url string, h moqt.Handler) *moqt.Session {
	hash, err := devcert.ParseHash(os.Getenv(envHash))
	if err != nil {
		panic(err)
	}
	s, err := moqt.Dial(context.Background(), url, devcert.Pinned(hash), h, quiet)
	if err != nil {
		panic(err)
	}
	return s
}

func publishUntilKilled(url string) {
	tr := origin.NewTrack(points, nil, origin.Limits{})
	var set origin.Set
	set.Add(tr)
	s := helperSession(url, set.Handler())
	if _, err := s.PublishNamespace(context.Background(), session); err != nil {
		panic(err)
	}
	frame := []byte(strconv.Itoa(os.Getpid()))
	if size, err := strconv.Atoi(os.Getenv(envSize)); err == nil {
		frame = make([]byte, size)
	}
	for {
		_ = tr.WriteObject(header(uint64(time.Now().UnixMilli())), moqt.Object{}, frame)
		time.Sleep(20 * time.Millisecond)
	}
}

func viewUntilKilled(url string) {
	s := helperSession(url, moqt.Handler{})
	sub, err := s.Subscribe(context.Background(), points, moqt.SubscribeOptions{})
	if err != nil {
		panic(err)
	}
	for {
		f, err := next(context.Background(), sub)
		if err != nil {
			panic(err)
		}
		fmt.Println(f.group)
	}
}

// TestKilledPeers checks that a publisher that is killed and returns as another process continues under
// the same subscriptions. A killed viewer does not affect others.
func TestKilledPeers(t *testing.T) {
	t.Parallel()
	p := start(t)
	from := func(sub *moqt.Subscription, publisher *exec.Cmd) {
		t.Helper()
		want := strconv.Itoa(publisher.Process.Pid)
		for {
			f, err := next(t.Context(), sub)
			if err != nil {
				t.Fatalf("waiting for publisher %s: %v", want, err)
			}
			if string(f.payload) == want {
				return
			}
		}
	}
	publisher := p.helper(envPublish)
	v := p.dial(moqt.Handler{})
	var sub *moqt.Subscription
	eventually(t, "the publisher's namespace is known", func() (ok bool) {
		var err error
		sub, err = v.Subscribe(t.Context(), points, moqt.SubscribeOptions{})
		return err == nil
	})
	from(sub, publisher)
	viewer := p.helper(envView)
	viewers := func() float64 { return p.metric(`holocast_relay_viewers{track="holocast-test--points"}`) }
	eventually(t, "two viewers", func() bool { return viewers() == 2 })

	_ = viewer.Process.Kill()
	from(sub, publisher)
	_ = publisher.Process.Kill()
	_ = publisher.Wait()
	again := p.helper(envPublish)
	from(sub, again)
	eventually(t, "the killed viewer is forgotten", func() bool { return viewers() == 1 })
	from(sub, again)
}

// TestDrain checks that on SIGTERM sessions receive GOAWAY, and that the relay exits with status 0 and
// frees its port.
func TestDrain(t *testing.T) {
	p := start(t, "--drain", "10s")
	told := make(chan time.Duration, 1)
	s := p.dial(moqt.Handler{Goaway: func(_ string, timeout time.Duration) { told <- timeout }})
	// A session that is still being accepted would be closed without GOAWAY.
	eventually(t, "the relay knows the session",
		func() bool { return p.metric(`holocast_relay_sessions{transport="quic"}`) == 1 })
	p.Signal(syscall.SIGTERM)
	select {
	case timeout := <-told:
		if timeout != 10*time.Second {
			t.Errorf("GOAWAY says %v", timeout)
		}
	case <-p.Done():
		t.Fatal("the relay ended without GOAWAY")
	}
	if status, body := p.get("/healthz"); status != http.StatusServiceUnavailable {
		t.Errorf("healthz says %d %q while draining", status, body)
	}
	s.Close(wire.NoError, "")
	if err := p.Err(); err != nil {
		t.Errorf("the relay ended with %v", err)
	}
	c, err := net.ListenPacket("udp", p.udp)
	if err != nil {
		t.Fatalf("the port is still in use: %v", err)
	}
	_ = c.Close()
}

// TestInterrupt checks that SIGINT drains for less time than SIGTERM.
func TestInterrupt(t *testing.T) {
	p := start(t, "--drain", "10m")
	told := make(chan time.Duration, 1)
	p.dial(moqt.Handler{Goaway: func(_ string, timeout time.Duration) { told <- timeout }})
	eventually(t, "the relay knows the session",
		func() bool { return p.metric(`holocast_relay_sessions{transport="quic"}`) == 1 })
	p.Signal(syscall.SIGINT)
	if err := p.Err(); err != nil { // the session does not leave
		t.Errorf("the relay ended with %v", err)
	}
	select {
	case timeout := <-told:
		if timeout != 500*time.Millisecond {
			t.Errorf("GOAWAY says %v", timeout)
		}
	default: // the connection closed before GOAWAY was read
	}
}

// pair writes a certificate and its key to files.
func pair(t *testing.T, dir string, notAfter time.Time) (cert, key string, hash [32]byte) {
	t.Helper()
	c, err := devcert.Generate(notAfter.Add(time.Hour-devcert.Lifetime), "localhost", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(c.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: c.Certificate[0]},
		key:  {Type: "EC PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key, devcert.Hash(c)
}

// TestCertificateReload checks that new sessions use replaced files, and that unusable files leave the
// old certificate in use.
func TestCertificateReload(t *testing.T) {
	dir := t.TempDir()
	soon := time.Now().Add(24 * time.Hour)
	cert, key, _ := pair(t, dir, soon)
	p := start(t, "--tls-certificate", cert, "--tls-key", key)
	p.dial(moqt.Handler{})
	_, _, hash := pair(t, dir, soon.Add(time.Hour))
	want := fmt.Sprintf("%x\n", hash)
	eventually(t, "the new certificate is served",
		func() bool { _, b := p.get("/certificate.sha256"); return b == want })
	p.hash = strings.TrimSpace(want)
	p.dial(moqt.Handler{})

	pair(t, dir, time.Now().Add(-time.Hour))
	eventually(t, "the expired certificate is refused", func() bool {
		p.get("/certificate.sha256")
		return strings.Contains(p.output(), "keeping the old certificate") && strings.Contains(p.output(), "expired on")
	})
	p.dial(moqt.Handler{})
}

// TestCertificateRotation checks that replacing certificates loses no frame, and that later sessions
// get the new one.
func TestCertificateRotation(t *testing.T) {
	dir := t.TempDir()
	soon := time.Now().Add(24 * time.Hour)
	cert, key, _ := pair(t, dir, soon)
	p := start(t, "--tls-certificate", cert, "--tls-key", key)
	tr := origin.NewTrack(points, nil, origin.Limits{})
	var set origin.Set
	set.Add(tr)
	if _, err := p.dial(set.Handler()).PublishNamespace(t.Context(), points.Namespace); err != nil {
		t.Fatal(err)
	}
	stop := writeFrames(t, tr)
	all := []*frameLog{logFrames(t, p.dial(moqt.Handler{}))}
	for i := range 4 {
		_, _, hash := pair(t, dir, soon.Add(time.Duration(i+1)*time.Hour))
		want := fmt.Sprintf("%x", hash)
		p.Signal(syscall.SIGHUP)
		eventually(t, "the new certificate is served",
			func() bool { _, b := p.get("/certificate.sha256"); return strings.TrimSpace(b) == want })
		p.hash = want
		all = append(all, logFrames(t, p.dial(moqt.Handler{})))
		flows(t, all...)
	}
	last := stop()
	for i, w := range all {
		if err := w.s.Err(); err != nil {
			t.Errorf("viewer %d: %v", i, err)
		}
		if lost := w.lost(t, last); lost > 0 {
			t.Errorf("viewer %d lost %d frames", i, lost)
		}
	}
}

// TestRestartIsNoticed checks that when a killed relay is back, a stateless reset ends its old
// sessions before the idle timeout.
func TestRestartIsNoticed(t *testing.T) {
	cert, key, _ := pair(t, t.TempDir(), time.Now().Add(24*time.Hour))
	p := start(t, "--tls-certificate", cert, "--tls-key", key)
	var err error
	for range 5 { // on a busy machine the restart may exceed the idle timeout
		s := p.dial(moqt.Handler{})
		p.Kill()
		p = start(t, "--tls-certificate", cert, "--tls-key", key, "--listen", p.udp)
		select {
		case <-s.Context().Done():
		case <-time.After(time.Minute):
			t.Fatal("the session stays open")
		}
		err = s.Err()
		if e := (*quic.StatelessResetError)(nil); errors.As(err, &e) {
			return
		}
	}
	t.Errorf("the session ended with %v, want a stateless reset", err)
}

// TestStartErrors checks that a startup error is one line that names the setting.
func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	cert, key, _ := pair(t, dir, time.Now().Add(-24*time.Hour))
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = udp.Close() }()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tcp.Close() }()
	config := filepath.Join(dir, "relay.yaml")
	if err := os.WriteFile(config, []byte("cache:\n  maxByte: 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"missing key file": {
			[]string{"--tls-certificate", cert, "--tls-key", dir + "/none.pem"},
			`^relay: tls.certificate .*, tls.key .*none.pem: open .*: no such file or directory\n$`,
		},
		"key without": {
			[]string{"--tls-key", key},
			`^relay: tls.certificate and tls.key must be given together\n$`,
		},
		"key of another": {
			[]string{"--tls-certificate", cert, "--tls-key", cert},
			`^relay: tls.certificate .*, tls.key .*: tls: .*\n$`,
		},
		"UDP port in use": {
			[]string{"--listen", udp.LocalAddr().String()},
			`^relay: listen: UDP port \d+ is in use by another program\n$`,
		},
		"another's address": {
			[]string{"--listen", "192.0.2.1:4443", "--insecure"},
			`relay: listen: "192.0.2.1:4443" is not an address of this machine; ` +
				`want HOST:PORT with an address of this machine, or :PORT for all of them\n$`,
		},
		"TCP port in use": {
			[]string{"--http", tcp.Addr().String()},
			`^relay: http: TCP address 127.0.0.1:\d+ is in use by another program\n$`,
		},
		"unknown setting": {[]string{"--config", config}, `^relay: .*relay.yaml:2: unknown setting "maxByte"`},
		"bad bounds": {
			[]string{"--cache-total-bytes", "1"},
			`^relay: cache.totalBytes must be at least cache.maxBytes\n$`,
		},
		"bad level": {
			[]string{"--log-level", "loud"},
			`^relay: log.level "loud": want debug, info, warn or error\n$`,
		},
		"unknown flag": {[]string{"--colour"}, `^relay: unknown flag: --colour\n$`},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"}, c.args...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("ended with %v, want exit status 1", err)
			}
			if !regexp.MustCompile(c.want).Match(out) {
				t.Errorf("says %q, want %s", out, c.want)
			}
		})
	}
}

func TestWrongALPN(t *testing.T) {
	p := start(t)
	conf := pinned(t, p.hash)
	conf.NextProtos = []string{"moq-00"}
	_, err := quic.DialAddr(t.Context(), p.udp, conf, nil)
	var te *quic.TransportError
	if !errors.As(err, &te) || !te.ErrorCode.IsCryptoError() {
		t.Errorf("a client of another protocol gets %v", err)
	}
}

func TestUnknownNamespace(t *testing.T) {
	p := start(t)
	s := p.dial(moqt.Handler{})
	_, err := s.Subscribe(t.Context(), points, moqt.SubscribeOptions{})
	var e *moqt.RequestError
	if !errors.As(err, &e) || e.Code != wire.RequestDoesNotExist ||
		e.Reason != "nobody publishes holocast-test--points" {
		t.Errorf("subscribe: %v", err)
	}
	if s.Err() != nil {
		t.Errorf("the session ended: %v", s.Err())
	}
}

// TestMetrics checks that the counters match the traffic.
func TestMetrics(t *testing.T) {
	p := start(t)
	if status, body := p.get("/healthz"); status != 200 || body != "ok\n" {
		t.Errorf("healthz: %d %q", status, body)
	}
	if _, body := p.get("/certificate.sha256"); body != p.hash+"\n" {
		t.Errorf("certificate hash %q, logged %q", body, p.hash)
	}
	tr := origin.NewTrack(points, nil, origin.Limits{})
	p.publish(tr)
	subs := make([]*moqt.Subscription, 0, 3)
	for range cap(subs) {
		subs = append(subs, subscribe(t, p.dial(moqt.Handler{}), points))
	}
	const n, size = 10, 5000
	for i := range uint64(n) {
		payload := bytes.Repeat([]byte{byte(i)}, size)
		write(t, tr, i, payload)
		for _, sub := range subs {
			expect(t, sub, i, payload)
		}
	}
	object := float64(size + 3) // ID, length in two bytes, payload
	for series, want := range map[string]float64{
		`holocast_relay_sessions{transport="quic"}`:               4,
		`holocast_relay_sessions{transport="webtransport"}`:       0,
		`holocast_relay_sessions{transport="websocket"}`:          0,
		`holocast_relay_tracks`:                                   1,
		`holocast_relay_viewers{track="holocast-test--points"}`:   3,
		`holocast_relay_received_objects_total`:                   n,
		`holocast_relay_received_bytes_total`:                     n * object,
		`holocast_relay_sent_bytes_total`:                         3 * n * object,
		`holocast_relay_sent_subgroups_total`:                     3 * n,
		`holocast_relay_duplicate_subgroups_total`:                0,
		`holocast_relay_dropped_subgroups_total{reason="late"}`:   0,
		`holocast_relay_dropped_subgroups_total{reason="behind"}`: 0,
	} {
		if got := p.metric(series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
}

// TestManySessionsOfOneAddress checks that metrics distinguish sessions that share a client's UDP port.
func TestManySessionsOfOneAddress(t *testing.T) {
	p := start(t)
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	tr := &quic.Transport{Conn: udp}
	defer func() { _ = udp.Close() }()
	defer func() { _ = tr.Close() }()
	addr, _ := net.ResolveUDPAddr("udp", p.udp)
	conf := pinned(t, p.hash)
	conf.NextProtos, conf.ServerName = []string{wire.ALPN}, "localhost"
	for range 3 {
		c, err := tr.Dial(t.Context(), addr, conf,
			&quic.Config{EnableDatagrams: true, EnableStreamResetPartialDelivery: true})
		if err != nil {
			t.Fatal(err)
		}
		(&raw{t, c}).uni(message(t, &wire.Setup{Path: "/", HasPath: true}))
	}
	eventually(t, "three sessions in the metrics",
		func() bool { return p.metric(`holocast_relay_sessions{transport="quic"}`) == 3 })
}

// TestSessionLimit checks that a session beyond the limit is refused and open sessions stay.
func TestSessionLimit(t *testing.T) {
	p := start(t, "--max-sessions", "2")
	a, b := p.dial(moqt.Handler{}), p.dial(moqt.Handler{})
	eventually(t, "two sessions", func() bool { return p.metric(`holocast_relay_sessions{transport="quic"}`) == 2 })
	c, err := moqt.Dial(t.Context(), "moqt://"+p.udp, pinned(t, p.hash), moqt.Handler{}, quiet)
	if err == nil {
		<-c.Context().Done()
		err = c.Err()
	}
	if err == nil || !strings.Contains(err.Error(), "session limit") {
		t.Errorf("the third session: %v", err)
	}
	if a.Err() != nil || b.Err() != nil {
		t.Errorf("the others ended: %v, %v", a.Err(), b.Err())
	}
}

// TestHostilePublisher checks that protocol violations by a publisher neither reach viewers nor affect
// other sessions.
func TestHostilePublisher(t *testing.T) {
	p := start(t)
	tr := origin.NewTrack(points, nil, origin.Limits{})
	p.publish(tr)
	good := subscribe(t, p.dial(moqt.Handler{}), points)

	evil := moqt.TrackName{Namespace: moqt.Namespace{"holocast", "evil"}, Name: "points"}
	varint := func(v ...uint64) (b []byte) {
		for _, x := range v {
			b = wire.AppendVarint(b, x)
		}
		return b
	}
	for name, body := range map[string][]byte{
		"object ID overflow":     append(varint(5, 1), append([]byte("x"), varint(1<<63, 1)...)...),
		"unknown status":         varint(0, 0, 77),
		"object after its end":   varint(0, 0, 3, 0, 1),
		"cut off in a payload":   append(varint(0, 100), "only this"...),
		"cut off in a header":    {0x00},
		"random bytes":           random(t, 4000),
		"properties too long":    nil, // built below
		"a length of everything": varint(0, 1<<62-1),
	} {
		t.Run(name, func(t *testing.T) {
			h := wire.SubgroupHeader{TrackAlias: 9, Group: 1, FirstObject: true}
			if name == "properties too long" {
				h.HasProperties = true
				body = varint(0, 1<<60)
			}
			r := p.raw(p.udp)
			r.t = t
			r.request(&wire.PublishNamespace{RequestID: 0, Namespace: evil.Namespace})
			viewer := p.dial(moqt.Handler{})
			victims := make(chan *moqt.Subscription, 1)
			go func() {
				var sub *moqt.Subscription
				for range 1000 {
					var err error
					if sub, err = viewer.Subscribe(t.Context(), evil, moqt.SubscribeOptions{}); err == nil {
						break
					}
					time.Sleep(20 * time.Millisecond)
				}
				victims <- sub
			}()
			str, err := r.conn.AcceptStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := wire.ReadMessage(bufio.NewReader(str)); err != nil {
				t.Fatal(err)
			}
			if _, err := str.Write(message(t, &wire.SubscribeOK{TrackAlias: 9})); err != nil {
				t.Fatal(err)
			}
			sub := <-victims
			if sub == nil {
				t.Fatal("the viewer could not subscribe")
			}
			s := r.uni(append(h.Append(nil), body...))
			_ = s.Close()
			// The viewer sees only well-formed data, which is whole objects or the start of one.
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if sg, err := sub.AcceptSubgroup(ctx); err == nil {
				for {
					if _, err = sg.NextObject(); err != nil {
						break
					}
				}
				if err == io.EOF {
					t.Error("the viewer saw the end of an incomplete subgroup")
				}
			}
			var closed *moqt.SessionError
			if errors.As(viewer.Err(), &closed) {
				t.Errorf("the viewer's session ended: %v", closed)
			}
			_ = r.conn.CloseWithError(0, "")
			viewer.Close(wire.NoError, "")
		})
	}
	write(t, tr, 1, []byte("still here"))
	expect(t, good, 1, []byte("still here"))
}

func random(t *testing.T, n int) []byte {
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	b[0] = 0xff // an invalid object ID
	return b
}
