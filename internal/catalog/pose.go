package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"holocast/internal/camera"
	"holocast/internal/clock"
)

// PoseTrack is the name of the track with the cameras' poses: an MSF event timeline (MSF §8) of
// [PoseEvent]s. Cameras may publish before their poses are known; a later event then also applies
// to earlier frames. [CameraInit] has the pose at the time of the catalog.
const PoseTrack = "pose"

// PoseEventType is the pose track's eventType.
const PoseEventType = "dev.holocast.pose/v1"

// PoseEvent is one record of the pose track: a camera's pose from wall-clock time T on. It
// overrides earlier events from that time on.
type PoseEvent struct {
	T    int64 `json:"T"` // milliseconds since 1970 on the relay's clock
	Data Pose  `json:"data"`
}

// Pose is a camera's pose.
type Pose struct {
	Camera int              `json:"camera"`
	Pose   camera.Transform `json:"pose"` // camera to session coordinates, millimetres
}

// NewPoseTrack returns the catalog entry of a live pose track for the given point tracks.
func NewPoseTrack(depends ...string) Track {
	return Track{
		Name: PoseTrack, Packaging: PackagingEventTimeline, EventType: PoseEventType, IsLive: true,
		Role: "eventtimeline", MimeType: "application/json", Depends: depends,
	}
}

// Poses returns the session's pose track.
func (c *Catalog) Poses() (t Track, ok bool) {
	i := slices.IndexFunc(c.Tracks, func(t Track) bool {
		return t.Namespace == "" && t.Name == PoseTrack && t.EventType == PoseEventType
	})
	if i < 0 {
		return Track{}, false
	}
	return c.Tracks[i], true
}

// NewClockTrack returns the catalog entry of the relay's clock track.
func NewClockTrack() Track {
	return Track{Namespace: clock.Namespace, Name: clock.Track, Packaging: PackagingClock, IsLive: true, Role: RoleData}
}

// MarshalPoses returns the payload of a pose track's object.
func MarshalPoses(events []PoseEvent) ([]byte, error) {
	if events == nil {
		events = []PoseEvent{} // a timeline is an array even without records (MSF §8)
	}
	b, err := json.Marshal(events)
	if err != nil {
		return nil, fmt.Errorf("catalog: poses: %w", err)
	}
	return b, nil
}

// ParsePoses reads and validates a pose track's object. It treats null, which earlier versions of
// MarshalPoses wrote, as an empty list.
func ParsePoses(b []byte) ([]PoseEvent, error) {
	if len(b) > MaxSize {
		return nil, fmt.Errorf("catalog: poses: %d bytes, more than %d", len(b), MaxSize)
	}
	if bytes.Equal(bytes.TrimSpace(b), []byte("null")) {
		return nil, nil
	}
	var raw []json.RawMessage
	if err := decode(b, "poses", &raw); err != nil {
		return nil, err
	}
	events, err := decodeEach[PoseEvent](raw, "poses", 1<<16)
	if err != nil {
		return nil, err
	}
	for i, e := range events {
		path := fmt.Sprintf("poses[%d].data", i)
		if e.Data.Camera < 0 || e.Data.Camera > math.MaxUint16 {
			return nil, fmt.Errorf("catalog: %s.camera: %d is not in 0…65535", path, e.Data.Camera)
		}
		if err := e.Data.Pose.Validate(); err != nil {
			return nil, fmt.Errorf("catalog: %s.pose: %w", path, err)
		}
	}
	return events, nil
}
