package cluster

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
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
	roleWatch    = "watch"    // Count viewers of it
	roleAnnounce = "announce" // Count namespaces
)

// client configures a client process. It reports what happens in lines on stdout, each a word and
// numbers; times are UNIX nanoseconds:
//
//	sent FRAME TIME                  the publisher sends a frame
//	frame VIEWER FRAME SENT TIME     a viewer has a complete frame
//	announcing TIME                  before the first namespace
//	announced TIME                   after the last one
type client struct {
	Role  string `json:"role"`
	URL   string `json:"url"`
	Hash  string `json:"hash"` // of the relays' certificate
	Count int    `json:"count,omitempty"`
	Bytes int    `json:"bytes,omitempty"` // per frame

	lines *lines
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

// RunClient runs a publisher or viewers, as configured by the benchmark, until ctx is done.
func RunClient(ctx context.Context, config string, out io.Writer) error {
	var c client
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return fmt.Errorf("client configuration: %w", err)
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // retries are expected
	c.lines = &lines{w: out}
	var err error
	switch c.Role {
	case rolePublish:
		err = c.publish(ctx)
	case roleWatch:
		err = c.watch(ctx)
	case roleAnnounce:
		err = c.announce(ctx)
	default:
		err = fmt.Errorf("no role %q", c.Role)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // canceled, not failed
	}
	return err
}

func (c *client) target() connect.Target { return connect.Target{URL: c.URL, CertificateHash: c.Hash} }

// camera returns the name of the camera's track.
func (c *client) camera() (moqt.TrackName, error) {
	ns, err := c.target().Namespace()
	return moqt.TrackName{Namespace: ns, Name: "points"}, err
}

// stampLen is the length of a frame's first field, its time.
const stampLen = 8

// publish sends frames, whether or not a relay is connected, as a capture server does.
func (c *client) publish(ctx context.Context) error {
	name, err := c.camera()
	if err != nil {
		return err
	}
	t := origin.NewTrack(name, nil, origin.Limits{})
	var set origin.Set
	set.Add(t)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- c.target().KeepMoving(ctx, set.Handler(), direct.Quiet, func(ctx context.Context, s *moqt.Session) error {
			return offer(ctx, s, name.Namespace)
		})
	}()
	payload := make([]byte, max(c.Bytes, stampLen))
	tick := time.NewTicker(time.Second / FramesPerS)
	defer tick.Stop()
	for group := uint64(0); ; group++ {
		select {
		case <-tick.C:
		case err := <-ended:
			return err
		}
		now := time.Now().UnixNano()
		binary.BigEndian.PutUint64(payload, uint64(now))
		c.lines.print("sent %d %d", group, now)
		if err := t.WriteObject(wire.SubgroupHeader{Group: group, FirstObject: true, EndOfGroup: true}, moqt.Object{},
			payload); err != nil {
			return err
		}
	}
}

// leaveLimit limits the time that a replaced session stays open for its viewers to move.
const leaveLimit = 5 * time.Second

// offer publishes a namespace in a session until the session ends or is replaced.
func offer(ctx context.Context, s *moqt.Session, ns moqt.Namespace) error {
	p, err := s.PublishNamespace(ctx, ns)
	if err != nil {
		return err
	}
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

// watch views the camera like players do.
func (c *client) watch(ctx context.Context) error {
	name, err := c.camera()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, c.Count)
	for viewer := range c.Count {
		go func() {
			ended <- c.target().KeepMoving(ctx, moqt.Handler{}, direct.Quiet, func(ctx context.Context, s *moqt.Session) error {
				return c.view(ctx, s, viewer, name)
			})
		}()
	}
	return <-ended
}

// view receives frames in a session until the session ends.
func (c *client) view(ctx context.Context, s *moqt.Session, viewer int, name moqt.TrackName) error {
	var reading sync.WaitGroup
	defer reading.Wait()
	for {
		sub, err := connect.Subscribe(ctx, s, name, 0, true)
		if err != nil {
			return err
		}
		reading.Go(func() { c.join(ctx, sub, viewer) })
		for {
			r, err := sub.AcceptSubgroup(ctx)
			if err != nil {
				break
			}
			reading.Go(func() {
				if _, err := r.NextObject(); err != nil {
					return
				}
				if b, err := r.ReadPayload(nil, 2*c.Bytes); err == nil {
					c.take(ctx, viewer, r.Group, b)
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

// join receives the current group at the start of a subscription.
func (c *client) join(ctx context.Context, sub *moqt.Subscription, viewer int) {
	if sub.Largest == nil {
		return
	}
	f, err := sub.Joined(ctx)
	if err != nil {
		return
	}
	defer f.Cancel()
	_ = f.Each(ctx, 2*c.Bytes, func(o wire.FetchObject, b []byte) error {
		c.take(ctx, viewer, o.Group, b)
		return nil
	})
}

// take reports a frame, unless it is damaged.
func (c *client) take(ctx context.Context, viewer int, frame uint64, b []byte) {
	if len(b) != max(c.Bytes, stampLen) {
		return
	}
	connect.Settled(ctx)
	c.lines.print("frame %d %d %d %d", viewer, frame, binary.BigEndian.Uint64(b), time.Now().UnixNano())
}

// requests is the number of concurrent announcements.
const requests = 32

// announce announces namespaces in one session.
func (c *client) announce(ctx context.Context) error {
	s, err := c.target().Dial(ctx, moqt.Handler{}, direct.Quiet)
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
