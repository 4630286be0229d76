package player

import (
	"context"
	"fmt"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/pointcloud"
	"holocast/internal/pointvideo"
)

const (
	// videoBacklog limits the frames in layout W that wait for the decoder. It is large because a
	// late joiner receives a whole group at once.
	videoBacklog = 64
	// maxHeld limits the frames that wait for earlier ones.
	maxHeld = 256
	// renewInterval is the minimum time between requests for a new group.
	renewInterval = 250 * time.Millisecond
)

// videoOrder puts the frames of a track in layout W in order. They arrive on several streams: a
// group's frames both from the joining FETCH and from the subscription, and several groups at the
// same time.
type videoOrder struct {
	group uint64 // the newest that has begun
	some  bool   // group is valid
	next  int    // index of its next frame
	lost  bool   // the rest of the group cannot be decoded
	held  map[moqt.Location]*frame
}

// add takes a frame and returns those that can be decoded now. late reports a frame of an earlier
// group.
func (v *videoOrder) add(group uint64, index int, fr *frame) (ready []*frame, late bool) {
	switch {
	case v.some && group < v.group:
		return nil, true
	case (!v.some || group > v.group) && index == 0:
		v.begin(group)
	case v.some && group == v.group && index < v.next:
		return nil, false // from the other subscription
	}
	if !v.some || group != v.group || index != v.next {
		if len(v.held) < maxHeld {
			v.held[moqt.Location{Group: group, Object: uint64(index)}] = fr
		}
		return nil, false
	}
	for fr != nil {
		ready = append(ready, fr)
		v.next++
		at := moqt.Location{Group: group, Object: uint64(v.next)}
		fr = v.held[at]
		delete(v.held, at)
	}
	if v.lost {
		return nil, false
	}
	return ready, false
}

func (v *videoOrder) begin(group uint64) {
	v.group, v.some, v.next, v.lost = group, true, 0, false
	for at := range v.held {
		if at.Group < group {
			delete(v.held, at)
		}
	}
}

func newVideoOrder() videoOrder { return videoOrder{held: map[moqt.Location]*frame{}} }

// isVideo reports whether the camera's track has layout W.
func (f *feed) isVideo() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.track.Points != nil && f.track.Points.Layout == catalog.LayoutVideo
}

// openVideo starts the decoder of layout W.
func (f *feed) openVideo() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.video != nil {
		return nil
	}
	d, err := pointvideo.NewDecoder()
	if err != nil {
		return fmt.Errorf("camera %d in layout W: %w", f.camera, err)
	}
	f.video = d
	return nil
}

// addVideo processes one object of a track in layout W. largest is the index of the last frame to
// be fetched, or negative if the object is from the subscription.
func (f *feed) addVideo(group uint64, payload []byte, began, at time.Time, replayed bool, largest int) {
	h, index, err := pointvideo.ParseHeader(payload)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && int(h.Camera) != f.camera {
		err = fmt.Errorf("frame header names camera %d", h.Camera)
	}
	if err != nil {
		f.counters.damaged++
		f.p.log.Debug("ignored an object", "camera", f.camera, "group", group, "err", err)
		return
	}
	fr := &frame{group: group, began: began, arrived: at, completed: at, replayed: replayed, hidden: index < largest}
	fr.take(h, payload)
	ready, late := f.order.add(group, index, fr)
	if late && largest < 0 {
		f.counters.late++
	}
	for _, fr := range ready {
		f.enqueueVideo(fr)
	}
}

// enqueueVideo passes a frame to the decoder. If the decoder has fallen behind, the rest of the
// group is dropped. The caller holds f.mu.
func (f *feed) enqueueVideo(fr *frame) {
	fr.epoch = f.epoch
	select {
	case f.queue <- fr:
		f.queued++
	default:
		f.counters.skipped++
		f.loseGroup(fr.group)
	}
}

// loseGroup skips the rest of a group and requests a new one, unless a newer one has already begun.
// The caller holds f.mu.
func (f *feed) loseGroup(group uint64) {
	if o := &f.order; o.some && (group < o.group || group == o.group && o.lost) {
		return
	}
	f.order.lost = f.order.group == group
	select {
	case f.renew <- struct{}{}:
	default:
	}
}

// requestGroups asks the publisher for a new group after each loss, until ctx is done.
func (f *feed) requestGroups(ctx context.Context, sub *moqt.Subscription) {
	for {
		select {
		case <-f.renew:
		case <-ctx.Done():
			return
		}
		f.mu.Lock()
		group := f.order.group + 1
		f.mu.Unlock()
		if _, err := sub.Update(ctx, moqt.Parameters{NewGroupRequest: &group}); err != nil && ctx.Err() == nil {
			f.p.log.Debug("could not request a new group", "camera", f.camera, "err", err)
		}
		select {
		case <-time.After(renewInterval):
		case <-ctx.Done():
			return
		}
	}
}

// decodeFrame decodes a frame with the decoder of its layout.
func decodeFrame(
	to *pointcloud.Frame, fr *frame, points *pointcloud.Decoder, video *pointvideo.Decoder,
) (pointcloud.Header, error) {
	if fr.header.Layout != pointcloud.LayoutVideo || video == nil {
		return points.Decode(to, fr.objects...)
	}
	to.Layout = pointcloud.LayoutVideo
	return video.Decode(&to.Grid, fr.objects[0])
}
