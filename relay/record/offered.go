package record

import (
	"context"
	"errors"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/replay"
	"holocast/relay/router"
)

const (
	// maxOpen limits the recordings being replayed.
	maxOpen = 64
	// idle is the time without viewers after which a replay ends.
	idle = 15 * time.Second
	// replayBytes limits the cache of a replayed track. The router's cache holds the same objects.
	replayBytes = 16 << 20
)

// offered is a finished recording. It is the upstream (router.Local) of a session that replays the recording
// in a loop while it has viewers.
type offered struct {
	entry
	r        *Recorder
	ns       moqt.Namespace
	withdraw func()

	mu     sync.Mutex
	s      *moqt.Session // nil while it is not replayed
	stop   func()
	closed bool
}

var _ router.Local = (*offered)(nil)

// Local implements router.Local.
func (o *offered) Local() {}

func (o *offered) String() string { return "recording " + o.path }

// errBusy refuses a replay beyond maxOpen.
var errBusy = errors.New("too many recordings are being watched")

// Session returns the replay's session, and starts the replay first if necessary.
func (o *offered) Session(ctx context.Context) (*moqt.Session, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return nil, errors.New("the recording was deleted")
	case o.s != nil && o.s.Err() == nil:
		return o.s, nil
	}
	select {
	case o.r.open <- struct{}{}:
	default:
		return nil, errBusy
	}
	s, err := o.start(ctx)
	if err != nil {
		<-o.r.open
		o.r.log.Warn("recording cannot be replayed", "recording", o.path, "err", err)
		return nil, err
	}
	o.s = s
	return s, nil
}

// start starts the replay. The caller holds o.mu.
func (o *offered) start(ctx context.Context) (*moqt.Session, error) {
	memory := o.r.memory.Part(0)
	rep, err := replay.Open(o.path, replay.Config{
		Namespace: o.ns, Loop: true, WaitViewer: true, Log: o.r.log,
		Limits: origin.Limits{MaxBytes: replayBytes, Memory: memory},
	})
	if err != nil {
		memory.Close()
		return nil, err
	}
	s, served, err := moqt.Pipe(ctx, moqt.Config{Log: o.r.log})
	if err != nil {
		rep.Close()
		memory.Close()
		return nil, err
	}
	served.Serve(rep.Handler())
	s.Serve(moqt.Handler{})
	running, stop := context.WithCancel(context.Background())
	o.stop = stop
	var wg sync.WaitGroup
	wg.Go(func() {
		defer stop()
		if err := rep.Run(running); err != nil && running.Err() == nil {
			o.r.log.Warn("replay ended", "recording", o.path, "err", err)
		}
	})
	wg.Go(func() {
		defer stop()
		awaitIdle(running, rep.InUse)
	})
	o.r.wg.Go(func() {
		<-running.Done()
		s.Close(wire.NoError, "the replay is over")
		wg.Wait()
		rep.Close()
		memory.Close()
		<-o.r.open
	})
	return s, nil
}

// awaitIdle returns when inUse has been false for a while, or ctx is done.
func awaitIdle(ctx context.Context, inUse func() bool) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for used := time.Now(); time.Since(used) < idle; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if inUse() {
			used = time.Now()
		}
	}
}

// close withdraws the recording and ends its replay.
func (o *offered) close() {
	o.withdraw()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	if o.stop != nil {
		o.stop()
	}
}
