// Package recorder records a session at its relay: every object of every track in
// the catalog, of the catalog itself and of tracks that are PUBLISHed in the
// session's namespace (receipts), exactly as received. The relay's own tracks (its
// clock) belong to no session and are not recorded.
package recorder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/recording"
	"holocast/tools/holocast/player"
)

// Config says what to record.
type Config struct {
	Namespace moqt.Namespace
	// Wait makes Record wait for a session that nobody publishes yet.
	Wait bool
	Log  *slog.Logger // nil = slog.Default
}

// Recorder records one session, over any number of connections one after the
// other.
type Recorder struct {
	cfg Config
	log *slog.Logger
	w   *recording.Writer

	objects, bytes atomic.Uint64
	joined         chan struct{}
	failed         chan struct{} // closed when the file cannot be written to any more

	mu     sync.Mutex
	tracks map[string]*track
	err    error
}

// track is what is known of a track over all connections.
type track struct {
	name   moqt.TrackName
	busy   bool           // a subscription is being received
	newest *moqt.Location // recorded
	// catalog takes the objects of the catalog track, nil for other tracks.
	catalog    func(payload []byte, properties ...catalog.Properties)
	properties moqt.Properties // of the track
}

// New records to w, which stays the caller's to Sync and Close.
func New(w *recording.Writer, cfg Config) *Recorder {
	return &Recorder{cfg: cfg, log: cmp.Or(cfg.Log, slog.Default()), w: w,
		joined: make(chan struct{}), failed: make(chan struct{}), tracks: map[string]*track{}}
}

// Joined is closed when the session's catalog is here.
func (r *Recorder) Joined() <-chan struct{} { return r.joined }

// Counts are the objects recorded so far and their payloads' bytes.
func (r *Recorder) Counts() (objects, bytes uint64) { return r.objects.Load(), r.bytes.Load() }

// Err is why nothing more can be recorded, nil while it can.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// fail notes the first error of the file.
func (r *Recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
		close(r.failed)
	}
}

// rendezvous is how long a relay is asked to wait for a publisher at a time.
const rendezvous = 20 * time.Second

// run is one connection.
type run struct {
	*Recorder
	ctx context.Context
	s   *moqt.Session
	wg  sync.WaitGroup
}

// Handler takes the tracks that are PUBLISHed in the session's namespace. Record
// must be using the handler's session.
func (r *Recorder) Handler() moqt.Handler {
	return moqt.Handler{Publish: func(req *moqt.PublishRequest) {
		if !req.Track.Namespace.HasPrefix(r.cfg.Namespace) {
			_ = req.Reject(wire.RequestUninterested, "not of the session that is recorded")
			return
		}
		t, ok := r.claim(req.Track)
		if !ok {
			_ = req.Reject(wire.RequestDuplicateSubscription, "subscribed to already")
			return
		}
		defer r.release(t)
		sub, err := req.Accept(moqt.SubscribeOptions{})
		if err != nil {
			return
		}
		x := &run{Recorder: r, ctx: req.Session().Context(), s: req.Session()}
		_ = x.receive(sub, t)
		sub.Cancel()
	}}
}

// claim makes a track one subscription's.
func (r *Recorder) claim(name moqt.TrackName) (*track, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tracks[name.String()]
	if t == nil {
		t = &track{name: name}
		r.tracks[name.String()] = t
	}
	if t.busy {
		return nil, false
	}
	t.busy = true
	return t, true
}

func (r *Recorder) release(t *track) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.busy = false
}

// Record records over one connection until ctx or the connection ends, whose error
// it returns, or the publisher ends the session: then it returns nil. A file that
// cannot be written to any more ends it too; Err then says why. What another
// connection would not mend is marked with connect.Final.
func (r *Recorder) Record(ctx context.Context, s *moqt.Session) error {
	ctx, stop := context.WithCancel(ctx)
	x := &run{Recorder: r, ctx: ctx, s: s}
	defer x.wg.Wait()
	defer stop()
	x.wg.Go(func() {
		select {
		case <-r.failed:
			stop()
		case <-ctx.Done():
		}
	})
	x.wg.Go(func() {
		if err := s.SubscribeTracks(ctx, r.cfg.Namespace); err != nil && ctx.Err() == nil && s.Err() == nil {
			r.log.Debug("published tracks cannot be followed", "err", err)
		}
	})

	name := moqt.TrackName{Namespace: r.cfg.Namespace, Name: catalog.TrackName}
	t, ok := r.claim(name)
	if !ok {
		return fmt.Errorf("recorder: %s is being recorded already", name)
	}
	var reader catalog.Reader
	started := map[string]bool{}
	var media sync.WaitGroup
	follow := func(payload []byte, properties ...catalog.Properties) {
		current, err := reader.Read(payload, properties...)
		if err != nil {
			r.log.Warn("catalog not understood", "err", err)
			return
		}
		select {
		case <-r.joined:
		default:
			close(r.joined)
		}
		for _, ct := range current.Tracks {
			name := player.TrackName(r.cfg.Namespace, ct)
			if !started[name.String()] && name.Namespace.HasPrefix(r.cfg.Namespace) && !name.Equal(t.name) {
				started[name.String()] = true
				media.Go(func() { x.follow(name) })
			}
		}
	}
	r.mu.Lock()
	t.catalog = follow
	r.mu.Unlock()
	err := x.followCatalog(t)
	r.release(t)
	if err != nil {
		stop()
	}
	media.Wait()
	if file := r.Err(); file != nil {
		return connect.Final(file)
	}
	return err
}

func (x *run) followCatalog(t *track) error {
	wait := x.cfg.Wait
	select {
	case <-x.joined:
		wait = true
	default:
	}
	for {
		sub, err := x.subscribe(t.name, wait)
		if e := (*moqt.RequestError)(nil); errors.As(err, &e) && e.Code != wire.RequestGoingAway {
			return connect.Final(&player.NoSessionError{Namespace: x.cfg.Namespace, Err: err})
		}
		if err != nil {
			return err
		}
		err = x.receive(sub, t)
		sub.Cancel()
		switch ended, returns := ending(err); {
		case ended:
			return nil
		case !returns:
			return err
		}
		wait = true
	}
}

// follow records a track that the catalog lists, as often as its publisher returns.
func (x *run) follow(name moqt.TrackName) {
	t, ok := x.claim(name)
	if !ok {
		return
	}
	defer x.release(t)
	for {
		sub, err := x.subscribe(name, true)
		if err == nil {
			err = x.receive(sub, t)
			sub.Cancel()
		}
		ended, returns := ending(err)
		if ended {
			return
		}
		if !returns {
			if x.ctx.Err() == nil && x.s.Err() == nil {
				x.log.Error("a track cannot be recorded", "track", name.String(), "err", err)
			}
			return
		}
	}
}

// ending tells a track that its publisher ended from one whose publisher went away
// and may return.
func ending(err error) (ended, returns bool) {
	var done *moqt.DoneError
	if !errors.As(err, &done) {
		return false, false
	}
	ended = done.Code == wire.DoneTrackEnded || done.Code == wire.DoneSubscriptionEnded
	return ended, !ended
}

func (x *run) subscribe(name moqt.TrackName, wait bool) (*moqt.Subscription, error) {
	o := moqt.SubscribeOptions{Filter: &moqt.Filter{Type: wire.FilterLargestObject}, Join: true}
	if wait {
		o.RendezvousTimeout = rendezvous
	}
	for {
		sub, err := x.s.Subscribe(x.ctx, name, o)
		var refused *moqt.RequestError
		if !wait || x.ctx.Err() != nil || !errors.As(err, &refused) ||
			refused.Code != wire.RequestTimeout && refused.Code != wire.RequestDoesNotExist {
			return sub, err
		}
		select {
		case <-time.After(time.Second):
		case <-x.ctx.Done():
			return nil, x.ctx.Err()
		}
	}
}

// receive records what a subscription brings until it ends, and returns why.
func (x *run) receive(sub *moqt.Subscription, t *track) error {
	ctx, stop := context.WithCancel(x.ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	name := recording.Track{Namespace: sub.Track().Namespace, Name: sub.Track().Name}
	if err := x.w.AddTrack(recording.TrackInfo{Track: name, Properties: sub.Properties}); err != nil {
		x.fail(err)
		return err
	}
	x.mu.Lock()
	t.properties = sub.Properties
	x.mu.Unlock()
	if sub.Largest != nil {
		if err := x.fetch(ctx, sub, t, name); err != nil {
			return err
		}
	}
	wg.Go(func() {
		for {
			d, err := sub.AcceptDatagram(ctx)
			if err != nil {
				return
			}
			x.write(t, recording.Object{
				Track: name, Group: d.Group, ObjectID: d.Object, Priority: d.Priority, Status: uint8(d.Status),
				Properties: d.Properties, Payload: d.Payload, Forwarding: recording.Datagram, EndOfGroup: d.EndOfGroup, Arrival: time.Now(),
			})
		}
	})
	for {
		r, err := sub.AcceptSubgroup(ctx)
		if err != nil {
			if ended, _ := ending(err); !ended {
				sub.Cancel() // so that readers of open subgroups return
			}
			return err
		}
		wg.Go(func() { x.read(r, t, name) })
	}
}

// fetch records the group that the subscription began in, as far as it is the past
// and was not recorded before the connection was lost.
func (x *run) fetch(ctx context.Context, sub *moqt.Subscription, t *track, name recording.Track) error {
	f, err := sub.Joined(ctx)
	if err == nil {
		defer f.Cancel()
		defer context.AfterFunc(ctx, f.Cancel)()
		for {
			var o wire.FetchObject
			if o, err = f.Next(); err != nil {
				break
			}
			if o.Range != wire.RangeNone {
				continue
			}
			var payload []byte
			if payload, err = f.ReadPayload(nil, recording.MaxObject-wire.MaxObjectProperties); err != nil {
				break
			}
			at := moqt.Location{Group: o.Group, Object: o.Object}
			x.mu.Lock()
			known := t.newest != nil && !t.newest.Less(at)
			if known && t.catalog != nil {
				t.catalog(payload, o.Properties, t.properties) // what to follow on this connection
			}
			x.mu.Unlock()
			if known {
				continue
			}
			forwarding := recording.Subgroup
			if o.Datagram {
				forwarding = recording.Datagram
			}
			x.write(t, recording.Object{
				Track: name, Group: o.Group, Subgroup: o.Subgroup, ObjectID: o.Object, Priority: o.Priority,
				Properties: o.Properties, Payload: payload, Forwarding: forwarding, Arrival: time.Now(),
			})
		}
	}
	if e := (*moqt.RequestError)(nil); err == io.EOF || errors.As(err, &e) {
		return nil // what is not there to fetch is not there to record
	}
	return err
}

// read records one subgroup and how its stream ended.
func (x *run) read(r *moqt.SubgroupReader, t *track, name recording.Track) {
	o := recording.Object{Track: name, Group: r.Group, Priority: r.Priority, EndOfGroup: r.EndOfGroup}
	for first := true; ; first = false {
		header, err := r.NextObject()
		var payload []byte
		if err == nil {
			payload, err = r.ReadPayload(nil, recording.MaxObject-wire.MaxObjectProperties)
		}
		o.Arrival, o.Subgroup = time.Now(), r.Subgroup
		if err == nil {
			o.ObjectID, o.Status, o.Properties, o.Payload = header.ID, uint8(header.Status), header.Properties, payload
			o.FirstObject = first && r.FirstObject
			x.write(t, o)
			continue
		}
		var reset *moqt.StreamError
		switch {
		case err == io.EOF:
			o.End = recording.EndFIN
		case errors.As(err, &reset):
			o.End = recording.EndReset
		default:
			x.log.Warn("subgroup not recorded whole", "track", name.String(), "group", r.Group, "err", err)
			r.Cancel(wire.StreamCancelled)
			return
		}
		if first && r.Mode == wire.SubgroupIDFirstObject {
			return // it has no ID
		}
		o.EndOnly, o.FirstObject, o.Status, o.Properties, o.Payload = true, false, 0, nil, nil
		x.write(t, o)
		return
	}
}

// write records one object.
func (r *Recorder) write(t *track, o recording.Object) {
	if err := r.w.Write(o); err != nil {
		r.fail(err)
		return
	}
	if o.EndOnly {
		return
	}
	r.objects.Add(1)
	r.bytes.Add(uint64(len(o.Payload)))
	at := moqt.Location{Group: o.Group, Object: o.ObjectID}
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.newest == nil || t.newest.Less(at) {
		t.newest = &at
	}
	if t.catalog != nil && o.Status == 0 {
		t.catalog(o.Payload, moqt.Properties(o.Properties), t.properties)
	}
}
