package record

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/pause"
	"holocast/internal/recorder"
	"holocast/internal/recording"
	"holocast/internal/service"
)

const (
	// retryAfter and maxRetry bound the wait before a session without a catalog is tried again.
	retryAfter = time.Second
	maxRetry   = 30 * time.Second
	// overlap limits how long two files of a session are written while one follows the other.
	overlap = 10 * time.Second
	// reordering bounds a stream's delay behind later ones.
	reordering = time.Second
)

// session is a session that matches the patterns and has a publisher here.
type session struct {
	r    *Recorder
	name string
	ns   moqt.Namespace
	stop context.CancelFunc
	left time.Time // time at which its publisher left; zero while there is one

	mu      sync.Mutex
	current []*take // one, two while one follows the other, none while nothing is recorded
}

// take is the recording of a session to one file.
type take struct {
	path  string // of the partial file
	w     *recording.Writer
	rec   *recorder.Recorder
	link  *moqt.Session
	began time.Time
	stop  context.CancelFunc
	done  chan struct{} // closed once the file is finished
	err   error         // why the file ended; nil if the session did
}

// run records the session until ctx is done.
func (s *session) run(ctx context.Context) {
	if _, err := folderOf(s.name); err != nil { // not a failure of the directory: others are still recorded
		s.r.log.Warn("session cannot be recorded", "err", err)
		<-ctx.Done()
		return
	}
	for wait := retryAfter; ctx.Err() == nil; {
		if s.r.awaitReady(ctx) != nil {
			return
		}
		if !s.r.hosts(s) {
			_ = pause.For(ctx, retryAfter)
			continue
		}
		began := time.Now()
		s.record(ctx)
		if time.Since(began) > maxRetry {
			wait = retryAfter
		}
		_ = pause.For(ctx, wait)
		wait = min(2*wait, maxRetry)
	}
}

// record records the session, to one file after another, until the session ends, a file fails or ctx is done.
func (s *session) record(ctx context.Context) {
	t := s.begin(ctx)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for t != nil {
		s.set(t)
		select {
		case <-t.done:
			s.set()
			s.r.ended(s, t)
			return
		case <-tick.C:
			if !s.r.full(t) {
				continue
			}
		}
		next := s.begin(ctx)
		if next == nil {
			s.set()
			t.finish()
			s.r.ended(s, t)
			return
		}
		s.set(t, next)
		handOver(t, next)
		t.finish()
		s.set(next)
		s.r.ended(s, t)
		t = next
	}
}

// handOver waits until from has recorded the groups before those with which to begins, at most for overlap.
func handOver(from, to *take) {
	limit := time.After(overlap)
	ready := to.rec.Subscribed()
	var starts map[string]uint64 // set once ready
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	var rest <-chan time.Time // fires when from has recorded everything
	for {
		select {
		case <-ready:
			ready, starts = nil, to.rec.Starts()
		case <-poll.C:
			if starts != nil && rest == nil && from.rec.Reached(starts) {
				rest = time.After(reordering)
			}
		case <-to.done: // from ends for the same reason
			select {
			case <-from.done:
			case <-limit:
			}
			return
		case <-rest:
			return
		case <-from.done:
			return
		case <-limit:
			return
		}
	}
}

func (s *session) set(current ...*take) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = current
}

// takes returns the current takes.
func (s *session) takes() []*take {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// begin begins a file. It returns nil if that fails.
func (s *session) begin(ctx context.Context) *take {
	t, err := s.open(ctx)
	if err != nil && ctx.Err() == nil {
		s.r.fail(err)
	}
	return t
}

func (s *session) open(ctx context.Context) (*take, error) {
	file, err := create(s.r.dir, s.name, time.Now())
	if err != nil {
		return nil, err
	}
	w, err := recording.NewWriter(file, map[string]string{
		"session": s.name, "program": "holocast relay " + service.Version(),
	})
	if err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	log := s.r.log.With("session", s.name)
	t := &take{path: file.Name(), w: w, began: time.Now(), done: make(chan struct{})}
	t.rec = recorder.New(w, recorder.Config{Namespace: s.ns, Log: log})
	link, err := s.r.router.Connect(ctx, t.rec.Handler(), s.r.delivered)
	if err != nil {
		return nil, errors.Join(err, w.Close(), os.Remove(file.Name()))
	}
	t.link = link
	ctx, t.stop = context.WithCancel(ctx)
	go func() {
		defer close(t.done)
		defer t.stop()
		var wg sync.WaitGroup
		wg.Go(func() { t.sync(ctx) })
		t.err = t.rec.Record(ctx, link)
		t.stop()
		wg.Wait()
		link.Close(wire.NoError, "")
		t.close(s.r)
	}()
	return t, nil
}

// sync writes the file to the disk every second until ctx is done.
func (t *take) sync(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = t.w.Sync() // Write reports errors too
		case <-ctx.Done():
			return
		}
	}
}

// close finishes the file, or removes an empty one.
func (t *take) close(r *Recorder) {
	_ = t.w.Sync() // Close reports errors too
	err := t.w.Close()
	if n, _, _ := t.rec.Counts(); n == 0 {
		if err := remove(t.path); err != nil {
			r.log.Warn("empty recording not removed", "recording", t.path, "err", err)
		}
		return
	}
	if e := finish(t.path); e != nil {
		err = errors.Join(err, e)
	}
	if err != nil {
		r.log.Error("recording not finished", "recording", t.path, "err", err)
	}
}

// finish ends the recording and waits for its file.
func (t *take) finish() {
	t.stop()
	<-t.done
}

// refused returns the subgroups and datagrams that the recorder did not accept in time.
func (t *take) refused() uint64 {
	st := t.link.Stats()
	return st.SubgroupsRefused + st.DatagramsRefused
}

// delivered counts the subgroups that the recorder was not sent in full.
func (r *Recorder) delivered(d origin.Delivery) {
	switch d.Dropped {
	case "late", "behind", "blocked":
		r.dropped.Add(1)
	}
}
