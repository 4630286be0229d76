package points

import (
	"fmt"
	"math"

	"holocast/internal/catalog"
)

// defaultFPS replaces an unknown frame rate.
const defaultFPS = 30

// Describe implements publish.Medium. It adds the tracks of the live cameras and the pose track.
func (m *Medium) Describe(c *catalog.Catalog) error {
	var names []string
	renderGroup := 1
	for _, l := range m.pipelines {
		if l.ended.Load() {
			continue
		}
		altGroup := l.number + 1
		calibration := l.src.Calibration()
		for _, t := range l.tracks {
			ref, err := c.AddInit(fmt.Sprintf("camera-%d-%s", l.number, t.quality), catalog.CameraInit{
				Grid: t.lens, Pose: l.gridPose(), DepthMin: m.cfg.Cloud.DepthMin,
				DepthMax:    depthMax(m.cfg.Cloud.DepthMax),
				Calibration: &calibration,
			})
			if err != nil {
				return err
			}
			pixels := t.lens.Width * t.lens.Height
			name := catalog.PointsTrack(l.number, t.quality)
			entry := catalog.Track{
				Name: name, Packaging: catalog.PackagingPoints, IsLive: true, Role: catalog.RolePoints,
				Label: l.src.Name(), RenderGroup: &renderGroup, AltGroup: &altGroup, InitRef: ref,
				Framerate: l.src.FPS(),
				Bitrate:   t.bitrate(l),
				Points: &catalog.Points{
					Camera: l.number, CameraName: l.src.Name(), Quality: t.quality, Layout: t.layout.String(),
					Descriptions: t.descriptions(m.cfg.Descriptions), MaxPoints: pixels,
					DeliveryTimeout: int(m.cfg.DeliveryTimeout.Milliseconds()), Delivery: t.delivery,
				},
			}
			if t.video != nil {
				entry.Points.DepthError = t.video.announcedError()
			}
			if t.layout.OnGrid() {
				entry.Width, entry.Height = t.lens.Width, t.lens.Height
			}
			c.Tracks = append(c.Tracks, entry)
			names = append(names, name)
		}
	}
	c.Tracks = append(c.Tracks, catalog.NewPoseTrack(names...))
	return nil
}

func depthMax(mm uint16) uint16 {
	if mm == 0 {
		return math.MaxUint16
	}
	return mm
}

// publishPoses publishes the live cameras' poses, valid from the start of the session.
func (m *Medium) publishPoses() error {
	m.posing.Lock()
	defer m.posing.Unlock()
	var events []catalog.PoseEvent
	began := m.session.RelayTime().At(m.began).UnixMilli()
	for _, l := range m.pipelines {
		if !l.ended.Load() {
			events = append(events, catalog.PoseEvent{
				T:    began,
				Data: catalog.Pose{Camera: l.number, Pose: l.gridPose()},
			})
		}
	}
	b, err := catalog.MarshalPoses(events)
	if err != nil {
		return err
	}
	return m.poses.Publish(b)
}
