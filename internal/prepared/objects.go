package prepared

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/cmaf"
	"holocast/internal/loc"
	"holocast/internal/moqt/wire"
	"holocast/internal/recording"
	"holocast/internal/tileencoder"
)

// root is the namespace of a Reader's objects.
var root = []string{"prepared"}

// Reader reads prepared video as if it were the recording of a session. It returns the same
// objects, timed as a live encoder would send them. Rates come one GoP ahead.
type Reader struct {
	Info   recording.Info
	s      *Sphere
	next   int // next GoP
	queued []recording.Object
}

// OpenSource opens a folder, or the recording of a session.
func OpenSource(path string) (recording.Source, recording.Info, error) {
	if !IsFolder(path) {
		return recording.OpenSource(path)
	}
	r, err := NewReader(path)
	if err != nil {
		return nil, recording.Info{}, err
	}
	return r, r.Info, nil
}

// NewReader opens a folder.
func NewReader(dir string) (*Reader, error) {
	s, err := Open(dir)
	if err != nil {
		return nil, err
	}
	r := &Reader{s: s}
	end := 0.0
	for _, f := range s.tracks {
		r.Info.Tracks = append(r.Info.Tracks,
			recording.TrackInfo{Track: track(f.Name), Properties: properties(f.Name, f.priority)})
		if f.Name == catalog.VideoTrack {
			last := f.fragments[len(f.fragments)-1]
			samples, err := f.list(len(f.fragments) - 1)
			if err != nil {
				_ = s.Close() // opened for reading only
				return nil, err
			}
			for _, x := range samples {
				end += float64(x.Duration) / f.timescale
			}
			end += last.begin
		}
	}
	r.Info.Tracks = append(
		r.Info.Tracks,
		recording.TrackInfo{Track: track(catalog.TrackName), Properties: nil},
		recording.TrackInfo{
			Track:      track(catalog.RatesTrack),
			Properties: properties(catalog.RatesTrack, tileencoder.PriorityRates),
		},
	)
	r.Info.Start = s.Start
	r.Info.End = s.Start.Add(seconds(end - 1/s.Video.Framerate))
	return r, nil
}

func track(name string) wire.TrackName { return wire.TrackName{Namespace: root, Name: name} }

func properties(name string, priority uint8) []byte {
	ms := uint64(tileencoder.DefaultLatency.Milliseconds())
	if name == catalog.VideoTrack { // one GoP (a second) longer, see docs/spec/tiles.md
		ms += 1000
	}
	return wire.AppendKeyValues(
		nil,
		wire.KeyValue{Type: wire.PropertyPublisherPriority, Int: uint64(priority)},
		wire.KeyValue{
			Type: wire.PropertyObjectDeliveryTimeout,
			Int:  ms,
		},
		wire.KeyValue{Type: wire.PropertySubgroupDeliveryTimeout, Int: ms},
	)
}

func seconds(v float64) time.Duration { return time.Duration(v*1e9 + 0.5) }

// Close closes the files.
func (r *Reader) Close() error { return r.s.Close() }

// Next returns the next object in time order, or io.EOF at the end.
func (r *Reader) Next() (recording.Object, error) {
	for len(r.queued) == 0 {
		if r.next == len(r.s.Rates) {
			return recording.Object{}, io.EOF
		}
		objects, err := r.s.gop(r.next, true)
		r.next++
		if err != nil {
			return recording.Object{}, err
		}
		r.queued = objects
	}
	o := r.queued[0]
	r.queued = r.queued[1:]
	return o, nil
}

// Chunks calls do with the objects of each GoP; media objects have no payloads.
func (r *Reader) Chunks(do func(offset int64, objects []recording.Object) error) error {
	for g := range r.s.Rates {
		objects, err := r.s.gop(g, false)
		if err != nil {
			return err
		}
		if err := do(int64(g), objects); err != nil {
			return err
		}
	}
	return nil
}

// ReadChunk returns the objects of the GoP that Chunks passed with this offset.
func (r *Reader) ReadChunk(offset int64) ([]recording.Object, error) {
	return r.s.gop(int(offset), true)
}

// firstGroup returns the first GoP's group ID, as if a publisher had started at s.Start.
func (s *Sphere) firstGroup() uint64 { return uint64(s.Start.UnixMilli()) }

// gop returns the objects of a GoP in send order: catalog, rates of the next GoP, then media.
func (s *Sphere) gop(g int, payload bool) ([]recording.Object, error) {
	group := s.firstGroup() + uint64(g)
	video := s.tracks[slices.IndexFunc(s.tracks, func(f *file) bool { return f.Name == catalog.VideoTrack })]
	begin := video.fragments[g].begin
	end := 1e18
	if g+1 < len(video.fragments) {
		end = video.fragments[g+1].begin
	}
	at := s.Start.Add(seconds(begin))
	var out []recording.Object
	single := func(name string, group uint64, priority uint8, payload []byte) {
		out = append(out, recording.Object{
			Track: track(name), Group: group, Priority: priority, Payload: payload, EndOfGroup: true,
			FirstObject: true, End: recording.EndFIN, Arrival: at,
		})
	}
	if g == 0 {
		b, err := s.live().Marshal()
		if err != nil {
			return nil, err
		}
		single(catalog.TrackName, group, tileencoder.PriorityRates, b)
	}
	for n := g; n <= g+1 && n < len(s.Rates); n++ {
		if n == g && g > 0 {
			continue // sent with the previous GoP
		}
		b, err := json.Marshal(s.Rates[n : n+1])
		if err != nil {
			return nil, err
		}
		single(catalog.RatesTrack, s.firstGroup()+uint64(n), tileencoder.PriorityRates, b)
	}
	media := len(out)
	for _, f := range s.tracks {
		var err error
		if f.Role == catalog.RoleAudio {
			out, err = s.sound(out, f, group, begin, end, payload)
		} else {
			out, err = s.pictures(out, f, g, group, payload)
		}
		if err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(out[media:], func(a, b recording.Object) int { return a.Arrival.Compare(b.Arrival) })
	return out, nil
}

// pictures appends a track's frames of a GoP.
func (s *Sphere) pictures(
	out []recording.Object,
	f *file,
	g int,
	group uint64,
	payload bool,
) ([]recording.Object, error) {
	samples, err := f.samples(g, payload)
	if err != nil {
		return nil, err
	}
	return s.objects(out, f, group, f.fragments[g].begin, samples), nil
}

// sound appends the packets of the fragments that start within a GoP. Fragments correspond to GoPs,
// but their boundaries may differ slightly.
func (s *Sphere) sound(
	out []recording.Object,
	f *file,
	group uint64,
	begin, end float64,
	payload bool,
) ([]recording.Object, error) {
	for i, x := range f.fragments {
		if x.begin >= end || x.begin < begin {
			continue
		}
		samples, err := f.samples(i, payload)
		if err != nil {
			return nil, err
		}
		out = s.objects(out, f, group, x.begin, samples)
	}
	return out, nil
}

// samples returns a fragment's samples, optionally with data.
func (f *file) samples(i int, data bool) ([]cmaf.Sample, error) {
	if data {
		return f.read(i)
	}
	return f.list(i)
}

func (s *Sphere) objects(
	out []recording.Object,
	f *file,
	group uint64,
	begin float64,
	samples []cmaf.Sample,
) []recording.Object {
	for i, x := range samples {
		at := s.Start.Add(seconds(begin))
		begin += float64(x.Duration) / f.timescale
		p := loc.Properties{Timestamp: at}
		if i == 0 {
			p.VideoConfig = f.config
		}
		o := recording.Object{
			Track: track(f.Name), Group: group, ObjectID: uint64(i), Priority: f.priority, Properties: p.Append(nil),
			EndOfGroup: true, FirstObject: i == 0, Payload: x.Data, Arrival: at,
		}
		if i == len(samples)-1 {
			o.End = recording.EndFIN
		}
		out = append(out, o)
	}
	return out
}

// live returns the catalog of a session that streams the sphere live.
func (s *Sphere) live() *catalog.Catalog {
	c := *s.Catalog
	c.Tracks = slices.Clone(c.Tracks)
	c.GeneratedAt = s.Start.UnixMilli()
	for i := range c.Tracks {
		t := &c.Tracks[i]
		t.IsLive, t.TrackDuration, t.Template = true, 0, catalog.Template{}
		if !strings.HasPrefix(t.Packaging, "event") {
			t.TargetLatency = float64(tileencoder.DefaultLatency.Milliseconds())
		}
	}
	return &c
}
