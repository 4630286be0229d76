// Package recorder records a session at its relay. It records every object of the catalog, of the
// tracks in it, and of the viewers' receipts, exactly as received, except that frames in datagrams
// are recorded as complete objects. Other tracks in the session's namespace are recorded on
// request. The relay's own tracks, such as its clock, belong to no session and are not recorded.
package recorder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/parts"
	"holocast/internal/pointcloud"
	"holocast/internal/recording"
)

// Config selects the recorded tracks.
type Config struct {
	Namespace moqt.Namespace
	// All records every track PUBLISHed in the session's namespace, not only receipts and the
	// catalog's tracks.
	All bool
	// Wait makes Record wait for the session's publisher.
	Wait bool
	Log  *slog.Logger // nil = slog.Default
}

// Recorder records one session, over any number of consecutive connections.
type Recorder struct {
	cfg Config
	log *slog.Logger
	w   *recording.Writer

	objects, bytes, records atomic.Uint64
	joined                  chan struct{}
	subscribed              chan struct{}
	failed                  chan struct{} // closed when writing the file fails

	mu      sync.Mutex
	tracks  map[string]*track
	listed  map[string]bool // in the catalog
	pending int             // first subscriptions not answered, of the first catalog's tracks
	err     error
}

// track is the state of a track across connections.
type track struct {
	name   moqt.TrackName
	busy   bool           // it has a running subscription
	newest *moqt.Location // recorded
	first  *uint64        // group at the start of a subscription from the first catalog; nil if there was none
	open   map[uint64]int // subgroups being received, by group
	// catalog handles the objects of the catalog track; nil for other tracks.
	catalog    func(group uint64, payload []byte, properties ...catalog.Properties)
	properties moqt.Properties // track properties
	parts      parts.Limits    // limits for frames in datagrams; zero if there are none
}

// New returns a Recorder that writes to w. The caller syncs and closes w.
func New(w *recording.Writer, cfg Config) *Recorder {
	return &Recorder{
		cfg: cfg, log: cmp.Or(cfg.Log, slog.Default()), w: w,
		joined: make(chan struct{}), subscribed: make(chan struct{}), failed: make(chan struct{}),
		tracks: map[string]*track{}, listed: map[string]bool{},
	}
}

// Joined returns a channel that is closed once the session's catalog has arrived.
func (r *Recorder) Joined() <-chan struct{} { return r.joined }

// Subscribed returns a channel that is closed once the first catalog's tracks are subscribed to, or refused.
func (r *Recorder) Subscribed() <-chan struct{} { return r.subscribed }

// Starts returns the group with which the recording of each catalog track began, by track name. Tracks that had no
// objects then are absent. Call it once Subscribed is closed.
func (r *Recorder) Starts() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	starts := map[string]uint64{}
	for name, t := range r.tracks {
		if t.first != nil {
			starts[name] = *t.first
		}
	}
	return starts
}

// Reached reports whether r has begun the groups in starts, another recorder's Starts, and has no open subgroup of
// earlier groups.
func (r *Recorder) Reached(starts map[string]uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, group := range starts {
		t := r.tracks[name]
		if t == nil || !t.busy {
			continue
		}
		if t.newest == nil || t.newest.Group < group {
			return false
		}
		for open := range t.open {
			if open < group {
				return false
			}
		}
	}
	return true
}

// Counts returns the recorded objects, their payload bytes, and the records in the file: one per
// object, and one per subgroup end that arrived much later.
func (r *Recorder) Counts() (objects, bytes, records uint64) {
	return r.objects.Load(), r.bytes.Load(), r.records.Load()
}

// Err returns the error that ended the recording, or nil.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// fail stores the file's first error.
func (r *Recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
		close(r.failed)
	}
}

// run is one connection.
type run struct {
	*Recorder
	ctx context.Context
	s   *moqt.Session
	wg  sync.WaitGroup
}

// Handler accepts PUBLISHed receipts and other tracks to record. Record must run on the handler's
// session.
func (r *Recorder) Handler() moqt.Handler {
	return moqt.Handler{Publish: func(req *moqt.PublishRequest) {
		if !r.wants(req.Track) {
			_ = req.Reject(wire.RequestUninterested, "not in the recorded session")
			return
		}
		t, ok := r.claim(req.Track)
		if !ok {
			_ = req.Reject(wire.RequestDuplicateSubscription, "already subscribed")
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

// wants reports whether to record a PUBLISHed track.
func (r *Recorder) wants(name moqt.TrackName) bool {
	if !name.Namespace.HasPrefix(r.cfg.Namespace) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cfg.All || strings.HasPrefix(name.Name, connect.ReceiptsPrefix) || r.listed[name.String()]
}

// claim reserves a track for one subscription.
func (r *Recorder) claim(name moqt.TrackName) (*track, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tracks[name.String()]
	if t == nil {
		t = &track{name: name, open: map[uint64]int{}}
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

// Record records over one connection. It returns nil once the publisher ends the session, otherwise
// ctx.Err() or the connection's error. It also returns if writing the file fails; see Err. Errors
// that reconnecting cannot fix are marked with connect.Final.
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
			r.log.Debug("SUBSCRIBE_TRACKS refused", "err", err)
		}
	})

	name := moqt.TrackName{Namespace: r.cfg.Namespace, Name: catalog.TrackName}
	t, ok := r.claim(name)
	if !ok {
		return fmt.Errorf("recorder: %s is already being recorded", name)
	}
	var reader catalog.Reader
	started := map[string]bool{}
	var media sync.WaitGroup
	follow := func(group uint64, payload []byte, properties ...catalog.Properties) {
		current, err := reader.Read(group, payload, properties...)
		if err != nil {
			r.log.Warn("ignored an invalid catalog", "err", err)
			return
		}
		initial := r.join()
		for _, ct := range current.Tracks {
			name := connect.TrackName(r.cfg.Namespace, ct)
			if !started[name.String()] && name.Namespace.HasPrefix(r.cfg.Namespace) && !name.Equal(t.name) {
				started[name.String()] = true
				r.listed[name.String()] = true // r.mu is held
				limits := partsOf(ct)
				answered := func(*moqt.Subscription) {}
				if initial {
					r.pending++
					answered = func(sub *moqt.Subscription) { r.answer(name, sub) }
				}
				media.Go(func() { x.follow(name, limits, answered) })
			}
		}
		if initial && r.pending == 0 {
			close(r.subscribed)
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

// join closes joined at the first catalog. It reports whether this is the first. r.mu is held.
func (r *Recorder) join() bool {
	select {
	case <-r.joined:
		return false
	default:
		close(r.joined)
		return true
	}
}

// answer records the start of the first subscription to a track of the first catalog. sub is nil if it was refused.
func (r *Recorder) answer(name moqt.TrackName, sub *moqt.Subscription) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sub != nil && sub.Largest != nil {
		r.tracks[name.String()].first = new(sub.Largest.Group)
	}
	if r.pending--; r.pending == 0 {
		close(r.subscribed)
	}
}

func (x *run) followCatalog(t *track) error {
	wait := x.cfg.Wait
	select {
	case <-x.joined:
		wait = true
	default:
	}
	for {
		sub, err := connect.Subscribe(x.ctx, x.s, t.name, 0, wait)
		if e := (*moqt.RequestError)(nil); errors.As(err, &e) && e.Code != wire.RequestGoingAway {
			return connect.Final(&connect.NoSessionError{Namespace: x.cfg.Namespace, Err: err})
		}
		if err != nil {
			return err
		}
		err = x.receive(sub, t)
		sub.Cancel()
		switch {
		case connect.Ended(err):
			return nil
		case !connect.Away(err):
			return err
		}
		wait = true
	}
}

// follow records a track of the catalog. It subscribes again whenever the track's publisher returns. It calls answered
// after the first attempt, with nil if that failed.
func (x *run) follow(name moqt.TrackName, limits parts.Limits, answered func(*moqt.Subscription)) {
	t, ok := x.claim(name)
	if !ok {
		answered(nil)
		return
	}
	defer x.release(t)
	t.parts = limits
	for first := true; ; first = false {
		sub, err := connect.Subscribe(x.ctx, x.s, name, 0, true)
		if first {
			answered(sub)
		}
		if err == nil {
			err = x.receive(sub, t)
			sub.Cancel()
		}
		if connect.Ended(err) {
			return
		}
		if !connect.Away(err) {
			if x.ctx.Err() == nil && x.s.Err() == nil {
				x.log.Error("could not record a track", "track", name.String(), "err", err)
			}
			return
		}
	}
}

// receive records a subscription until it ends, and returns the reason.
func (x *run) receive(sub *moqt.Subscription, t *track) error {
	ctx, stop := context.WithCancel(x.ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	name := sub.Track()
	if err := x.w.AddTrack(recording.TrackInfo{Track: name, Properties: sub.Properties}); err != nil {
		x.fail(err)
		return err
	}
	x.mu.Lock()
	t.properties = sub.Properties
	x.mu.Unlock()
	var frames *parts.Receiver
	if t.parts != (parts.Limits{}) {
		frames = x.receiveParts(ctx, sub, t)
		wg.Go(func() { _ = frames.Run() }) // ends with the subscription
	}
	if sub.Largest != nil {
		if err := x.fetch(ctx, sub, t, name, frames); err != nil {
			return err
		}
	}
	wg.Go(func() {
		for frames == nil {
			d, err := sub.AcceptDatagram(ctx)
			if err != nil {
				return
			}
			x.record(t, recording.Object{
				Track: name, Group: d.Group, ObjectID: d.Object, Priority: d.Priority, Status: uint8(d.Status),
				Properties: d.Properties, Payload: d.Payload, Forwarding: recording.Datagram,
				EndOfGroup: d.EndOfGroup, Arrival: time.Now(),
			})
		}
	})
	for {
		r, err := sub.AcceptSubgroup(ctx)
		if err != nil {
			if !connect.Ended(err) {
				sub.Cancel() // unblocks readers of open subgroups
			}
			return err
		}
		x.opened(t, r.Group, 1)
		wg.Go(func() {
			defer x.opened(t, r.Group, -1)
			x.read(r, t, name)
		})
	}
}

// partsOf returns the limits for a track's frames in datagrams, or zero if there are none.
func partsOf(ct catalog.Track) (l parts.Limits) {
	if p := ct.Points; p != nil && p.Delivery == catalog.DeliveryDatagram {
		l.MaxPayload = min(12*p.MaxPoints+1<<16, recording.MaxObject-wire.MaxObjectProperties)
		l.Timeout = time.Duration(p.DeliveryTimeout) * time.Millisecond
	}
	return l
}

// receiveParts records descriptions from datagrams as complete objects, like those on streams, so
// that players need no repair.
func (x *run) receiveParts(ctx context.Context, sub *moqt.Subscription, t *track) *parts.Receiver {
	r := parts.NewReceiver(ctx, sub, t.parts, func(p parts.Payload) {
		h, err := pointcloud.ParseHeader(p.Bytes)
		if err != nil {
			x.log.Warn("could not record a frame", "track", t.name.String(), "group", p.Group, "err", err)
			return
		}
		n := uint64(h.Description)
		x.record(t, recording.Object{
			Track: t.name, Group: p.Group, Subgroup: n, ObjectID: n, Priority: p.Priority, Payload: p.Bytes,
			Forwarding: recording.Subgroup, FirstObject: true, EndOfGroup: p.Last, End: recording.EndFIN, Arrival: time.Now(),
		})
	})
	r.Joining()
	return r
}

// fetch records the earlier part of the group in which the subscription began, unless it was
// recorded before a reconnection.
func (x *run) fetch(
	ctx context.Context, sub *moqt.Subscription, t *track, name wire.TrackName, frames *parts.Receiver,
) error {
	x.mu.Lock()
	before := t.newest
	x.mu.Unlock()
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
			if frames != nil && o.Datagram { // datagrams are recorded under other object IDs
				known = before != nil && o.Group <= before.Group
			}
			if known && t.catalog != nil {
				t.catalog(o.Group, payload, o.Properties, t.properties) // tracks to record on this connection
			}
			x.mu.Unlock()
			if known {
				continue
			}
			forwarding := recording.Subgroup
			if o.Datagram && frames != nil {
				frames.Add(parts.Fetched(o, payload), true)
				continue
			}
			if o.Datagram {
				forwarding = recording.Datagram
			}
			x.record(t, recording.Object{
				Track: name, Group: o.Group, Subgroup: o.Subgroup, ObjectID: o.Object, Priority: o.Priority,
				Properties: o.Properties, Payload: payload, Forwarding: forwarding, Arrival: time.Now(),
			})
		}
	}
	if e := (*moqt.RequestError)(nil); err == io.EOF || errors.As(err, &e) {
		return nil // not available: nothing to record
	}
	return err
}

// opened counts n subgroups of a group as being received.
func (r *Recorder) opened(t *track, group uint64, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.open[group] += n; t.open[group] == 0 {
		delete(t.open, group)
	}
}

// read records one subgroup and how its stream ended.
func (x *run) read(r *moqt.SubgroupReader, t *track, name wire.TrackName) {
	o := recording.Object{Track: name, Group: r.Group, Priority: r.Priority, EndOfGroup: r.EndOfGroup}
	held := held{r: x.Recorder}
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
			x.note(t, o)
			held.next(o)
			continue
		}
		var reset *moqt.StreamError
		switch {
		case err == io.EOF:
			o.End = recording.EndFIN
		case errors.As(err, &reset):
			o.End = recording.EndReset
		default:
			x.log.Warn("recorded only part of a subgroup", "track", name.String(), "group", r.Group, "err", err)
			r.Cancel(wire.StreamCancelled)
			held.flush()
			return
		}
		if first && r.Mode == wire.SubgroupIDFirstObject {
			return // it has no ID
		}
		held.end(o)
		return
	}
}

// holdFor is how long an object waits for the end of its subgroup, to combine both in one record.
const holdFor = 200 * time.Millisecond

// held holds a subgroup's newest object until it is written.
type held struct {
	r *Recorder

	mu    sync.Mutex
	o     *recording.Object
	timer *time.Timer
}

// next holds o and writes the previous object.
func (h *held) next(o recording.Object) {
	h.flush()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.o = &o
	h.timer = time.AfterFunc(holdFor, h.flush)
}

func (h *held) flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.o != nil {
		h.timer.Stop()
		h.r.write(*h.o)
		h.o = nil
	}
}

// end writes the held object, marked as the last of its subgroup. If none is held, it writes a
// record of the end alone, with the subgroup's fields.
func (h *held) end(end recording.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.o != nil {
		h.timer.Stop()
		h.o.End = end.End
		h.r.write(*h.o)
		h.o = nil
		return
	}
	end.EndOnly, end.FirstObject, end.Status, end.Properties, end.Payload = true, false, 0, nil, nil
	h.r.write(end)
}

// record counts and writes one object.
func (r *Recorder) record(t *track, o recording.Object) {
	r.note(t, o)
	r.write(o)
}

func (r *Recorder) write(o recording.Object) {
	if err := r.w.Write(o); err != nil {
		r.fail(err)
		return
	}
	r.records.Add(1)
}

// note counts an object that is about to be written. It also follows the catalog.
func (r *Recorder) note(t *track, o recording.Object) {
	r.objects.Add(1)
	r.bytes.Add(uint64(len(o.Payload)))
	at := moqt.Location{Group: o.Group, Object: o.ObjectID}
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.newest == nil || t.newest.Less(at) {
		t.newest = &at
	}
	if t.catalog != nil && o.Status == 0 {
		t.catalog(o.Group, o.Payload, moqt.Properties(o.Properties), t.properties)
	}
}
