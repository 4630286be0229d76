// Package replay publishes a recorded session: the same tracks and objects, bit for bit, with their
// groups, subgroups, IDs, priorities and properties, at their recorded times.
//
// Every track has the property connect.ReplayProperty, which marks capture times as past. Each pass
// of a loop raises the group IDs to keep them ascending; objects are otherwise unchanged. Encrypted
// objects in other groups than recorded carry secureobjects.OriginalGroup.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/clock"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/recording"
	"holocast/internal/secureobjects"
	"holocast/internal/timeline"
)

// Config configures a replay.
type Config struct {
	Namespace moqt.Namespace // replaces the recorded one
	Speed     float64        // 1 = as recorded; 0 means 1
	Loop      bool
	// WaitViewer publishes only the catalog until a viewer subscribes to another track.
	WaitViewer bool
	// Live gives frames their send time and ascending numbers, and does not mark the tracks as
	// replayed: players see a live session.
	Live bool
	// Into publishes the recording into another publisher's session with its own catalog. It
	// requires Live. nil publishes a new session.
	Into *Session
	// Source opens the recording. nil means recording.OpenSource; prepared.OpenSource also opens folders of
	// prepared video.
	Source func(path string) (recording.Source, recording.Info, error)
	// Limits bound the cache of each track.
	Limits origin.Limits
	Log    *slog.Logger // nil = slog.Default
}

// Session is the target of Config.Into.
type Session struct {
	Add        func(*origin.Track) // offers the track to subscribers
	Clock      *clock.Estimator    // the relay's
	FirstGroup uint64              // first group ID of aligned tracks
}

// Replayer replays one recording.
type Replayer struct {
	// Info summarizes the recording.
	Info recording.Info

	cfg    Config
	log    *slog.Logger
	path   string
	root   []string // the recorded session's namespace
	set    origin.Set
	clock  clock.Estimator
	tracks map[string]*track // by recorded name
	past   *onDemand         // nil with Live
	shift  shift
	now    func() time.Time // the relay's time
	based  bool             // groups are numbered like those of Config.Into

	objects atomic.Uint64
	at      atomic.Int64 // ns since the start of the recording
	pass    atomic.Int64
}

// track is one recorded track.
type track struct {
	*origin.Track
	catalog     bool
	aligned     bool // its groups correspond to those of other tracks
	stamps      stamps
	feeds       map[subgroup]*feed
	low, high   uint64 // groups of the first pass
	some        bool
	offset      uint64 // added to groups
	newestGroup uint64
}

type subgroup struct{ group, id uint64 }

type feed struct {
	*origin.Feed
	last time.Time // arrival of its newest object
}

// maxOpen lets a relay fall far behind before the replay drops anything.
const maxOpen = 1024

// Open opens the recording at path, or with Config.Source another source.
func Open(path string, cfg Config) (*Replayer, error) {
	if cfg.Source == nil {
		cfg.Source = recording.OpenSource
	}
	reader, info, err := cfg.Source(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = reader.Close() }() // read-only
	r := &Replayer{Info: info, cfg: cfg, log: cmp.Or(cfg.Log, slog.Default()), path: path, tracks: map[string]*track{}}
	r.cfg.Speed = cmp.Or(cfg.Speed, 1)
	if r.cfg.Speed < 0 {
		return nil, fmt.Errorf("replay: speed %v is below 0", cfg.Speed)
	}
	r.now = r.clock.Now
	if cfg.Into != nil {
		if !cfg.Live {
			return nil, errors.New("replay: publishing into a session requires Live")
		}
		r.now = cfg.Into.Clock.Now
	}
	r.set.MaxOpen = maxOpen
	for _, t := range info.Tracks {
		if t.Track.Name == catalog.TrackName && (r.root == nil || len(t.Track.Namespace) < len(r.root)) {
			r.root = t.Track.Namespace
		}
	}
	if r.root == nil {
		_, err := recording.FirstCatalog(path, reader, func(*recording.Object) bool { return false })
		return nil, err // the cause
	}
	instance := connect.NewInstance()
	for _, t := range info.Tracks {
		ns := t.Track.Namespace
		if !ns.HasPrefix(r.root) {
			r.log.Warn("track skipped: it is outside the session's namespace", "track", t.Track.String())
			continue
		}
		props, err := markReplayed(t.Properties, !cfg.Live, instance)
		if err != nil {
			return nil, fmt.Errorf("recording %s: properties of %v: %w", path, t.Track, err)
		}
		name := moqt.TrackName{Namespace: append(slices.Clone(cfg.Namespace), ns[len(r.root):]...), Name: t.Track.Name}
		x := &track{Track: origin.NewTrack(name, props, cfg.Limits), feeds: map[subgroup]*feed{}}
		x.catalog = ns.Equal(r.root) && name.Name == catalog.TrackName
		r.tracks[t.Track.String()] = x
		switch {
		case cfg.Into == nil:
			r.set.Add(x.Track)
		case !x.catalog:
			cfg.Into.Add(x.Track)
		}
	}
	if !cfg.Live {
		r.past = newOnDemand(r)
	}
	return r, nil
}

// markReplayed adds or removes the property that marks a replay, and replaces that of the publisher's run.
func markReplayed(properties []byte, replayed bool, instance wire.KeyValue) (moqt.Properties, error) {
	kvs, err := wire.ParseKeyValues(properties)
	if err != nil {
		return nil, err
	}
	kvs = slices.DeleteFunc(kvs, func(kv wire.KeyValue) bool {
		return kv.Type == connect.ReplayProperty || kv.Type == connect.InstanceProperty
	})
	kvs = append(kvs, instance)
	if replayed {
		kvs = append(kvs, wire.KeyValue{Type: connect.ReplayProperty, Int: 1})
	}
	return wire.AppendKeyValues(nil, kvs...), nil
}

// Handler answers requests for the tracks.
func (r *Replayer) Handler() moqt.Handler {
	if r.past == nil {
		return r.set.Handler()
	}
	return r.past.handler(r.set.Handler())
}

// InUse reports whether the tracks have subscribers or are being fetched.
func (r *Replayer) InUse() bool {
	return r.set.Viewers() > 0 || r.past != nil && r.past.serving.Load() > 0
}

// Close frees the tracks' caches after Run has returned.
func (r *Replayer) Close() { r.set.Discard() }

// Progress returns the number of published objects, the position in the recording, and the pass of
// a loop, from 0.
func (r *Replayer) Progress() (objects uint64, at time.Duration, pass int) {
	return r.objects.Load(), time.Duration(r.at.Load()), int(r.pass.Load())
}

// Unsent returns the number of subgroups and datagrams that were dropped because the relay, or the
// path to it, was too slow.
func (r *Replayer) Unsent() (n uint64) {
	for _, t := range r.tracks {
		s := t.Stats()
		n += s.Behind + s.Late + s.UnsentDatagrams
	}
	return n
}

// Run publishes the recording once, or with Loop until ctx is done. Sessions may come and go
// meanwhile.
func (r *Replayer) Run(ctx context.Context) error {
	if r.past != nil {
		defer r.past.close()
	}
	defer r.set.End(wire.DoneTrackEnded, "the recording is over")
	defer r.endSubgroups(func(*track, subgroup, *feed) bool { return true })
	first, err := r.publishCatalog()
	if err != nil {
		return err
	}
	if r.cfg.WaitViewer && !r.awaitViewer(ctx) {
		return ctx.Err()
	}
	began := time.Now()
	for {
		length, err := r.play(ctx, began, first)
		if err != nil {
			return err
		}
		if !r.cfg.Loop {
			return nil
		}
		first = nil
		r.pass.Add(1)
		r.endSubgroups(func(*track, subgroup, *feed) bool { return true })
		r.raise()
		// The last frame is shown for a frame interval too.
		began = began.Add(r.scale(length + time.Second/30))
	}
}

// raise raises the groups for the next pass. Each track's groups rise by the track's span, but
// those of aligned tracks rise by their common span.
func (r *Replayer) raise() {
	low, high := uint64(math.MaxUint64), uint64(0)
	for _, t := range r.tracks {
		if t.aligned && t.some {
			low, high = min(low, t.low), max(high, t.high)
		}
	}
	for _, t := range r.tracks {
		switch {
		case t.aligned:
			t.offset += high - low + 1
		case t.some:
			t.offset += t.high - t.low + 1
		}
	}
}

// align marks the tracks with common groups, according to a catalog of the recording
// (docs/spec/tiles.md).
func (r *Replayer) align(payload []byte) {
	c, err := catalog.Parse(payload)
	if err != nil {
		return
	}
	for _, name := range c.Aligned() {
		if t := r.tracks[wire.TrackName{Namespace: r.root, Name: name}.String()]; t != nil {
			t.aligned = true
		}
	}
}

func (r *Replayer) scale(d time.Duration) time.Duration {
	return time.Duration(float64(d) / r.cfg.Speed)
}

// End ends the tracks.
func (r *Replayer) End(code wire.DoneCode, reason string) {
	for _, t := range r.tracks {
		t.End(code, reason)
	}
}

// Catalog returns the recording's first catalog.
func (r *Replayer) Catalog() (*catalog.Catalog, error) {
	o, err := r.firstCatalog()
	if err != nil {
		return nil, err
	}
	return catalog.Parse(o.Payload)
}

// publishCatalog publishes and returns the recording's first catalog, before everything else.
func (r *Replayer) publishCatalog() (*recording.Object, error) {
	o, err := r.firstCatalog()
	if err != nil {
		return nil, err
	}
	c, err := catalog.Parse(o.Payload)
	if err == nil && c.Encrypted() && r.cfg.Live {
		return nil, fmt.Errorf("recording %s is encrypted; it cannot be played as if live", r.path)
	}
	r.align(o.Payload)
	return o, r.publish(r.tracks[o.Track.String()], o)
}

func (r *Replayer) firstCatalog() (*recording.Object, error) {
	reader, _, err := r.cfg.Source(r.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = reader.Close() }() // read-only
	return recording.FirstCatalog(r.path, reader, func(o *recording.Object) bool {
		t := r.tracks[o.Track.String()]
		return t != nil && t.catalog
	})
}

// awaitViewer waits until a media track has a subscriber, and a moment longer for other
// subscriptions.
func (r *Replayer) awaitViewer(ctx context.Context) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	settle := 0
	for settle < 15 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
		if settle > 0 || slices.ContainsFunc(r.list(), func(t *track) bool { return !t.catalog && t.Viewers() > 0 }) {
			settle++
		}
	}
	return true
}

func (r *Replayer) list() []*track {
	list := make([]*track, 0, len(r.tracks))
	for _, t := range r.tracks {
		list = append(list, t)
	}
	return list
}

// readAhead is the number of objects read in advance.
const readAhead = 64

// play publishes the recording once and returns its length. It skips first, which was already
// published.
func (r *Replayer) play(
	ctx context.Context,
	began time.Time,
	first *recording.Object,
) (length time.Duration, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	length = r.Info.Duration()
	reader, _, err := r.cfg.Source(r.path)
	if err != nil {
		return 0, err
	}
	objects := make(chan recording.Object, readAhead)
	done := make(chan struct{})
	defer func() {
		stop()
		<-done
	}()
	go func() {
		defer close(done)
		defer close(objects)
		defer func() { _ = reader.Close() }() // read-only
		for {
			o, err := reader.Next()
			if err == io.EOF {
				return
			}
			if err != nil {
				r.log.Warn("part of the recording skipped", "err", err)
				continue
			}
			select {
			case objects <- o:
			case <-ctx.Done():
				return
			}
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var swept time.Time
	var line *timeline.Line
	var last time.Duration
	for o := range objects {
		at := o.Arrival.Sub(r.Info.Start)
		if line == nil {
			line = timeline.New(at, 0)
		}
		place, jumped := line.Place(at)
		if jumped {
			r.log.Warn("the recorder's clock jumped; replay continues without a pause", "recording", r.path, "after", last, "to",
				o.Arrival)
			length = 0
		}
		last = place
		t := r.tracks[o.Track.String()]
		if t == nil {
			continue
		}
		if first != nil && t.catalog && o.Group == first.Group && o.ObjectID == first.ObjectID && !o.EndOnly {
			first = nil
			continue
		}
		timer.Reset(time.Until(began.Add(r.scale(place))))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		r.at.Store(int64(at))
		if err := r.publish(t, &o); err != nil {
			r.log.Warn("object not replayed", "track", o.Track.String(), "group", o.Group, "subgroup", o.Subgroup,
				"object", o.ObjectID, "err", err)
		}
		if o.Arrival.Sub(swept) > time.Second {
			swept = o.Arrival
			r.endSubgroups(func(t *track, s subgroup, f *feed) bool {
				return s.group < t.newestGroup && swept.Sub(f.last) > unendedFor
			})
		}
	}
	return cmp.Or(length, last), ctx.Err()
}

// unendedFor is the time after its last object at which a subgroup without a recorded end is closed,
// provided that a later group has arrived.
const unendedFor = 2 * time.Second

// resetAfter gives the peer time to receive the data before a reset.
const resetAfter = 200 * time.Millisecond

// publish publishes one object, or the end of a subgroup, now.
func (r *Replayer) publish(t *track, o *recording.Object) error {
	if r.cfg.Into != nil && t.aligned && !r.based {
		r.based = true
		for _, x := range r.tracks {
			if x.aligned {
				x.offset = r.cfg.Into.FirstGroup - o.Group
			}
		}
	}
	if !t.some {
		t.low, t.high, t.some = o.Group, o.Group, true
	}
	t.low, t.high = min(t.low, o.Group), max(t.high, o.Group)
	group := o.Group + t.offset
	t.newestGroup = max(t.newestGroup, group)
	if !o.EndOnly {
		r.objects.Add(1)
	}
	if r.cfg.Live && !t.catalog {
		t.stamps.renew(group, o.Payload, r.now)
		r.shift.renew(o, int(r.pass.Load()), r.now)
	}
	if err := keepGroup(o, group); err != nil {
		return err
	}
	if o.Forwarding == recording.Datagram {
		t.SendDatagram(moqt.Datagram{
			Group: group, Object: o.ObjectID, Priority: o.Priority, EndOfGroup: o.EndOfGroup,
			Properties: o.Properties, Status: wire.ObjectStatus(o.Status), Payload: o.Payload,
		})
		return nil
	}
	key := subgroup{group, o.Subgroup}
	f := t.feeds[key]
	if f == nil {
		if o.EndOnly {
			return nil // its subgroup ended before the recording began
		}
		x, err := t.OpenSubgroup(wire.SubgroupHeader{
			Group: group, Subgroup: o.Subgroup, Mode: wire.SubgroupIDExplicit, Priority: o.Priority,
			HasProperties: true, EndOfGroup: o.EndOfGroup, FirstObject: o.FirstObject,
		})
		if err != nil {
			return err
		}
		f = &feed{Feed: x}
		t.feeds[key] = f
	}
	f.last = o.Arrival
	if !o.EndOnly {
		err := f.WriteObject(
			moqt.Object{ID: o.ObjectID, Properties: o.Properties, Status: wire.ObjectStatus(o.Status)},
			o.Payload,
		)
		if err != nil {
			return err
		}
	}
	switch o.End {
	case recording.EndFIN:
		delete(t.feeds, key)
		return f.Close()
	case recording.EndReset:
		delete(t.feeds, key)
		time.AfterFunc(resetAfter, func() { f.Reset(wire.StreamDeliveryTimeout) })
	}
	return nil
}

// keepGroup adds the recorded group to an encrypted object that is sent in another.
func keepGroup(o *recording.Object, group uint64) (err error) {
	if group != o.Group && secureobjects.Sealed(o.Properties) {
		o.Properties, err = secureobjects.WithOriginalGroup(o.Properties, o.Group)
	}
	return err
}

// endSubgroups ends the open subgroups selected by which.
func (r *Replayer) endSubgroups(which func(*track, subgroup, *feed) bool) {
	for _, t := range r.tracks {
		for key, f := range t.feeds {
			if which(t, key, f) {
				delete(t.feeds, key)
				_ = f.Close()
			}
		}
	}
}

// Serve offers the tracks over one connection until the connection or the replay ends or ctx is
// done. The caller closes over at the end of the replay; Serve then returns nil once everything has
// been sent. Errors that reconnecting cannot fix are marked with connect.Final.
func (r *Replayer) Serve(ctx context.Context, s *moqt.Session, over <-chan struct{}) error {
	if r.cfg.Live {
		go r.followClock(s)
	}
	ns, err := s.PublishNamespace(ctx, r.cfg.Namespace)
	if e := (*moqt.RequestError)(nil); errors.As(err, &e) {
		return connect.Final(fmt.Errorf("replay: the relay refused the session: %w", err))
	}
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.Context().Done():
		return s.Err()
	case <-ns.Done():
		return cmp.Or(ns.Err(), errors.New("replay: the relay revoked the session"))
	case <-over:
	}
	return r.flush(ctx, s)
}

// flush waits until no viewers are left and no more data is sent to the relay, at most ten seconds.
func (r *Replayer) flush(ctx context.Context, s *moqt.Session) error {
	const step, calm = 50 * time.Millisecond, 6
	sent, still := uint64(0), 0
	for range 200 {
		select {
		case <-time.After(step):
		case <-ctx.Done():
			return ctx.Err()
		case <-s.Context().Done():
			return s.Err()
		}
		busy := slices.ContainsFunc(r.list(), func(t *track) bool { return t.Viewers() > 0 })
		if now := s.Stats().BytesSent; busy || now != sent {
			sent, still = now, 0
			continue
		}
		if still++; still == calm {
			break
		}
	}
	return nil
}
