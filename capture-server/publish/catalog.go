package publish

import (
	"fmt"
	"math"
	"sync"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/pointcloud"
)

// bytesPerPoint estimates, generously, what a point of a layout costs.
var bytesPerPoint = map[pointcloud.Layout]float64{
	pointcloud.LayoutGrid: 2, pointcloud.LayoutPoints: 3, pointcloud.LayoutInterleaved: 9,
}

// defaultFPS stands in for a frame rate that is not known.
const defaultFPS = 30

// describe publishes the catalog of the cameras that are there, and their poses.
func (p *Publisher) describe() error {
	c := &catalog.Catalog{Version: catalog.Version, GeneratedAt: p.relayTime.Now().UnixMilli()}
	var poses []catalog.PoseEvent
	var names []string
	renderGroup := 1
	for _, l := range p.pipelines {
		if l.ended.Load() {
			continue
		}
		altGroup := l.number + 1
		for _, t := range l.tracks {
			calibration := l.src.Calibration()
			ref, err := c.AddInit(fmt.Sprintf("camera-%d-%s", l.number, t.quality), catalog.CameraInit{
				Grid: t.lens, Pose: t.pose, DepthMin: p.cfg.Cloud.DepthMin, DepthMax: depthMax(p.cfg.Cloud.DepthMax),
				Calibration: &calibration,
			})
			if err != nil {
				return err
			}
			fps := l.fps
			if fps == 0 {
				fps = defaultFPS
			}
			pixels := t.lens.Width * t.lens.Height
			name := catalog.PointsTrack(l.number, t.quality)
			entry := catalog.Track{
				Name: name, Packaging: catalog.PackagingPoints, IsLive: true, Role: catalog.RolePoints,
				Label: l.src.Name(), RenderGroup: &renderGroup, AltGroup: &altGroup, InitRef: ref, Framerate: l.fps,
				Bitrate: int64(float64(pixels) * bytesPerPoint[t.layout] * 8 * fps),
				Points: &catalog.Points{
					Camera: l.number, CameraName: l.src.Name(), Quality: t.quality, Layout: t.layout.String(),
					Descriptions: p.cfg.Descriptions, MaxPoints: pixels,
					DeliveryTimeout: int(p.cfg.DeliveryTimeout.Milliseconds()),
				},
			}
			if t.layout == pointcloud.LayoutGrid {
				entry.Width, entry.Height = t.lens.Width, t.lens.Height
			}
			c.Tracks = append(c.Tracks, entry)
			names = append(names, name)
		}
		poses = append(poses, catalog.PoseEvent{
			T: c.GeneratedAt, Data: catalog.Pose{Camera: l.number, Pose: l.tracks[0].pose},
		})
	}
	c.Tracks = append(c.Tracks, catalog.NewPoseTrack(names...), catalog.NewClockTrack())
	if err := p.publishCatalog(c); err != nil {
		return err
	}
	return p.publishPoses(poses)
}

func depthMax(mm uint16) uint16 {
	if mm == 0 {
		return math.MaxUint16
	}
	return mm
}

// publishCatalog publishes a whole catalog.
func (p *Publisher) publishCatalog(c *catalog.Catalog) error {
	b, err := c.Marshal()
	if err != nil {
		return err
	}
	return p.catalog.publish(b)
}

func (p *Publisher) publishPoses(events []catalog.PoseEvent) error {
	b, err := catalog.MarshalPoses(events)
	if err != nil {
		return err
	}
	return p.poses.publish(b)
}

// document is a track each of whose groups is one object, the newest of which is
// valid. Whoever may have missed that can have it once more, in another group.
type document struct {
	*origin.Track
	mu      sync.Mutex
	group   uint64 // the next
	payload []byte
	renewed time.Time
}

// renewInterval is how often a document is published once more at most, whoever asks.
const renewInterval = time.Second

func (p *Publisher) newDocument(name string) *document {
	d := &document{
		Track: p.newTrack(name, priorityDocument, 0, wire.KeyValue{Type: wire.PropertyDynamicGroups, Int: 1}),
		group: firstGroup(),
	}
	d.NewGroup = d.renew
	return d
}

func (d *document) publish(payload []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.payload = payload
	return d.write()
}

// renew publishes the newest object once more, unless that is in the group asked for
// or a later one already (§10.2.14).
func (d *document) renew(group uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.payload == nil || group != 0 && group < d.group || time.Since(d.renewed) < renewInterval {
		return
	}
	d.renewed = time.Now()
	_ = d.write() // a track that has ended has no use for it
}

func (d *document) write() error {
	h := wire.SubgroupHeader{Group: d.group, Priority: priorityDocument, EndOfGroup: true, FirstObject: true}
	d.group++
	return d.WriteObject(h, moqt.Object{}, d.payload)
}
