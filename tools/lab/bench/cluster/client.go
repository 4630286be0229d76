package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"sync"
	"time"

	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/pause"
	"holocast/tools/lab/bench/internal/direct"
)

// Roles of a client.
const (
	rolePublish  = "publish"  // a camera
	roleWatch    = "watch"    // viewers
	roleAnnounce = "announce" // Count namespaces
)

// client configures a client process. It reports what happens in lines on stdout, each a word and
// numbers; times are UNIX nanoseconds:
//
//	at VIEWER RELAY                  a viewer, or the publisher, is at a relay, by its address
//	sent FRAME TIME                  the publisher sends a frame
//	frame VIEWER FRAME SENT TIME     a viewer has a complete frame
//	wrong VIEWER FRAME TIME          a viewer has a frame that is not one of its session
//	announcing TIME                  before the first namespace
//	announced TIME                   after the last one
//
// At the line "place" on stdin, its sessions end and begin again at Relay. It ends with stdin.
type client struct {
	Role     string    `json:"role"`
	Relay    string    `json:"relay"` // moqt://HOST:PORT
	Hash     string    `json:"hash"`  // of the relay's certificate
	Sessions []session `json:"sessions,omitempty"`
	Count    int       `json:"count,omitempty"`

	lines *lines
	place *placement
}

// session is a camera to publish or watch.
type session struct {
	Name    string `json:"name"`
	Bytes   int    `json:"bytes"`             // per frame
	Viewers int    `json:"viewers,omitempty"` // numbered across a client's sessions
}

// camera returns the name of the camera's track.
func (s session) camera() moqt.TrackName {
	return moqt.TrackName{Namespace: moqt.Namespace{connect.Root, s.Name}, Name: "points"}
}

// stampLen is the length of a frame's first field, its time.
const stampLen = 8

// frame returns a frame without its time: the rest is a mark of the session.
func (s session) frame() []byte {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.Name))
	b := make([]byte, max(s.Bytes, stampLen)/stampLen*stampLen)
	for i := stampLen; i < len(b); i += stampLen {
		binary.BigEndian.PutUint64(b[i:], h.Sum64())
	}
	return b
}

// placement orders the sessions of a client to begin again.
type placement struct {
	mu     sync.Mutex
	ctx    context.Context // of the sessions
	cancel context.CancelFunc
}

// renew ends the sessions.
func (p *placement) renew(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancel != nil {
		p.cancel()
	}
	p.ctx, p.cancel = context.WithCancel(ctx)
}

func (p *placement) current() context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ctx
}

// obey follows the orders on stdin. It returns when they end.
func (c *client) obey(ctx context.Context, in io.Reader) {
	for scan := bufio.NewScanner(in); scan.Scan(); {
		if scan.Text() == placeOrder {
			c.place.renew(ctx)
		}
	}
}

const placeOrder = "place"

// keep uses a session at the client's relay or, after failures, at others, until ctx is done.
func (c *client) keep(
	ctx context.Context, name string, h moqt.Handler, use func(context.Context, *moqt.Session) error,
) error {
	for {
		placed := c.place.current()
		t := connect.Target{URL: c.Relay + "/" + name, CertificateHash: c.Hash}
		if err := t.KeepMoving(placed, h, direct.Quiet, use); placed.Err() == nil || ctx.Err() != nil {
			return err
		}
	}
}

// lines writes whole lines.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) print(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintf(l.w, format+"\n", args...)
}

// RunClient runs a publisher or viewers, as configured by the benchmark, until ctx is done or in ends.
func RunClient(ctx context.Context, config string, in io.Reader, out io.Writer) error {
	var c client
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return fmt.Errorf("client configuration: %w", err)
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // retries are expected
	c.lines, c.place = &lines{w: out}, &placement{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.place.renew(ctx)
	go func() {
		defer cancel()
		c.obey(ctx, in)
	}()
	var err error
	switch c.Role {
	case rolePublish:
		err = c.publish(ctx, c.Sessions[0])
	case roleWatch:
		err = c.watch(ctx)
	case roleAnnounce:
		err = c.announce(ctx)
	default:
		return fmt.Errorf("no role %q", c.Role)
	}
	if ctx.Err() != nil {
		return nil // canceled, not failed
	}
	return err
}

// publish sends frames, whether or not a relay is connected, as a capture server does. Publishers of one
// session send frames of the same numbers at the same times.
func (c *client) publish(ctx context.Context, camera session) error {
	name := camera.camera()
	t := origin.NewTrack(name, nil, origin.Limits{})
	var set origin.Set
	set.Add(t)
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- c.keep(ctx, camera.Name, set.Handler(), func(ctx context.Context, s *moqt.Session) error {
			return c.offer(ctx, s, name.Namespace)
		})
	}()
	payload := camera.frame()
	const interval = int64(time.Second / FramesPerS)
	for group := time.Now().UnixNano()/interval + 1; ; group++ {
		select {
		case <-time.After(time.Until(time.Unix(0, group*interval))):
		case err := <-ended:
			stop()
			return err
		}
		now := time.Now().UnixNano()
		binary.BigEndian.PutUint64(payload, uint64(now))
		c.lines.print("sent %d %d", group, now)
		if err := t.WriteObject(wire.SubgroupHeader{Group: uint64(group), FirstObject: true, EndOfGroup: true}, moqt.Object{},
			payload); err != nil {
			stop()
			return errors.Join(err, <-ended)
		}
	}
}

// leaveLimit limits the time that a replaced session stays open for its viewers to move.
const leaveLimit = 5 * time.Second

// offer publishes a namespace in a session until the session ends or is replaced.
func (c *client) offer(ctx context.Context, s *moqt.Session, ns moqt.Namespace) error {
	p, err := s.PublishNamespace(ctx, ns)
	if err != nil {
		return err
	}
	c.lines.print("at 0 %s", s.RemoteAddr())
	connect.Settled(ctx)
	select {
	case <-p.Done():
		return p.Err()
	case <-ctx.Done():
	}
	if errors.Is(context.Cause(ctx), connect.ErrMoved) {
		p.Withdraw()
		for end := time.Now().Add(leaveLimit); s.Publishing() > 0 && s.Err() == nil && time.Now().Before(end); {
			time.Sleep(50 * time.Millisecond)
		}
	}
	return ctx.Err()
}

// watch views cameras like players do.
func (c *client) watch(ctx context.Context) error {
	ended, viewer := make(chan error), 0
	for _, camera := range c.Sessions {
		for range camera.Viewers {
			v := view{c: c, viewer: viewer, frame: camera.frame(), name: camera.camera()}
			viewer++
			go func() { ended <- c.keep(ctx, camera.Name, moqt.Handler{}, v.watch) }()
		}
	}
	err := <-ended
	for range viewer - 1 {
		if ctx.Err() == nil {
			break
		}
		err = errors.Join(err, <-ended) // so that all sessions are closed
	}
	return err
}

// view is a viewer of a camera.
type view struct {
	c      *client
	viewer int
	frame  []byte // without its time
	name   moqt.TrackName
}

// watch receives frames in a session until the session ends.
func (v *view) watch(ctx context.Context, s *moqt.Session) error {
	var reading sync.WaitGroup
	defer reading.Wait()
	for {
		sub, err := connect.Subscribe(ctx, s, v.name, 0, true)
		if err != nil {
			return err
		}
		v.c.lines.print("at %d %s", v.viewer, s.RemoteAddr())
		reading.Go(func() { v.join(ctx, sub) })
		for {
			r, err := sub.AcceptSubgroup(ctx)
			if err != nil {
				break
			}
			reading.Go(func() {
				if _, err := r.NextObject(); err != nil {
					return
				}
				if b, err := r.ReadPayload(nil, maxFrame); err == nil {
					v.take(ctx, r.Group, b)
				}
				_, _ = r.NextObject() // reading to the end releases the stream
			})
		}
		sub.Cancel()
		if err := s.Err(); err != nil {
			return err
		}
		if err := pause.For(ctx, 50*time.Millisecond); err != nil { // the publisher left; wait for it
			return err
		}
	}
}

// maxFrame limits a frame's bytes.
const maxFrame = 1 << 20

// join receives the current group at the start of a subscription.
func (v *view) join(ctx context.Context, sub *moqt.Subscription) {
	if sub.Largest == nil {
		return
	}
	f, err := sub.Joined(ctx)
	if err != nil {
		return
	}
	defer f.Cancel()
	_ = f.Each(ctx, maxFrame, func(o wire.FetchObject, b []byte) error {
		v.take(ctx, o.Group, b)
		return nil
	})
}

// take reports a frame, and whether it is one of the viewer's session.
func (v *view) take(ctx context.Context, frame uint64, b []byte) {
	if len(b) != len(v.frame) || !bytes.Equal(b[stampLen:], v.frame[stampLen:]) {
		v.c.lines.print("wrong %d %d %d", v.viewer, frame, time.Now().UnixNano())
		return
	}
	connect.Settled(ctx)
	v.c.lines.print("frame %d %d %d %d", v.viewer, frame, binary.BigEndian.Uint64(b), time.Now().UnixNano())
}

// requests is the number of concurrent announcements.
const requests = 32

// announce announces namespaces in one session.
func (c *client) announce(ctx context.Context) error {
	s, err := connect.Target{URL: c.Relay + "/announce", CertificateHash: c.Hash}.Dial(ctx, moqt.Handler{}, direct.Quiet)
	if err != nil {
		return err
	}
	defer s.Close(wire.NoError, "")
	c.lines.print("announcing %d", time.Now().UnixNano())
	next := make(chan int)
	failed := make(chan error, requests)
	var wg sync.WaitGroup
	for range requests {
		wg.Go(func() {
			for i := range next {
				ns := moqt.Namespace{connect.Root, fmt.Sprintf("session-%d", i)}
				if _, err := s.PublishNamespace(ctx, ns); err != nil {
					failed <- fmt.Errorf("announce namespace %d: %w", i, err)
					return
				}
			}
		})
	}
	for i := range c.Count {
		select {
		case next <- i:
		case err := <-failed:
			return err
		}
	}
	close(next)
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	c.lines.print("announced %d", time.Now().UnixNano())
	select {
	case <-ctx.Done():
	case <-s.Context().Done():
		return s.Err()
	}
	return nil
}
