package points

import (
	"math"
	"sync/atomic"
	"time"

	"holocast/capture-server/publish"
	"holocast/internal/camera"
	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/pointcloud"
)

// Qualities of a camera's tracks.
const (
	qualityFull   = "full"
	qualityHigh   = "high"   // layout W, at a tenth of the bit rate
	qualityMedium = "medium" // the same at 7/8 of the bit rate of high
	qualityFair   = "fair"   // the same at 2/3 of the bit rate of high
	qualityLow    = "low"    // every second pixel in x and y, in layout W if there is a high
)

// coarser is added to the quantizers of qualities in layout W. The steps let the two of four cameras
// that a viewer mainly sees share what the others' low leaves (docs/adr/0011-lossy-points.md).
var coarser = map[string]int{qualityHigh: 0, qualityMedium: 2, qualityFair: 6, qualityLow: 8}

// perPixel is the bit rate per pixel relative to quality high (docs/results/wan.md).
var perPixel = map[string]float64{qualityHigh: 1, qualityMedium: 0.875, qualityFair: 0.67, qualityLow: 0.78}

// pointsTrack is one quality of one camera. Only the encoding goroutine publishes on it.
type pointsTrack struct {
	*origin.Track
	video    *video // nil unless layout is LayoutVideo
	quality  string
	lens     camera.Intrinsics // lens of the frames' pixels
	layout   pointcloud.Layout
	always   bool
	delivery string

	newest atomic.Pointer[time.Time] // time of the last frame, or nil
	due    atomic.Bool               // a capture taken for this track has not been published yet

	group uint64
	rays  camera.RayTable // for layouts without a grid
	half  pointcloud.Grid // quality low
	frame pointcloud.Frame
}

// newPointsTrack adds a track. lens is that of the mapper's grid.
func newPointsTrack(l *pipeline, quality string, lens camera.Intrinsics) (*pointsTrack, error) {
	if quality == qualityLow {
		lens = lens.Half()
	}
	t := &pointsTrack{
		quality: quality, lens: lens, layout: l.m.cfg.Layout, always: l.m.cfg.AlwaysEncode,
		delivery: l.m.cfg.Delivery, group: publish.FirstGroup(),
	}
	track := publish.Track{
		Name: catalog.PointsTrack(l.number, quality), Priority: priorityDescription,
		DeliveryTimeout: l.m.cfg.DeliveryTimeout,
	}
	if l.m.cfg.High && quality != qualityFull {
		v, err := newVideo(l, track, lens, coarser[quality])
		if err != nil {
			return nil, err
		}
		t.video, t.Track, t.layout, t.delivery = v, v.track, pointcloud.LayoutVideo, catalog.DeliveryStream
		return t, nil
	}
	t.Track = l.m.session.NewTrack(track)
	if !t.layout.OnGrid() {
		t.rays = lens.RayTable()
	}
	return t, nil
}

// bitrate estimates the track's bit/s.
func (t *pointsTrack) bitrate(l *pipeline) int64 {
	pixels := float64(t.lens.Width * t.lens.Height)
	rate := pixels * t.layout.BytesPerPoint() * 8 / l.period.Seconds()
	if t.video == nil {
		return int64(rate)
	}
	if limit := l.m.cfg.Bitrate; limit > 0 {
		limit /= float64(len(l.m.pipelines))
		if t.quality == qualityLow {
			limit /= 4
		}
		rate = min(rate, limit)
	}
	return int64(rate * perPixel[t.quality])
}

// descriptions returns the number of objects per frame.
func (t *pointsTrack) descriptions(configured int) int {
	if t.video != nil {
		return 1
	}
	return configured
}

// wanted reports whether the track is due for a capture.
func (t *pointsTrack) wanted(now time.Time) bool {
	if t.always || t.Viewers() > 0 {
		return true
	}
	if t.video != nil {
		t.video.rest()
		return false
	}
	if t.due.Load() { // load due before newest; publish stores them in reverse order
		return false
	}
	newest := t.newest.Load()
	return newest == nil || now.Sub(*newest) >= idleInterval
}

// publish encodes a frame and writes each description to the track as soon as it is encoded. It
// returns the frame's size in bytes.
func (t *pointsTrack) publish(e *pointcloud.Encoder, h pointcloud.Header, g *pointcloud.Grid) (size int, err error) {
	if t.quality == qualityLow {
		g.Halve(&t.half)
		g = &t.half
	}
	if t.video != nil {
		if size, err = t.video.publish(h, g); err != nil {
			return size, err
		}
		t.published()
		return size, nil
	}
	t.frame.SetGrid(t.layout, g, &t.rays)
	next := uint64(0) // next object ID, with datagram delivery
	for i := range int(h.Descriptions) {
		payload, err := e.Encode(nil, h, &t.frame, i) // the track keeps it
		if err != nil {
			return size, err
		}
		header := wire.SubgroupHeader{
			Group: t.group, Subgroup: uint64(i), Mode: wire.SubgroupIDExplicit,
			Priority:   uint8(min(priorityDescription+priorityStep*i, math.MaxUint8)),
			EndOfGroup: i == int(h.Descriptions)-1, FirstObject: true,
		}
		if t.delivery == catalog.DeliveryDatagram {
			next = publish.SendParts(t.Track, header, next, payload)
		} else if err := t.WriteObject(header, moqt.Object{ID: uint64(i)}, payload); err != nil {
			return size, err
		}
		size += len(payload)
	}
	t.group++
	t.published()
	return size, nil
}

// published records that a frame was published.
func (t *pointsTrack) published() {
	now := time.Now()
	t.newest.Store(&now)
	t.due.Store(false)
}

// newestGroup returns the group of the next frame or, in layout W, the current group.
func (t *pointsTrack) newestGroup() uint64 {
	if t.video == nil {
		return t.group
	}
	l, _ := t.Largest()
	return l.Group
}
