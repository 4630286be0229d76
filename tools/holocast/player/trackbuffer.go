package player

import (
	"context"
	"sync"
	"time"

	"holocast/internal/moqt/wire"
	"holocast/internal/parts"
	"holocast/internal/pointcloud"
	"holocast/internal/pointvideo"
	"holocast/tools/holocast/player/sphere"
)

// recordedPriority is the subscriber priority of FETCHes of recorded frames.
const recordedPriority = 128

// trackBuffer holds the frames of a recorded camera track ahead of the position.
type trackBuffer struct {
	f      *feed
	ctx    context.Context
	length time.Duration
	fetch  sphere.Fetch
	all    sync.WaitGroup

	mu       sync.Mutex
	frames   []*frame // in order of media time
	buffered time.Duration
	primed   bool
	window   time.Duration
	cancel   context.CancelFunc // cancels the FETCH in flight; nil if there is none
	seeks    int                // number of seeks
	notUntil time.Time          // earliest time of the next attempt
}

func newTrackBuffer(ctx context.Context, f *feed, length time.Duration, fetch sphere.Fetch) *trackBuffer {
	return &trackBuffer{f: f, ctx: ctx, length: length, fetch: fetch, window: firstWindow}
}

// Seek implements playable.
func (r *trackBuffer) Seek(position time.Duration) {
	r.f.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seeks++
	if r.cancel != nil {
		r.cancel()
	}
	r.cancel, r.frames, r.primed = nil, nil, false
	before, first := framesBefore, firstWindow
	if r.f.isVideo() {
		before, first = videoBefore, videoBefore+firstWindow
	}
	r.buffered, r.window, r.notUntil = max(0, position-before).Truncate(time.Millisecond), first, time.Time{}
}

// Close implements playable.
func (r *trackBuffer) Close() {
	r.Seek(0)
	r.all.Wait()
}

// Buffered implements playable.
func (r *trackBuffer) Buffered() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buffered
}

// Primed implements playable.
func (r *trackBuffer) Primed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.primed
}

// Tick implements playable.
func (r *trackBuffer) Tick(position time.Duration, _ bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancel == nil && r.buffered <= r.length && r.buffered-position <= keptAhead && !time.Now().Before(r.notUntil) {
		r.refill()
	}
	r.show(position)
}

// refill starts the next FETCH. The caller holds r.mu.
func (r *trackBuffer) refill() {
	ctx, cancel := context.WithCancel(r.ctx)
	r.cancel = cancel
	seeks, first, end := r.seeks, uint64(r.buffered.Milliseconds()), r.buffered+r.window
	r.all.Go(func() {
		defer cancel()
		x := assembly{buffer: r, seeks: seeks, limit: r.f.maxObject()}
		over, err := r.fetch(ctx, r.f.name(), first, uint64(end.Milliseconds())-1, recordedPriority, x.limit, x.add)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.seeks != seeks {
			return
		}
		r.cancel = nil
		switch {
		case over:
			r.buffered = r.length + time.Millisecond
		case err != nil && r.f.isVideo(): // keep the groups before the last, which continues
			if x.some {
				r.buffered = time.Duration(x.group) * time.Millisecond
			}
			r.notUntil = time.Now().Add(fetchAgain)
		case err != nil: // keep the received groups and retry the rest
			x.finish()
			if x.some {
				r.buffered = time.Duration(x.group+1) * time.Millisecond
			}
			r.notUntil = time.Now().Add(fetchAgain)
			if ctx.Err() == nil {
				r.f.p.log.Debug("could not fetch the recording", "track", r.f.name(), "err", err)
			}
		default:
			x.finish()
			r.buffered, r.window = end, window
		}
	})
}

// assembly assembles the frames of one FETCH, group by group.
type assembly struct {
	buffer       *trackBuffer
	seeks        int
	limit        int
	group        uint64
	some         bool
	descriptions [][]byte // of the group
	parts        *parts.Assembler
}

func (x *assembly) add(o wire.FetchObject, payload []byte) {
	r := x.buffer
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seeks != x.seeks {
		return
	}
	r.f.p.meter.Received(len(payload), time.Now())
	if !x.some || o.Group != x.group {
		x.finish()
		x.group, x.some = o.Group, true
		r.buffered = max(r.buffered, time.Duration(o.Group)*time.Millisecond)
		x.parts = nil
	}
	if !o.Datagram {
		x.descriptions = append(x.descriptions, payload)
		return
	}
	if x.parts == nil {
		x.parts = parts.NewAssembler(parts.Limits{MaxPayload: x.limit})
	}
	for _, p := range x.parts.Add(parts.Fetched(o, payload), true, time.Now()) {
		x.descriptions = append(x.descriptions, p.Bytes)
	}
}

// finish appends the frame of the current group, if any. The caller holds the buffer's mu.
func (x *assembly) finish() {
	if x.parts != nil {
		x.parts.Close()
		x.parts = nil
	}
	if x.buffer.f.isVideo() {
		x.finishVideo()
		return
	}
	fr := &frame{group: x.group, replayed: true, own: true}
	for _, payload := range x.descriptions {
		h, err := pointcloud.ParseHeader(payload)
		if err != nil || int(h.Camera) != x.buffer.f.camera {
			x.buffer.f.damaged()
			continue
		}
		fr.take(h, payload)
	}
	x.descriptions = nil
	if len(fr.objects) > 0 {
		x.buffer.frames = append(x.buffer.frames, fr)
	}
}

// finishVideo appends the frames of the current group of layout W. A group's time is that of its
// first frame. The caller holds the buffer's mu.
func (x *assembly) finishVideo() {
	var began uint64 // capture time
	for i, payload := range x.descriptions {
		fr := &frame{group: x.group, replayed: true, own: true}
		h, index, err := pointvideo.ParseHeader(payload)
		if err != nil || int(h.Camera) != x.buffer.f.camera || index != i {
			x.buffer.f.damaged()
			break
		}
		if i == 0 {
			began = h.CaptureTime
		}
		after := min(h.CaptureTime-min(began, h.CaptureTime), uint64(time.Minute.Microseconds()))
		fr.after = time.Duration(after) * time.Microsecond
		fr.key = i == 0
		fr.take(h, payload)
		x.buffer.frames = append(x.buffer.frames, fr)
	}
	x.descriptions = nil
}

// show queues the newest due frame or, after a seek, the nearest frame. The caller holds r.mu.
func (r *trackBuffer) show(position time.Duration) {
	due := 0
	for due < len(r.frames) && r.frames[due].due() <= position {
		due++
	}
	if !r.primed {
		if len(r.frames) == 0 || due == len(r.frames) && r.buffered <= position {
			return
		}
		due = max(1, due)
	}
	if due == 0 {
		return
	}
	skipped := due - 1
	if !r.primed {
		skipped = 0 // they precede the seek's position
	}
	r.primed = true
	r.f.enqueueRecorded(r.frames[:due], skipped)
	r.frames = r.frames[due:]
}
