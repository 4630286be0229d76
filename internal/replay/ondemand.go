package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/loc"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/pointcloud"
	"holocast/internal/recording"
)

// OnDemandField is the namespace field, after those of the session, under which the recording's
// tracks are offered on demand (docs/spec/replay.md). Viewers FETCH from them at their own pace,
// independently of the replay and of each other.
const OnDemandField = "recording"

// cachedChunks is the number of cached chunks. Viewers at the same position share them.
const cachedChunks = 4

// onDemand answers FETCHes from a recording, which it opens on the first request.
type onDemand struct {
	r      *Replayer
	ns     moqt.Namespace
	ctx    context.Context
	stop   context.CancelFunc
	opened sync.Once

	serving atomic.Int64 // FETCHes

	tracks map[string]*pastTrack // by full name; set once

	mu     sync.Mutex
	reader recording.Source // nil when closed
	cache  []chunk          // newest last
}

type chunk struct {
	offset  int64
	objects []recording.Object
}

// pastTrack is a recorded track offered on demand. Its groups have new IDs: their media times in
// milliseconds, or the next free ID.
type pastTrack struct {
	*origin.Track // accepts subscriptions, without sending on them
	recorded      wire.TrackName
	groups        []pastGroup // ascending
	largest       moqt.Location
}

type pastGroup struct {
	id, recorded      uint64
	at                time.Duration // media time: at first, the arrival
	captured          time.Time     // of the first object; zero if unknown
	smallest, largest uint64        // object IDs
	chunks            []int64       // their offsets
}

func newOnDemand(r *Replayer) *onDemand {
	o := &onDemand{r: r, ns: append(slices.Clone(r.cfg.Namespace), OnDemandField)}
	o.ctx, o.stop = context.WithCancel(context.Background())
	return o
}

// close ends all reads permanently.
func (o *onDemand) close() {
	o.stop()
	o.opened.Do(func() {})
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reader != nil {
		_ = o.reader.Close() // read-only
	}
	o.reader, o.cache = nil, nil
}

// handler adds the recording's tracks to h.
func (o *onDemand) handler(h moqt.Handler) moqt.Handler {
	subscribe, fetch, status := h.Subscribe, h.Fetch, h.TrackStatus
	h.Subscribe = func(r *moqt.SubscribeRequest) {
		o.find(r.Track)
		subscribe(r)
	}
	h.TrackStatus = func(r *moqt.TrackStatusRequest) {
		o.find(r.Track)
		status(r)
	}
	h.Fetch = func(r *moqt.FetchRequest) {
		t := o.find(r.Track)
		if t == nil {
			fetch(r)
			return
		}
		o.serving.Add(1)
		defer o.serving.Add(-1)
		if err := o.serve(t, r); err != nil && r.Context().Err() == nil {
			o.r.log.Debug("fetch of the recording failed", "track", r.Track.String(), "err", err)
		}
	}
	return h
}

// find returns a track of the recording, or nil.
func (o *onDemand) find(name moqt.TrackName) *pastTrack {
	if !name.Namespace.HasPrefix(o.ns) {
		return nil
	}
	o.opened.Do(func() {
		if err := o.index(); err != nil && o.ctx.Err() == nil {
			o.r.log.Warn("the recording cannot be offered on demand; viewers cannot seek", "err", err)
		}
	})
	return o.tracks[name.String()]
}

// index locates the groups of the recording and publishes a catalog of its tracks.
func (o *onDemand) index() error {
	reader, _, err := o.r.cfg.Source(o.r.path)
	if err != nil {
		return err
	}
	x := newIndexer(o.r)
	err = reader.Chunks(func(offset int64, objects []recording.Object) error {
		for i := range objects {
			x.add(offset, &objects[i])
		}
		return o.ctx.Err()
	})
	x.retime()
	x.align()
	if err == nil && x.catalog == nil {
		err = errors.New("it has no readable catalog")
	}
	if err != nil {
		return errors.Join(err, reader.Close())
	}
	o.mu.Lock()
	o.reader = reader
	o.mu.Unlock()
	o.tracks = map[string]*pastTrack{}
	out := catalog.Catalog{
		Version: catalog.Version, InitDataList: x.catalog.InitDataList, Sealed: x.catalog.Sealed,
	}
	for _, t := range x.catalog.Tracks {
		p := x.track(t)
		if p == nil {
			continue
		}
		name := moqt.TrackName{Namespace: o.ns, Name: t.Name}
		p.Track = origin.NewTrack(name, x.properties[p.recorded.String()], o.r.cfg.Limits)
		p.RaiseLargest(p.largest)
		o.tracks[name.String()] = p
		o.r.set.Add(p.Track)
		t.IsLive, t.TargetLatency, t.Buffers = false, 0, nil
		t.TrackDuration = max(1, o.r.Info.Duration().Milliseconds(), int64(p.largest.Group))
		t.Template = catalog.Template{
			MediaStep: 1, Step: [2]uint64{1, 0}, Wallclock: float64(x.start.UnixMilli()), WallclockStep: 1,
		}
		out.Tracks = append(out.Tracks, t)
	}
	b, err := out.Marshal()
	if err != nil {
		return err
	}
	t := origin.NewTrack(moqt.TrackName{Namespace: o.ns, Name: catalog.TrackName}, nil, o.r.cfg.Limits)
	o.r.set.Add(t)
	return t.WriteObject(wire.SubgroupHeader{Mode: wire.SubgroupIDExplicit, FirstObject: true}, moqt.Object{}, b)
}

// indexer collects the data for index.
type indexer struct {
	r          *Replayer
	reader     catalog.Reader
	catalog    *catalog.Catalog // the last with tracks
	groups     map[string]map[uint64]*pastGroup
	properties map[string]moqt.Properties
	start      time.Time // capture time at the start of the recording
}

func newIndexer(r *Replayer) *indexer {
	x := &indexer{r: r, groups: map[string]map[uint64]*pastGroup{}, properties: map[string]moqt.Properties{}}
	for key, t := range r.tracks {
		x.groups[key], x.properties[key] = map[uint64]*pastGroup{}, t.Properties()
	}
	return x
}

func (x *indexer) add(offset int64, o *recording.Object) {
	key := o.Track.String()
	groups := x.groups[key]
	if groups == nil || o.EndOnly || wire.ObjectStatus(o.Status) != wire.StatusNormal {
		return
	}
	if x.r.tracks[key].catalog {
		x.addCatalog(o)
		return
	}
	g := groups[o.Group]
	if g == nil {
		g = &pastGroup{recorded: o.Group, at: o.Arrival.Sub(x.r.Info.Start), smallest: math.MaxUint64}
		groups[o.Group] = g
	}
	if o.ObjectID < g.smallest {
		g.captured, _ = captureTime(o)
	}
	g.smallest = min(g.smallest, o.ObjectID)
	g.at = min(g.at, o.Arrival.Sub(x.r.Info.Start))
	g.largest = max(g.largest, o.ObjectID)
	if n := len(g.chunks); n == 0 || g.chunks[n-1] != offset {
		g.chunks = append(g.chunks, offset)
	}
}

// maxAstray bounds the difference between a group's delay and the usual one. Beyond it, the capture
// clock was set.
const maxAstray = time.Second

// retime replaces arrivals by capture times, which keeps tracks in step despite different delays.
func (x *indexer) retime() {
	x.start = x.r.Info.Start
	var starts []time.Time
	each := func(do func(*pastGroup)) {
		for _, groups := range x.groups {
			for _, g := range groups {
				if !g.captured.IsZero() {
					do(g)
				}
			}
		}
	}
	each(func(g *pastGroup) { starts = append(starts, g.captured.Add(-g.at)) })
	if len(starts) == 0 {
		return
	}
	slices.SortFunc(starts, time.Time.Compare)
	x.start = starts[len(starts)/2].Truncate(time.Millisecond)
	each(func(g *pastGroup) {
		if at := g.captured.Sub(x.start); (at - g.at).Abs() <= maxAstray {
			g.at = at
		}
	})
}

// captureTime returns the capture time of a point cloud, picture or audio packet.
func captureTime(o *recording.Object) (time.Time, bool) {
	if h, err := pointcloud.ParseHeader(o.Payload); err == nil {
		return time.UnixMicro(int64(h.CaptureTime)), true
	}
	p, err := loc.Parse(o.Properties)
	return p.Timestamp, err == nil
}

// align gives corresponding groups of several tracks one time, the first of their media, and
// therefore one ID.
func (x *indexer) align() {
	if x.catalog == nil {
		return
	}
	first := map[uint64]time.Duration{}
	each := func(do func(name string, recorded uint64, g *pastGroup)) {
		for _, name := range x.catalog.Aligned() {
			for recorded, g := range x.groups[wire.TrackName{Namespace: x.r.root, Name: name}.String()] {
				do(name, recorded, g)
			}
		}
	}
	each(func(name string, recorded uint64, g *pastGroup) {
		if at, ok := first[recorded]; name != catalog.RatesTrack && (!ok || g.at < at) {
			first[recorded] = g.at
		}
	})
	each(func(_ string, recorded uint64, g *pastGroup) {
		if at, ok := first[recorded]; ok {
			g.at = at
		}
	})
}

func (x *indexer) addCatalog(o *recording.Object) {
	c, err := x.reader.Read(o.Group, o.Payload, moqt.Properties(o.Properties), x.properties[o.Track.String()])
	if err == nil && len(c.Tracks) > 0 {
		x.catalog = c
	}
}

// track returns the recorded part of a track in the catalog, or nil.
func (x *indexer) track(t catalog.Track) *pastTrack {
	switch t.Packaging {
	case catalog.PackagingEventTimeline:
		if t.EventType != catalog.RatesEventType {
			return nil // useless without the session's time
		}
	case catalog.PackagingMediaTimeline, catalog.PackagingCatalog, catalog.PackagingClock:
		return nil // likewise
	}
	name := wire.TrackName{Namespace: x.r.root, Name: t.Name}
	groups := x.groups[name.String()]
	if t.Namespace != "" || len(groups) == 0 {
		return nil
	}
	p := &pastTrack{recorded: name}
	next := uint64(0)
	for _, recorded := range slices.Sorted(maps.Keys(groups)) {
		g := groups[recorded]
		g.id = max(next, uint64(max(0, g.at.Milliseconds())))
		next = g.id + 1
		p.groups = append(p.groups, *g)
	}
	last := p.groups[len(p.groups)-1]
	p.largest = moqt.Location{Group: last.id, Object: last.largest}
	return p
}

// serve answers a FETCH.
func (o *onDemand) serve(t *pastTrack, r *moqt.FetchRequest) error {
	r.Resolve(t.largest)
	if t.largest.Less(r.Start) {
		err := &moqt.RequestError{Code: wire.RequestInvalidRange, Reason: "the recording ends before the range"}
		return errors.Join(err, r.RejectWith(err))
	}
	end, last := r.End, moqt.Location{Group: r.End.Group, Object: r.End.Object - 1}
	if end.Object == 0 {
		last.Object = math.MaxUint64
	}
	if t.largest.Less(last) {
		last, end = t.largest, moqt.Location{Group: t.largest.Group, Object: t.largest.Object + 1}
	}
	groups := slices.DeleteFunc(slices.Clone(t.groups),
		func(g pastGroup) bool { return g.id < r.Start.Group || g.id > last.Group })
	if r.Order == wire.Descending {
		slices.Reverse(groups)
	}
	w, err := r.Accept(end, last == t.largest, t.Properties())
	if err != nil {
		return err
	}
	for i := range groups {
		if err := o.write(w, t, &groups[i], r.Start, last); err != nil {
			w.Reset(wire.StreamInternalError)
			return err
		}
	}
	return w.Close()
}

// write writes objects first to last of a group, by ID.
func (o *onDemand) write(w *moqt.FetchWriter, t *pastTrack, g *pastGroup, first, last moqt.Location) error {
	var list []recording.Object
	for _, offset := range g.chunks {
		objects, err := o.chunk(offset)
		if err != nil {
			return err
		}
		for i := range objects {
			x := &objects[i]
			l := moqt.Location{Group: g.id, Object: x.ObjectID}
			if x.Group == g.recorded && x.Track.Name == t.recorded.Name &&
				slices.Equal(x.Track.Namespace, t.recorded.Namespace) && !x.EndOnly &&
				wire.ObjectStatus(x.Status) == wire.StatusNormal && !l.Less(first) && !last.Less(l) {
				list = append(list, *x)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b recording.Object) int { return cmp.Compare(a.ObjectID, b.ObjectID) })
	list = slices.CompactFunc(list, func(a, b recording.Object) bool { return a.ObjectID == b.ObjectID })
	for i := range list {
		x := &list[i]
		if err := keepGroup(x, g.id); err != nil {
			return err
		}
		if err := w.WriteObject(wire.FetchObject{
			Group: g.id, Object: x.ObjectID, Subgroup: x.Subgroup, Datagram: x.Forwarding == recording.Datagram,
			Priority: x.Priority, Properties: x.Properties,
		}, x.Payload); err != nil {
			return err
		}
	}
	return nil
}

// chunk returns a chunk of the recording, from the cache or the file.
func (o *onDemand) chunk(offset int64) ([]recording.Object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, c := range o.cache {
		if c.offset == offset {
			o.cache = append(slices.Delete(o.cache, i, i+1), c)
			return c.objects, nil
		}
	}
	if o.reader == nil {
		return nil, fmt.Errorf("recording %s: the replay is over", o.r.path)
	}
	objects, err := o.reader.ReadChunk(offset)
	if err != nil {
		return nil, err
	}
	if len(o.cache) == cachedChunks {
		o.cache = slices.Delete(o.cache, 0, 1)
	}
	o.cache = append(o.cache, chunk{offset, objects})
	return objects, nil
}
