package player

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"holocast/internal/camera"
	"holocast/internal/catalog"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/parts"
	"holocast/internal/pointcloud"
)

// backlog is how many whole frames of a camera may wait for its decoder. What
// comes on top pushes out the oldest: the decoder is behind then, and the newest
// frame is what matters.
const backlog = 3

// history is how many groups back a feed knows whether it has shown them.
const history = 64

// feed is one camera: its track's objects become frames, frames are decoded by a
// goroutine of the feed's own, and the newest is kept.
type feed struct {
	p      *Player
	camera int
	queue  chan *frame
	free   chan []byte // buffers of objects that were decoded, to be read into again
	done   chan struct{}

	mu         sync.Mutex
	track      catalog.Track
	subscribed moqt.TrackName
	init       catalog.CameraInit
	at         camera.Transform // where the camera is now
	rays       camera.RayTable
	current    *frame               // being put together
	newest     uint64               // the largest group begun
	started    bool                 // newest is set
	past       map[uint64][256]bool // groups handed on, of the last history, and which of their descriptions came
	queued     int                  // frames in the queue or being decoded
	idle       *sync.Cond           // queued reached 0
	counters   counters
	sources    int             // subscriptions that are received
	receiver   *parts.Receiver // of the newest one
	parts      parts.Stats     // of those before
	run        int             // jumps so far

	picture sync.Mutex
	frame   pointcloud.Frame // the newest
	header  pointcloud.Header
	has     bool
	showed  int // jumps before it
}

// counters are what a feed did with what arrived.
type counters struct {
	partial      uint64 // frames shown without all their descriptions
	skipped      uint64 // frames not shown because the decoder was behind
	late         uint64 // descriptions that came after their frame was shown
	damaged      uint64 // objects or frames that could not be decoded
	reset        uint64 // subgroups that were reset before they arrived
	shown, whole uint64 // descriptions shown, and of those frames in all
}

// frame is the descriptions of one frame.
type frame struct {
	group    uint64
	header   pointcloud.Header // of the first object
	objects  [][]byte
	has      [256]bool // by description
	lost     int
	began    time.Time // the first byte of its first object
	arrived  time.Time // the last
	whole    time.Time // the last byte of its last object
	replayed bool
	own      bool // of a recording that this player plays by itself; it arrived when it was due
	run      int  // jumps before it
	late     bool // overtaken before anything of it had arrived
}

func newFeed(p *Player, camera int) (*feed, error) {
	dec, err := pointcloud.NewDecoder()
	if err != nil {
		return nil, err
	}
	f := &feed{p: p, camera: camera, queue: make(chan *frame, backlog), free: make(chan []byte, 4*backlog), done: make(chan struct{}), past: map[uint64][256]bool{}}
	f.idle = sync.NewCond(&f.mu)
	go f.decode(dec)
	return f, nil
}

func (f *feed) close() {
	close(f.queue)
	<-f.done
}

// configure tells the feed of its camera. It may be called again.
func (f *feed) configure(t catalog.Track, init catalog.CameraInit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l, _ := pointcloud.ParseLayout(t.Points.Layout); l.OnGrid() && (f.rays.X == nil || f.init.Grid != init.Grid) {
		f.rays = init.Grid.RayTable()
	}
	if t.InitRef == "" {
		init.Pose = camera.Identity
	}
	if f.track.Name == "" || f.init.Pose != init.Pose {
		f.at = init.Pose // else the catalog says nothing new, and a move stands
	}
	f.track, f.init = t, init
}

// move takes the camera's pose from the pose track.
func (f *feed) move(pose camera.Transform) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = pose
}

func (f *feed) timeout(override time.Duration) time.Duration {
	if override > 0 {
		return override
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Duration(f.track.Points.DeliveryTimeout) * time.Millisecond
}

// maxObject bounds an object of the track, bytes: 12 bytes a point are more than
// any layout takes.
func (f *feed) maxObject() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return 12*f.track.Points.MaxPoints + 1<<16
}

// receive takes what a subscription brings until it ends, and returns why. It calls came
// whenever an object was not fetched. The frames of two subscriptions at a time are the same.
func (f *feed) receive(ctx context.Context, sub *moqt.Subscription, came func()) error {
	f.mu.Lock()
	if f.sources++; f.sources == 1 {
		f.current, f.started = nil, false
		clear(f.past)
	}
	f.subscribed = sub.Track()
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.sources--
	}()
	replay, _ := sub.Properties.Int(connect.ReplayProperty)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	limit := f.maxObject()
	datagrams := f.receiveParts(ctx, &wg, sub, limit, replay != 0, came)
	if sub.Largest != nil {
		wg.Go(func() {
			err := fetch(ctx, sub, limit, func(o wire.FetchObject, payload []byte) error {
				if o.Datagram {
					datagrams.Add(parts.Fetched(o, payload), true)
					return nil
				}
				now := time.Now()
				f.p.meter.Received(len(payload), now)
				f.add(o.Group, payload, now, now, replay != 0, true)
				return nil
			})
			if err != nil && ctx.Err() == nil {
				f.p.log.Debug("the newest group cannot be fetched", "track", sub.Track().String(), "err", err)
			}
		})
	}
	for {
		r, err := sub.AcceptSubgroup(ctx)
		if err != nil {
			if !connect.Ended(err) {
				sub.Cancel() // so that readers of open subgroups return
			}
			return err
		}
		wg.Go(func() { f.read(r, limit, replay != 0, came) })
	}
}

// receiveParts begins to take what comes in datagrams.
func (f *feed) receiveParts(ctx context.Context, wg *sync.WaitGroup, sub *moqt.Subscription, limit int, replayed bool, came func()) *parts.Receiver {
	r := parts.NewReceiver(ctx, sub, parts.Limits{MaxPayload: limit, Timeout: f.timeout(f.p.cfg.DeliveryTimeout)}, func(p parts.Payload) {
		now := time.Now()
		f.p.meter.Received(len(p.Bytes), now)
		f.add(p.Group, p.Bytes, now, now, replayed, false)
		came()
	})
	f.mu.Lock()
	f.receiver = r
	inDatagrams := f.track.Points.Delivery == catalog.DeliveryDatagram
	f.mu.Unlock()
	if inDatagrams {
		r.Joining()
	}
	wg.Go(func() {
		_ = r.Run() // ends with the subscription
		sum := r.Stats()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.parts.Add(sum)
		if f.receiver == r {
			f.receiver = nil
		}
	})
	return r
}

// partStats are the counters of what came in datagrams.
func (f *feed) partStats() (s parts.Stats) {
	f.mu.Lock()
	s, r := f.parts, f.receiver
	f.mu.Unlock()
	if r != nil { // its lock is taken before f's
		s.Add(r.Stats())
	}
	return s
}

// read takes one subgroup.
func (f *feed) read(r *moqt.SubgroupReader, limit int, replayed bool, came func()) {
	for {
		began := time.Now()
		o, err := r.NextObject()
		if err == nil && o.Status != wire.StatusNormal {
			continue
		}
		if err == nil && o.PayloadLength > uint64(limit) {
			r.Cancel(wire.StreamCancelled)
			f.mu.Lock()
			f.counters.damaged++
			f.mu.Unlock()
			f.p.log.Debug("object", "camera", f.camera, "group", r.Group, "bytes", o.PayloadLength, "limit", limit)
			return
		}
		var payload []byte
		if err == nil {
			var buf []byte
			select {
			case buf = <-f.free:
			default:
			}
			payload, err = r.ReadPayload(buf, limit)
		}
		if err == nil {
			now := time.Now()
			f.p.meter.Received(len(payload), now)
			f.add(r.Group, payload, began, now, replayed, false)
			came()
			continue
		}
		if err == io.EOF {
			return
		}
		r.Cancel(wire.StreamCancelled)
		if e := (*moqt.StreamError)(nil); errors.As(err, &e) && e.Remote {
			f.lose(r.Group)
		}
		return
	}
}

// add takes one object, whose first byte arrived at began and whose last at at. Objects that
// were fetched are of no use any more when a later frame has begun.
func (f *feed) add(group uint64, payload []byte, began, at time.Time, replayed, fetched bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h, err := pointcloud.ParseHeader(payload)
	if err == nil && int(h.Camera) != f.camera {
		err = fmt.Errorf("camera %d in the frame's header", h.Camera)
	}
	if err != nil {
		f.counters.damaged++
		f.p.log.Debug("object", "camera", f.camera, "group", group, "err", err)
		return
	}
	if came, shown := f.past[group]; shown {
		if !came[h.Description] { // else it came over the other subscription
			came[h.Description] = true
			f.past[group] = came
			f.counters.late++
		}
		return
	}
	if f.started && group < f.newest {
		if fetched {
			return
		}
		// A frame of which nothing had arrived when it was overtaken.
		late := &frame{group: group, began: began, arrived: at, whole: at, replayed: replayed, late: true}
		late.take(h, payload)
		f.hand(late)
		return
	}
	if f.current != nil && f.current.group != group {
		f.hand(f.current)
		f.current = nil
	}
	f.newest, f.started = group, true
	if f.current == nil {
		f.current = &frame{group: group, began: began, arrived: at, replayed: replayed}
	}
	if !f.current.take(h, payload) {
		return
	}
	f.current.whole = at
	f.complete()
}

// take adds an object to the frame, once.
func (fr *frame) take(h pointcloud.Header, payload []byte) bool {
	if len(fr.objects) == 0 {
		fr.header = h
	}
	if fr.has[h.Description] {
		return false
	}
	fr.has[h.Description] = true
	fr.objects = append(fr.objects, payload)
	return true
}

// lose notes that a subgroup of a frame was reset: nothing more of it will come.
func (f *feed) lose(group uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counters.reset++
	if f.current != nil && f.current.group == group {
		f.current.lost++
		f.complete()
	}
}

// complete hands the current frame on when all of it that will come is here. f.mu
// is held.
func (f *feed) complete() {
	c := f.current
	if n := len(c.objects); n > 0 && n+c.lost >= int(c.header.Descriptions) {
		f.hand(c)
		f.current = nil
	}
}

// name is the camera's track in the session, and in its recording.
func (f *feed) name() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.track.Name
}

func (f *feed) damaged() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counters.damaged++
}

// handRecorded hands on a frame of the recording that is due now, as are so many before it that
// are not shown.
func (f *feed) handRecorded(fr *frame, skipped int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counters.skipped += uint64(skipped)
	fr.arrived = time.Now()
	f.hand(fr)
}

// jump forgets what was received: what comes next does not follow it.
func (f *feed) jump() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.run++
	f.current, f.started = nil, false
	clear(f.past)
	for {
		select {
		case <-f.queue:
			f.queued--
		default:
			f.idle.Broadcast()
			return
		}
	}
}

// hand gives a frame to the decoder, and when that is behind makes room. f.mu is
// held.
func (f *feed) hand(fr *frame) {
	fr.run = f.run
	f.past[fr.group] = fr.has
	for g := range f.past {
		if g+history < f.newest {
			delete(f.past, g)
		}
	}
	for {
		select {
		case f.queue <- fr:
			f.queued++
			return
		default:
		}
		select {
		case <-f.queue:
			f.queued--
			f.counters.skipped++
		default:
		}
	}
}

// drain hands on what is there and waits until it is decoded.
func (f *feed) drain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current != nil && len(f.current.objects) > 0 {
		f.hand(f.current)
		f.current = nil
	}
	for f.queued > 0 {
		f.idle.Wait()
	}
}

func size(objects [][]byte) (n int) {
	for _, o := range objects {
		n += len(o)
	}
	return n
}

// decode shows frames until the queue is closed.
func (f *feed) decode(dec *pointcloud.Decoder) {
	defer close(f.done)
	defer dec.Close()
	var frame pointcloud.Frame
	for fr := range f.queue {
		f.mu.Lock()
		dec.MaxPoints = f.track.Points.MaxPoints
		name := f.subscribed
		f.mu.Unlock()
		took := time.Now()
		h, err := dec.Decode(&frame, fr.objects...)
		if err == nil {
			f.picture.Lock()
			if !f.has || fr.run > f.showed || int32(h.Sequence-f.header.Sequence) > 0 || h.CaptureTime > f.header.CaptureTime {
				f.frame, frame = frame, f.frame
				f.header, f.has, f.showed = h, true, fr.run
			}
			f.picture.Unlock()
			f.p.show(shown{header: h, points: int(h.Points), bytes: size(fr.objects), arrived: fr.arrived, at: time.Now(), replayed: fr.replayed, own: fr.own, late: fr.late,
				track: name, group: fr.group, began: fr.began, whole: fr.whole, took: took})
		} else {
			f.p.log.Debug("frame", "camera", f.camera, "group", fr.group, "err", err)
		}
		for _, o := range fr.objects {
			select {
			case f.free <- o[:0]:
			default:
			}
		}
		f.mu.Lock()
		switch {
		case err != nil:
			f.counters.damaged++
		default:
			f.counters.shown += uint64(len(fr.objects))
			f.counters.whole += uint64(h.Descriptions)
			if len(fr.objects) < int(h.Descriptions) {
				f.counters.partial++
			}
		}
		f.queued--
		f.idle.Broadcast()
		f.mu.Unlock()
	}
}

// cloud is the newest frame as points in the studio.
func (f *feed) cloud() pointcloud.Points {
	f.mu.Lock()
	rays, pose := f.rays, f.at
	f.mu.Unlock()
	f.picture.Lock()
	defer f.picture.Unlock()
	if !f.has {
		return pointcloud.Points{}
	}
	if f.frame.Layout.OnGrid() {
		return f.frame.Grid.Transform(&rays, pose)
	}
	return f.frame.Points.Transform(pose)
}
