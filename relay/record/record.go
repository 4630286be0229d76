// Package record records sessions at the relay to MCAP files, as the recorder of holocast record does, and
// offers the files as sessions that replay them.
//
// Each session that a client of this process publishes is recorded over a session within the process, which
// receives it like a viewer. Files are locked while they are written: after a crash, or an upgrade, another
// process finishes those whose lock is free.
package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/origin"
	"holocast/relay/router"
)

const (
	// interval is the time between looks at the directory.
	interval = time.Second
	// maxSessions limits the sessions recorded at a time.
	maxSessions = 256
	// share is the part of MaxBytes that the files being written may have.
	share = 4
	// resumeBytes is the free space above MinFree at which recording resumes.
	resumeBytes = 8 << 20
	// firstHold and maxHold bound the wait after a failure before recording resumes.
	firstHold = 5 * time.Second
	maxHold   = 5 * time.Minute
)

// Recorder records sessions and offers recordings.
type Recorder struct {
	router *router.Router
	memory *origin.Memory
	grace  func() time.Duration
	log    *slog.Logger
	dir    string
	open   chan struct{} // recordings being replayed
	wg     sync.WaitGroup
	change chan struct{} // signalled when the configuration changes

	dropped, written, objects, errs atomic.Uint64 // of finished files; dropped also of others
	tooOld, tooLarge                atomic.Uint64 // recordings deleted

	mu       sync.Mutex
	cfg      Config
	sessions map[string]*session // by name
	library  map[string]*offered // by path
	bytes    int64               // of all files
	free     int64
	paused   error         // nil while recording
	ready    chan struct{} // closed while recording
	resume   time.Time     // earliest time to resume
	hold     time.Duration // before the next resumption
	since    time.Time     // of the last resumption
	tooMany  bool          // maxSessions was reached
}

// Host is the relay that records.
type Host struct {
	Router *router.Router
	Memory *origin.Memory       // for replays
	Grace  func() time.Duration // how long a session survives its publisher
	Log    *slog.Logger
}

// New creates the directory if necessary. Run does the rest.
func New(cfg Config, h Host) (*Recorder, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("record.dir: %w", err)
	}
	info, err := os.Stat(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("record.dir: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("record.dir: %s is not a directory", cfg.Dir)
	}
	if info.Mode().Perm()&0o077 != 0 {
		h.Log.Warn("other users of this machine may list the recordings; restrict them with chmod 700", "dir", cfg.Dir)
	}
	ready := make(chan struct{})
	close(ready)
	return &Recorder{
		router: h.Router, memory: h.Memory, grace: h.Grace, log: h.Log, dir: cfg.Dir,
		open: make(chan struct{}, maxOpen), change: make(chan struct{}, 1),
		cfg: cfg, sessions: map[string]*session{}, library: map[string]*offered{}, ready: ready, hold: firstHold,
	}, nil
}

// SetConfig changes everything except the directory. r may be nil.
func (r *Recorder) SetConfig(cfg Config) {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.cfg = cfg
	r.mu.Unlock()
	select {
	case r.change <- struct{}{}:
	default:
	}
}

// Run records and offers until ctx is done. It returns once all files are finished.
func (r *Recorder) Run(ctx context.Context) {
	defer r.close()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	r.look(time.Now())
	for {
		hosted, changed := r.router.Hosted()
		r.follow(ctx, hosted)
		select {
		case <-changed:
		case <-r.change:
		case <-tick.C:
			r.look(time.Now())
		case <-ctx.Done():
			return
		}
	}
}

// close ends all recordings and replays.
func (r *Recorder) close() {
	r.mu.Lock()
	for _, s := range r.sessions {
		s.stop()
	}
	for _, o := range r.library {
		o.close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

// follow starts and stops the recordings of sessions.
func (r *Recorder) follow(ctx context.Context, hosted []moqt.Namespace) {
	now, here := time.Now(), map[string]moqt.Namespace{}
	for _, ns := range hosted {
		if name := router.SessionOf(ns); name != "" {
			here[name] = ns
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, ns := range here {
		if r.sessions[name] != nil || !r.cfg.matches(name) {
			continue
		}
		if len(r.sessions) == maxSessions {
			if !r.tooMany {
				r.log.Warn("too many sessions at a time; not recording further ones", "session", name, "limit", maxSessions)
			}
			r.tooMany = true
			break
		}
		s := &session{r: r, name: name, ns: ns}
		var running context.Context
		running, s.stop = context.WithCancel(ctx)
		r.sessions[name] = s
		r.wg.Go(func() {
			s.run(running)
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.sessions, name)
			r.tooMany = false
		})
	}
	for name, s := range r.sessions {
		switch _, is := here[name]; {
		case !r.cfg.matches(name):
			s.stop()
		case is:
			s.left = time.Time{}
		case r.router.Elsewhere(s.ns): // its publisher moved, and is recorded there
			s.stop()
		case s.left.IsZero():
			s.left = now
		case now.Sub(s.left) > r.grace():
			s.stop()
		}
	}
}

// look examines the directory: it offers new recordings, finishes abandoned ones, deletes old ones and pauses
// or resumes recording.
func (r *Recorder) look(now time.Time) {
	free, err := freeBytes(r.dir)
	if err != nil {
		r.fail(err)
		return
	}
	files, err := scan(r.dir)
	if err != nil {
		r.fail(err)
		return
	}
	r.mu.Lock()
	r.free = free
	cfg, writing := r.cfg, map[string]bool{}
	for _, s := range r.sessions {
		for _, t := range s.takes() {
			writing[t.path] = true
		}
	}
	r.mu.Unlock()
	var finished []entry
	var total int64
	for _, e := range files {
		total += e.size
		switch {
		case !e.partial:
			finished = append(finished, e)
		case !writing[e.path] && now.Sub(e.changed) > abandoned:
			r.recover(e)
		}
	}
	finished, total = r.retain(cfg, finished, total, now)
	r.list(finished, total)
	r.checkSpace(cfg, free, now)
}

// recover finishes a recording whose process crashed.
func (r *Recorder) recover(e entry) {
	recovered, err := recoverPartial(e)
	switch {
	case err != nil:
		r.log.Warn("recording of a process that crashed not recovered", "recording", e.path, "err", err)
	case recovered:
		r.log.Info("recovered a recording of a process that crashed", "session", e.session, "recording", e.at)
	}
}

// retain deletes recordings that are too old or too large in total, and returns the others. finished is sorted
// by age.
func (r *Recorder) retain(cfg Config, finished []entry, total int64, now time.Time) ([]entry, int64) {
	kept := finished[:0]
	for _, e := range finished {
		old := cfg.MaxAge > 0 && now.Sub(e.changed) > cfg.MaxAge
		large := cfg.MaxBytes > 0 && total > cfg.MaxBytes
		if !old && !large {
			kept = append(kept, e)
			continue
		}
		if err := r.discard(e); err != nil {
			r.log.Warn("recording not deleted", "recording", e.path, "err", err)
			kept = append(kept, e)
			continue
		}
		total -= e.size
		if old {
			r.tooOld.Add(1)
		} else {
			r.tooLarge.Add(1)
		}
		r.log.Info("recording deleted", "session", e.session, "recording", e.at, "older_than_max_age", old)
	}
	return kept, total
}

// discard withdraws and deletes a recording.
func (r *Recorder) discard(e entry) error {
	r.mu.Lock()
	if o := r.library[e.path]; o != nil {
		o.close()
		delete(r.library, e.path)
	}
	r.mu.Unlock()
	if err := remove(e.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// list offers the recordings in finished and withdraws the others.
func (r *Recorder) list(finished []entry, total int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes = total
	there := map[string]bool{}
	for _, e := range finished {
		there[e.path] = true
		if r.library[e.path] == nil {
			o := &offered{entry: e, r: r, ns: router.RecordingOf(e.session, e.at)}
			o.withdraw = r.router.Offer(o.ns, o)
			r.library[e.path] = o
		}
	}
	for path, o := range r.library {
		if !there[path] {
			o.close()
			delete(r.library, path)
		}
	}
}

// checkSpace pauses recording if too little space is free, and resumes it.
func (r *Recorder) checkSpace(cfg Config, free int64, now time.Time) {
	if len(cfg.Sessions) > 0 && free < cfg.MinFree {
		r.fail(fmt.Errorf("%d bytes are free, fewer than record.minFree (%d)", free, cfg.MinFree))
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.paused == nil && now.Sub(r.since) > time.Minute:
		r.hold = firstHold
	case r.paused != nil && free >= cfg.MinFree+resumeBytes && now.After(r.resume):
		r.paused, r.since = nil, now
		close(r.ready)
		r.log.Info("recording resumed", "dir", r.dir, "free_bytes", free)
	}
}

// fail pauses recording because of an error, which it logs once.
func (r *Recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.paused != nil {
		return
	}
	r.errs.Add(1)
	r.paused, r.ready = err, make(chan struct{})
	r.resume = time.Now().Add(r.hold)
	r.hold = min(2*r.hold, maxHold)
	r.log.Error("recording paused until the directory can be written and has space", "dir", r.dir, "err", err)
	for _, s := range r.sessions {
		for _, t := range s.takes() {
			t.stop()
		}
	}
}

// awaitReady waits while recording is paused.
func (r *Recorder) awaitReady(ctx context.Context) error {
	r.mu.Lock()
	ready := r.ready
	r.mu.Unlock()
	select {
	case <-ready:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// full reports whether a file is so long or large that another follows.
func (r *Recorder) full(t *take) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	most := r.cfg.MaxBytes / share / int64(max(1, len(r.sessions)))
	return r.cfg.MaxDuration > 0 && time.Since(t.began) > r.cfg.MaxDuration || r.cfg.MaxBytes > 0 && t.w.Size() > most
}

// ended counts a finished file and logs it.
func (r *Recorder) ended(s *session, t *take) {
	n, bytes, _ := t.rec.Counts()
	r.objects.Add(n)
	r.written.Add(bytes)
	r.dropped.Add(t.refused())
	switch file := t.rec.Err(); {
	case file != nil:
		r.fail(file)
	case n == 0:
		r.log.Debug("session not recorded", "session", s.name, "err", t.err)
	default:
		r.log.Info("recorded", "session", s.name, "file", t.path[:len(t.path)-len(partial)], "objects", n,
			"bytes", bytes, "length", time.Since(t.began).Round(time.Second))
	}
}

// hosts reports whether a session has a publisher here.
func (r *Recorder) hosts(s *session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return s.left.IsZero()
}

// Stats is the state of the recorder.
type Stats struct {
	Sessions   []string // being recorded
	Paused     error    // nil unless recording is paused
	Objects    uint64   // recorded
	Written    uint64   // bytes of their payloads
	Dropped    uint64   // subgroups and datagrams not recorded because the disk was too slow
	Errors     uint64
	Recordings []Recording // finished, oldest first
	Bytes      int64       // of all files
	Free       int64       // bytes of the file system
	TooOld     uint64      // recordings deleted because of Config.MaxAge
	TooLarge   uint64      // because of Config.MaxBytes
}

// Recording is a finished recording.
type Recording struct {
	Session, Time string
	Bytes         int64
	Ended         time.Time
}

// Name returns the name of the session that replays the recording.
func (r Recording) Name() string { return router.RecordingOf(r.Session, r.Time)[1] }

// Stats returns the current state. It is empty if r is nil.
func (r *Recorder) Stats() (st Stats) {
	if r == nil {
		return st
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	st = Stats{
		Paused: r.paused, Objects: r.objects.Load(), Written: r.written.Load(), Dropped: r.dropped.Load(),
		Errors: r.errs.Load(), Bytes: r.bytes, Free: r.free, TooOld: r.tooOld.Load(), TooLarge: r.tooLarge.Load(),
	}
	for name, s := range r.sessions {
		var recorded uint64
		for _, t := range s.takes() {
			n, bytes, _ := t.rec.Counts()
			recorded += n
			st.Objects += n
			st.Written += bytes
			st.Dropped += t.refused()
		}
		if recorded > 0 {
			st.Sessions = append(st.Sessions, name)
		}
	}
	for _, o := range r.library {
		st.Recordings = append(st.Recordings, Recording{o.session, o.at, o.size, o.changed})
	}
	slices.Sort(st.Sessions)
	slices.SortFunc(st.Recordings, func(a, b Recording) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.Session, b.Session))
	})
	return st
}
