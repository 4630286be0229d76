package points

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"holocast/capture-server/publish"
	"holocast/internal/camera"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/pointcloud"
	"holocast/internal/pointvideo"
)

const (
	// keyInterval is the length of a group. A viewer that lost an object and cannot request a group
	// waits at most this long.
	keyInterval = time.Second
	// renewInterval is the minimum time between groups that viewers request.
	renewInterval = 250 * time.Millisecond
	// videoCacheAge is the age at which a group is evicted, and its streams are reset. Its last frame
	// is younger by keyInterval.
	videoCacheAge = 3 * keyInterval
	// announceInterval is the time between updates of the catalog's depth errors. The relative change
	// that causes an update is large, because all viewers receive the whole catalog again.
	announceInterval  = time.Second
	announceSmoothing = 4 // intervals
	announceChange    = 0.25
	// golden is multiplied by the camera's number, modulo 1, to spread any number of cameras evenly
	// over keyInterval.
	golden = math.Phi - 1
)

// video is the state of a track in layout W. Its frames are encoded only while watched. Each group
// has one subgroup and starts with a key frame.
type video struct {
	track   *origin.Track
	cfg     pointvideo.Config
	coarser int         // see rate.next
	renew   atomic.Bool // a viewer requested a group
	rate    *rate       // nil: constant quality
	// stagger shortens the first group. It spreads the cameras' key frames, which are large.
	stagger time.Duration

	mu      sync.Mutex
	encoder *pointvideo.Encoder // nil before the first frame
	feed    *origin.Feed        // of the current group, or nil
	group   uint64              // next group
	object  uint64              // next object in the group
	began   time.Time           // when the group began
	streams rateStreams
	// smoothed is the depth error over the last seconds, and announced the catalog's; 0 = unknown. mm.
	smoothed, announced float64
}

// newVideo adds the track. It opens an encoder to check that one works, then closes it to save
// memory.
func newVideo(l *pipeline, t publish.Track, lens camera.Intrinsics, coarser int) (*video, error) {
	cfg := pointvideo.Config{
		Width: lens.Width, Height: lens.Height,
		DepthQP: pointvideo.DefaultQP + coarser, ColorQP: pointvideo.DefaultQP + coarser,
	}
	e, err := pointvideo.NewEncoder(cfg)
	if err != nil {
		return nil, err
	}
	e.Close()
	t.Properties = append(t.Properties, wire.KeyValue{Type: wire.PropertyDynamicGroups, Int: 1})
	t.CacheAge = videoCacheAge
	v := &video{
		cfg: cfg, coarser: coarser, track: l.m.session.NewTrack(t), group: publish.FirstGroup(), rate: l.m.rate,
	}
	_, turn := math.Modf(float64(l.number) * golden)
	v.stagger = time.Duration(turn * float64(keyInterval))
	v.track.NewGroup = v.request
	return v, nil
}

// request asks for a new group, unless the current group is already the requested one or a later
// one (§10.2.14).
func (v *video) request(group uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if group == 0 || group >= v.group {
		v.renew.Store(true)
	}
}

// publish encodes a frame and writes it to the current group, or to a new one if that is due.
func (v *video) publish(h pointcloud.Header, g *pointcloud.Grid) (size int, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.encoder == nil {
		v.encoder, err = pointvideo.NewEncoder(v.cfg)
		if err != nil {
			return 0, err
		}
	}
	now := time.Now()
	age := now.Sub(v.began)
	key := v.feed == nil || age >= keyInterval || age >= renewInterval && v.renew.Load()
	payload, err := v.encode(h, g, key, now)
	if err != nil {
		v.end()
		return 0, err
	}
	if key {
		v.began = now
		if v.feed == nil {
			v.began = now.Add(-v.stagger)
		}
		v.end()
		v.renew.Store(false)
		if v.feed, err = v.open(); err != nil {
			return 0, err
		}
	}
	if err := v.feed.WriteObject(moqt.Object{ID: v.object}, payload); err != nil {
		v.end()
		return 0, err
	}
	v.object++
	return len(payload), nil
}

// encode encodes a frame within the session's bit rate. It allocates the result, which the track
// keeps.
func (v *video) encode(h pointcloud.Header, g *pointcloud.Grid, key bool, now time.Time) ([]byte, error) {
	if v.rate == nil {
		return v.encoder.Encode(nil, h, g, key)
	}
	depth, color := v.rate.next(&v.streams, v.coarser, now, key)
	v.encoder.SetQP(depth, color)
	payload, err := v.encoder.Encode(nil, h, g, key)
	if err == nil {
		v.rate.sent(&v.streams, now, key, [2]int{depth, color}, v.encoder.Sizes())
	}
	return payload, err
}

// open starts a group.
func (v *video) open() (*origin.Feed, error) {
	h := wire.SubgroupHeader{
		Group: v.group, Mode: wire.SubgroupIDExplicit, Priority: priorityDescription, EndOfGroup: true, FirstObject: true,
	}
	v.group++
	v.object = 0
	return v.track.OpenSubgroup(h)
}

// end ends the current group.
func (v *video) end() {
	if v.feed != nil {
		_ = v.feed.Close() // the cache may have evicted the group
		v.feed = nil
	}
}

// rest ends the current group and adds an empty one, so that the next viewer does not start with old
// frames.
func (v *video) rest() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.feed == nil {
		return
	}
	v.end()
	if v.rate != nil {
		v.rate.leave(&v.streams)
	}
	if f, err := v.open(); err == nil {
		_ = f.WriteObject(moqt.Object{Status: wire.StatusEndOfGroup}, nil) // fails only after the track has ended
		_ = f.Close()
	}
}

// depthError returns pointvideo.Encoder.DepthError, or 0 while the track is unwatched.
func (v *video) depthError() float64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.measure()
}

// measure is depthError for a caller that holds v.mu.
func (v *video) measure() float64 {
	if v.encoder == nil || v.feed == nil {
		return 0
	}
	return v.encoder.DepthError()
}

// announce updates the depth error for the catalog and reports whether it changed by more than
// announceChange. While the track is unwatched, the last one stays.
func (v *video) announce() (changed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch e := v.measure(); {
	case e == 0:
		v.smoothed = 0
		return false
	case v.smoothed == 0:
		v.smoothed = e
	default:
		v.smoothed += (e - v.smoothed) / announceSmoothing
	}
	if math.Abs(v.smoothed-v.announced) <= announceChange*v.announced {
		return false
	}
	v.announced = v.smoothed
	return true
}

// announcedError returns the depth error for the catalog, or nil if it is unknown.
func (v *video) announcedError() *float64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.announced == 0 {
		return nil
	}
	return new(math.Round(100*v.announced) / 100)
}

// close frees the encoder.
func (v *video) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.end()
	if v.encoder != nil {
		v.encoder.Close()
		v.encoder = nil
	}
}
