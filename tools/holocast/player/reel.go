package player

import (
	"context"
	"sync"
	"time"

	"holocast/internal/moqt/wire"
	"holocast/internal/parts"
	"holocast/internal/pointcloud"
	"holocast/tools/holocast/player/sphere"
)

// reelPriority is the subscriber priority of frames that are fetched.
const reelPriority = 128

// reel is a camera's track in a recording: the frames ahead of the position.
type reel struct {
	f      *feed
	ctx    context.Context
	length time.Duration
	fetch  sphere.Fetch
	all    sync.WaitGroup

	mu       sync.Mutex
	frames   []*frame // in the order of their media times, which are their groups
	until    time.Duration
	primed   bool
	window   time.Duration
	cancel   context.CancelFunc // of the FETCH under way; nil without one
	run      int                // seeks so far
	notUntil time.Time          // when to try again
}

func newReel(ctx context.Context, f *feed, length time.Duration, fetch sphere.Fetch) *reel {
	return &reel{f: f, ctx: ctx, length: length, fetch: fetch, window: firstWindow}
}

// Seek implements part.
func (r *reel) Seek(position time.Duration) {
	r.f.jump()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run++
	if r.cancel != nil {
		r.cancel()
	}
	r.cancel, r.frames, r.primed = nil, nil, false
	r.until, r.window, r.notUntil = max(0, position-framesBefore).Truncate(time.Millisecond), firstWindow, time.Time{}
}

// Close implements part.
func (r *reel) Close() {
	r.Seek(0)
	r.all.Wait()
}

// Until implements part.
func (r *reel) Until() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.until
}

// Primed implements part.
func (r *reel) Primed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.primed
}

// Tick implements part.
func (r *reel) Tick(position time.Duration, _ bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancel == nil && r.until <= r.length && r.until-position <= keptAhead && !time.Now().Before(r.notUntil) {
		r.refill()
	}
	r.show(position)
}

// refill begins to fetch what follows. r.mu is held.
func (r *reel) refill() {
	ctx, cancel := context.WithCancel(r.ctx)
	r.cancel = cancel
	run, first, end := r.run, uint64(r.until.Milliseconds()), r.until+r.window
	r.all.Go(func() {
		defer cancel()
		x := assembly{reel: r, run: run, limit: r.f.maxObject()}
		over, err := r.fetch(ctx, r.f.name(), first, uint64(end.Milliseconds())-1, reelPriority, x.limit, x.add)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.run != run {
			return
		}
		r.cancel = nil
		switch {
		case over:
			r.until = r.length + time.Millisecond
		case err != nil: // keep what came; ask for the rest again
			x.finish()
			if x.some {
				r.until = time.Duration(x.group+1) * time.Millisecond
			}
			r.notUntil = time.Now().Add(fetchAgain)
			if ctx.Err() == nil {
				r.f.p.log.Debug("the recording cannot be fetched", "track", r.f.name(), "err", err)
			}
		default:
			x.finish()
			r.until, r.window = end, window
		}
	})
}

// assembly puts the frames of a FETCH together, group by group.
type assembly struct {
	reel  *reel
	run   int
	limit int
	group uint64
	some  bool
	whole [][]byte // the group's descriptions
	parts *parts.Assembler
}

func (x *assembly) add(o wire.FetchObject, payload []byte) {
	r := x.reel
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.run != x.run {
		return
	}
	r.f.p.meter.Received(len(payload), time.Now())
	if !x.some || o.Group != x.group {
		x.finish()
		x.group, x.some = o.Group, true
		r.until = max(r.until, time.Duration(o.Group)*time.Millisecond)
		x.parts = nil
	}
	if !o.Datagram {
		x.whole = append(x.whole, payload)
		return
	}
	if x.parts == nil {
		x.parts = parts.NewAssembler(parts.Limits{MaxPayload: x.limit})
	}
	for _, p := range x.parts.Add(parts.Fetched(o, payload), true, time.Now()) {
		x.whole = append(x.whole, p.Bytes)
	}
}

// finish hands on the group that came, if it has a frame. The reel's mu is held.
func (x *assembly) finish() {
	if x.parts != nil {
		x.parts.Close()
		x.parts = nil
	}
	fr := &frame{group: x.group, replayed: true, own: true}
	for _, payload := range x.whole {
		h, err := pointcloud.ParseHeader(payload)
		if err != nil || int(h.Camera) != x.reel.f.camera {
			x.reel.f.damaged()
			continue
		}
		fr.take(h, payload)
	}
	x.whole = nil
	if len(fr.objects) > 0 {
		x.reel.frames = append(x.reel.frames, fr)
	}
}

// show hands on what is due; after a seek, the frame that is nearest. r.mu is held.
func (r *reel) show(position time.Duration) {
	due := 0
	for due < len(r.frames) && time.Duration(r.frames[due].group)*time.Millisecond <= position {
		due++
	}
	if !r.primed {
		if len(r.frames) == 0 || due == len(r.frames) && r.until <= position {
			return
		}
		due = max(1, due)
	}
	if due == 0 {
		return
	}
	skipped := due - 1
	if !r.primed {
		skipped = 0 // they are of the time before the seek's place
	}
	r.primed = true
	r.f.handRecorded(r.frames[due-1], skipped)
	r.frames = r.frames[due:]
}
