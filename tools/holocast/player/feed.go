package player

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"holocast/internal/camera"
	"holocast/internal/catalog"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/parts"
	"holocast/internal/pointcloud"
	"holocast/internal/pointvideo"
	"holocast/internal/render"
)

// backlog limits the frames per camera that wait for the decoder. When it is full, the oldest frame
// is dropped, since the newest matters most.
const backlog = 3

// history is the number of frames passed to the decoder for which a feed remembers the received
// descriptions.
const history = 256

// feed receives one camera's track. It assembles objects into frames, decodes them on its own
// goroutine and keeps the newest.
type feed struct {
	p      *Player
	camera int
	queue  chan *frame
	free   chan []byte // buffers of decoded objects, for reuse
	done   chan struct{}

	mu         sync.Mutex
	track      catalog.Track
	subscribed moqt.TrackName
	init       catalog.CameraInit
	at         camera.Transform // current pose
	rays       camera.RayTable
	current    *frame               // being assembled
	newest     uint64               // largest group started
	started    bool                 // newest is valid
	past       map[uint64][256]bool // received descriptions by group, for the last history frames passed to the decoder
	passed     []uint64             // keys of past, oldest first
	queued     int                  // frames queued or being decoded
	idle       *sync.Cond           // signaled when queued changes
	counters   counters
	sources    int             // active subscriptions
	receiver   *parts.Receiver // of the newest subscription
	parts      parts.Stats     // of earlier subscriptions
	epoch      int             // number of seeks so far
	order      videoOrder
	video      *pointvideo.Decoder // nil unless the track has had layout W
	renew      chan struct{}       // receives a value when a new group of layout W is needed
	priority   uint8               // of the subscriptions; 0 = the default
	ranked     chan struct{}       // closed when priority changes

	picture    sync.Mutex
	frame      pointcloud.Frame // the newest frame
	header     pointcloud.Header
	has        bool
	shownEpoch int // value of epoch for frame
}

// counters counts a feed's frames and objects by outcome.
type counters struct {
	partial      uint64 // frames displayed without all their descriptions
	skipped      uint64 // frames dropped because the decoder fell behind
	late         uint64 // descriptions received after their frame was displayed
	damaged      uint64 // invalid or oversized objects, and frames that failed to decode
	reset        uint64 // subgroups reset by the sender
	shown, total uint64 // descriptions displayed, and the total number in those frames
	displayed    uint64 // frames displayed
}

// frame holds the received descriptions of one frame.
type frame struct {
	group     uint64
	header    pointcloud.Header // from the first object
	objects   [][]byte
	has       [256]bool // indexed by description
	lost      int
	began     time.Time // first byte of its first object
	arrived   time.Time // last byte of its first object
	completed time.Time // last byte of its last object
	replayed  bool
	own       bool // from a recording that this player plays at its own pace; arrived is then the due time
	epoch     int  // the feed's epoch when it was queued
	late      bool // a newer frame started before any of its objects arrived
	// For a recorded frame in layout W: the time since its group's first frame, and whether it is
	// that first frame.
	after  time.Duration
	key    bool
	hidden bool // of layout W: decoded for the frames after it, but not displayed
}

// due returns the media time of a recorded frame; group IDs are media times in milliseconds.
func (fr *frame) due() time.Duration { return time.Duration(fr.group)*time.Millisecond + fr.after }

func newFeed(p *Player, camera int) (*feed, error) {
	dec, err := pointcloud.NewDecoder()
	if err != nil {
		return nil, err
	}
	f := &feed{
		p:      p,
		camera: camera,
		queue:  make(chan *frame, videoBacklog),
		free:   make(chan []byte, 4*backlog),
		done:   make(chan struct{}),
		past:   map[uint64][256]bool{},
		order:  newVideoOrder(),
		renew:  make(chan struct{}, 1),
		ranked: make(chan struct{}),
	}
	f.idle = sync.NewCond(&f.mu)
	go f.decode(dec)
	return f, nil
}

func (f *feed) close() {
	close(f.queue)
	<-f.done
}

// configure sets the catalog entry and calibration of the camera. It may be called again.
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
		f.at = init.Pose // otherwise keep the pose track's pose
	}
	f.track, f.init = t, init
}

// move sets the camera's pose.
func (f *feed) move(pose camera.Transform) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = pose
}

// follow takes over the pose of the camera's displayed feed, which the pose track may have moved.
func (f *feed) follow(shown *feed) {
	shown.mu.Lock()
	from, pose := shown.init.Pose, shown.at
	shown.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.init.Pose == from {
		f.at = pose
	}
}

// prioritize sets the subscriber priority of the feed's subscriptions.
func (f *feed) prioritize(priority uint8) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if priority == f.priority {
		return
	}
	f.priority = priority
	close(f.ranked)
	f.ranked = make(chan struct{})
}

// updatePriority sends the feed's subscriber priority and its changes until ctx is done.
func (f *feed) updatePriority(ctx context.Context, sub *moqt.Subscription) {
	sent := uint8(0)
	for {
		f.mu.Lock()
		priority, ranked := f.priority, f.ranked
		f.mu.Unlock()
		if priority != sent {
			if _, err := sub.Update(ctx, moqt.Parameters{SubscriberPriority: &priority}); err != nil {
				return
			}
			sent = priority
		}
		select {
		case <-ranked:
		case <-ctx.Done():
			return
		}
	}
}

func (f *feed) timeout(override time.Duration) time.Duration {
	if override > 0 {
		return override
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Duration(f.track.Points.DeliveryTimeout) * time.Millisecond
}

// maxObject returns the size limit of the track's objects in bytes. It allows 12 bytes per point,
// more than any layout needs.
func (f *feed) maxObject() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return 12*f.track.Points.MaxPoints + 1<<16
}

// receive reads a subscription until it ends and returns the reason. It calls received for every
// object that was not fetched. Two subscriptions may run concurrently; their frames are identical.
func (f *feed) receive(ctx context.Context, sub *moqt.Subscription, received func()) error {
	f.mu.Lock()
	if f.sources++; f.sources == 1 {
		f.forget()
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
	video, largest := f.isVideo(), -1
	if video {
		wg.Go(func() { f.requestGroups(ctx, sub) })
	}
	wg.Go(func() { f.updatePriority(ctx, sub) })
	datagrams := f.receiveParts(ctx, &wg, sub, limit, replay != 0, received)
	if sub.Largest != nil {
		largest = int(min(sub.Largest.Object, math.MaxInt32))
		wg.Go(func() {
			err := fetch(ctx, sub, limit, func(o wire.FetchObject, payload []byte) error {
				if o.Datagram {
					datagrams.Add(parts.Fetched(o, payload), true)
					return nil
				}
				now := time.Now()
				f.p.meter.Received(len(payload), now)
				if video {
					f.addVideo(o.Group, payload, now, now, replay != 0, largest)
					return nil
				}
				f.add(o.Group, payload, now, now, replay != 0, true)
				return nil
			})
			if err != nil && ctx.Err() == nil {
				f.p.log.Debug("could not fetch the newest group", "track", sub.Track().String(), "err", err)
				if video {
					f.mu.Lock()
					f.loseGroup(sub.Largest.Group)
					f.mu.Unlock()
				}
			}
		})
	}
	for {
		r, err := sub.AcceptSubgroup(ctx)
		if err != nil {
			if !connect.Ended(err) {
				sub.Cancel() // unblocks readers of open subgroups
			}
			return err
		}
		wg.Go(func() { f.read(r, limit, replay != 0, received) })
	}
}

// receiveParts starts receiving frames sent as datagrams.
func (f *feed) receiveParts(
	ctx context.Context, wg *sync.WaitGroup, sub *moqt.Subscription, limit int, replayed bool, received func(),
) *parts.Receiver {
	r := parts.NewReceiver(
		ctx,
		sub,
		parts.Limits{MaxPayload: limit, Timeout: f.timeout(f.p.cfg.DeliveryTimeout)},
		func(p parts.Payload) {
			now := time.Now()
			f.p.meter.Received(len(p.Bytes), now)
			f.add(p.Group, p.Bytes, now, now, replayed, false)
			received()
		},
	)
	f.mu.Lock()
	f.receiver = r
	inDatagrams := f.track.Points.Delivery == catalog.DeliveryDatagram
	f.mu.Unlock()
	if inDatagrams {
		r.Joining()
	}
	wg.Go(func() {
		_ = r.Run() // returns when the subscription ends
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

// partStats sums the datagram counters over all subscriptions.
func (f *feed) partStats() (s parts.Stats) {
	f.mu.Lock()
	s, r := f.parts, f.receiver
	f.mu.Unlock()
	if r != nil { // Stats locks the receiver, which must not happen under f.mu
		s.Add(r.Stats())
	}
	return s
}

// read reads one subgroup.
func (f *feed) read(r *moqt.SubgroupReader, limit int, replayed bool, received func()) {
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
			f.p.log.Debug("ignored large object", "camera", f.camera, "group", r.Group, "bytes", o.PayloadLength,
				"limit", limit)
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
			if f.isVideo() {
				f.addVideo(r.Group, payload, began, now, replayed, -1)
			} else {
				f.add(r.Group, payload, began, now, replayed, false)
			}
			received()
			continue
		}
		if err == io.EOF {
			return
		}
		r.Cancel(wire.StreamCancelled)
		if e := (*moqt.StreamError)(nil); errors.As(err, &e) && e.Remote {
			f.subgroupReset(r.Group)
		}
		return
	}
}

// add processes one object. began and at are the arrival times of its first and last byte. A
// fetched object is ignored if its frame is older than the current one.
func (f *feed) add(group uint64, payload []byte, began, at time.Time, replayed, fetched bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h, err := pointcloud.ParseHeader(payload)
	if err == nil && int(h.Camera) != f.camera {
		err = fmt.Errorf("frame header names camera %d", h.Camera)
	}
	if err != nil {
		f.counters.damaged++
		f.p.log.Debug("ignored an object", "camera", f.camera, "group", group, "err", err)
		return
	}
	if received, shown := f.past[group]; shown {
		if !received[h.Description] { // otherwise a copy from the other subscription
			received[h.Description] = true
			f.past[group] = received
			f.counters.late++
		}
		return
	}
	if f.started && group < f.newest {
		if fetched {
			return
		}
		// A newer frame started before this one's first object arrived.
		late := &frame{group: group, began: began, arrived: at, completed: at, replayed: replayed, late: true}
		late.take(h, payload)
		f.enqueue(late)
		return
	}
	if f.current != nil && f.current.group != group {
		f.enqueue(f.current)
		f.current = nil
	}
	f.newest, f.started = group, true
	if f.current == nil {
		f.current = &frame{group: group, began: began, arrived: at, replayed: replayed}
	}
	if !f.current.take(h, payload) {
		return
	}
	f.current.completed = at
	f.complete()
}

// take adds an object to the frame. It returns false for a duplicate.
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

// subgroupReset records that a subgroup of a frame was reset and that its remaining objects will not
// arrive.
func (f *feed) subgroupReset(group uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counters.reset++
	if f.video != nil {
		f.loseGroup(group)
	}
	if f.current != nil && f.current.group == group {
		f.current.lost++
		f.complete()
	}
}

// complete queues the current frame for decoding if all its descriptions have arrived or were
// reset. The caller holds f.mu.
func (f *feed) complete() {
	c := f.current
	if n := len(c.objects); n > 0 && n+c.lost >= int(c.header.Descriptions) {
		f.enqueue(c)
		f.current = nil
	}
}

// name returns the name of the camera's track, which is the same in the session and its recording.
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

// enqueueRecorded queues the last of the due recorded frames. The frames before it are dropped, and
// skipped is their number. In layout W they are decoded from the last key frame on, but not
// displayed.
func (f *feed) enqueueRecorded(due []*frame, skipped int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counters.skipped += uint64(skipped)
	last := due[len(due)-1]
	last.arrived = time.Now()
	if last.header.Layout != pointcloud.LayoutVideo {
		f.enqueue(last)
		return
	}
	for i, fr := range slices.Backward(due) {
		if fr.key || i == 0 {
			due = due[i:]
			break
		}
	}
	for _, fr := range due {
		fr.hidden = fr != last
		f.enqueueVideo(fr)
	}
}

// flush discards received frames at a seek.
func (f *feed) flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch++
	f.forget()
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

// forget discards the state of received groups. The caller holds f.mu.
func (f *feed) forget() {
	f.current, f.started, f.passed = nil, false, nil
	clear(f.past)
	f.order = newVideoOrder()
}

// enqueue passes a frame to the decoder. If the queue is full, it drops the oldest frame. The
// caller holds f.mu.
func (f *feed) enqueue(fr *frame) {
	fr.epoch = f.epoch
	if _, again := f.past[fr.group]; !again {
		if len(f.passed) == history {
			delete(f.past, f.passed[0])
			f.passed = f.passed[1:]
		}
		f.passed = append(f.passed, fr.group)
	}
	f.past[fr.group] = fr.has
	for len(f.queue) >= backlog {
		select {
		case <-f.queue:
			f.queued--
			f.counters.skipped++
		default: // the decoder took it
		}
	}
	f.queue <- fr // has room, as f.mu is held
	f.queued++
}

// drain queues the current frame and waits until the decoder has processed all frames.
func (f *feed) drain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current != nil && len(f.current.objects) > 0 {
		f.enqueue(f.current)
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

// decode decodes frames until the queue is closed.
func (f *feed) decode(dec *pointcloud.Decoder) {
	defer close(f.done)
	defer dec.Close()
	defer func() {
		if f.video != nil {
			f.video.Close()
		}
	}()
	var frame pointcloud.Frame
	for fr := range f.queue {
		f.mu.Lock()
		dec.MaxPoints = f.track.Points.MaxPoints
		name, video := f.subscribed, f.video
		if video != nil {
			video.MaxPoints = dec.MaxPoints
		}
		f.mu.Unlock()
		held := f.p.hold(fr)
		decodeStart := time.Now()
		h, err := decodeFrame(&frame, fr, dec, video)
		if err == nil && !fr.hidden && !f.p.displays(f, h.Sequence, h.CaptureTime) {
			fr.hidden = true
		}
		if err == nil && !fr.hidden {
			f.picture.Lock()
			if !f.has || fr.epoch > f.shownEpoch || int32(h.Sequence-f.header.Sequence) > 0 ||
				h.CaptureTime > f.header.CaptureTime {
				f.frame, frame = frame, f.frame
				f.header, f.has, f.shownEpoch = h, true, fr.epoch
			}
			f.picture.Unlock()
			f.p.inStep(h, held)
			f.p.show(shown{
				header: h, points: int(h.Points), bytes: size(fr.objects), arrived: fr.arrived, at: time.Now(),
				replayed: fr.replayed, own: fr.own, late: fr.late, held: held,
				track: name, group: fr.group, began: fr.began, completed: fr.completed, decodeStart: decodeStart,
			})
		} else if err != nil {
			f.p.log.Debug("could not decode a frame", "camera", f.camera, "group", fr.group, "err", err)
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
			if fr.header.Layout == pointcloud.LayoutVideo {
				f.loseGroup(fr.group)
			}
		case fr.hidden:
		default:
			f.counters.displayed++
			f.counters.shown += uint64(len(fr.objects))
			f.counters.total += uint64(h.Descriptions)
			if len(fr.objects) < int(h.Descriptions) {
				f.counters.partial++
			}
		}
		f.queued--
		f.idle.Broadcast()
		f.mu.Unlock()
	}
}

// cloud returns the newest frame as points in studio coordinates.
func (f *feed) cloud() pointcloud.Points {
	f.picture.Lock()
	defer f.picture.Unlock()
	if !f.has {
		return pointcloud.Points{}
	}
	return f.seen().Cloud()
}

// view returns a copy of the newest frame. ok is false if there is none, or its grid is not the track's.
func (f *feed) view() (c render.Camera, ok bool) {
	f.picture.Lock()
	defer f.picture.Unlock()
	if c = f.seen(); !f.has || f.frame.Layout.OnGrid() && (f.frame.Grid.Width != c.Rays.Width ||
		f.frame.Grid.Height != c.Rays.Height) {
		return c, false
	}
	return render.Shot{c}.Clone()[0], true
}

// seen returns the newest frame with the current pose. The caller holds f.picture.
func (f *feed) seen() render.Camera {
	f.mu.Lock()
	defer f.mu.Unlock()
	rays := f.rays
	return render.Camera{Number: f.camera, Frame: &f.frame, Rays: &rays, Pose: f.at}
}
