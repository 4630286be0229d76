package catalog

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"holocast/internal/camera"
)

// Points is the JSON object in the field "hcpf" of a [PackagingPoints] track. Grid size, frame rate
// and bit rate are in MSF's own fields width, height, framerate and bitrate.
type Points struct {
	Camera          int    `json:"camera"`          // index in the session, as in the frame header
	CameraName      string `json:"cameraName"`      // the sensor's name or serial number
	Quality         string `json:"quality"`         // last part of the track name
	Layout          string `json:"layout"`          // "A", "B", "C" or "W" of the frame format
	Descriptions    int    `json:"descriptions"`    // subgroups of a frame: 1 or 4
	MaxPoints       int    `json:"maxPoints"`       // maximum points per frame
	DeliveryTimeout int    `json:"deliveryTimeout"` // milliseconds; 0 = none
	// Delivery is DeliveryStream or DeliveryDatagram. Empty means DeliveryStream.
	Delivery string `json:"delivery,omitempty"`
	// Error is the mean squared error of a rendered picture, in 8-bit levels, relative to one at
	// the camera's best quality. It may be nil.
	Error *float64 `json:"error,omitempty"`
	// DepthError is the root mean square error in mm that coding with loss adds to depth. Publishers
	// update it at most once a second. It may be nil.
	DepthError *float64 `json:"depthError,omitempty"`
}

// Values of Points.Delivery.
const (
	DeliveryStream   = "stream"   // each description on a stream
	DeliveryDatagram = "datagram" // in parts that fit datagrams (internal/parts)
)

// CheckDelivery reports whether s is a valid Points.Delivery.
func CheckDelivery(s string) bool { return s == "" || s == DeliveryStream || s == DeliveryDatagram }

// MaxPoints is the maximum number of points per frame. The largest color grid of an Azure Kinect is
// 4096×3072.
const MaxPoints = 4096 * 3072

// maxGrid is the frame format's limit on the width and height of a grid.
const maxGrid = 4096

// maxError is the squared error of a white sample drawn black.
const maxError = 255 * 255

func (p *Points) validate(path string, t *Track) error {
	bad := func(path, format string, args ...any) error {
		return fmt.Errorf("catalog: %s: "+format, append([]any{path}, args...)...)
	}
	switch {
	case p.Camera < 0 || p.Camera > math.MaxUint16:
		return bad(path+".camera", "%d is not in 0…65535", p.Camera)
	case p.Layout != "A" && p.Layout != "B" && p.Layout != "C" && p.Layout != LayoutVideo:
		return bad(path+".layout", "%.40q: want A, B, C or W", p.Layout)
	case p.Descriptions != 1 && p.Descriptions != 4:
		return bad(path+".descriptions", "%d: want 1 or 4", p.Descriptions)
	case p.Descriptions != 1 && p.Layout == LayoutVideo:
		return bad(path+".descriptions", "%d: want 1 in layout W", p.Descriptions)
	case p.MaxPoints <= 0 || p.MaxPoints > MaxPoints:
		return bad(path+".maxPoints", "%d is not in 1…%d", p.MaxPoints, MaxPoints)
	case p.DeliveryTimeout < 0 || p.DeliveryTimeout > math.MaxInt32:
		return bad(path+".deliveryTimeout", "%d is not in 0…%d ms", p.DeliveryTimeout, math.MaxInt32)
	case p.Error != nil && !(*p.Error >= 0 && *p.Error <= maxError):
		return bad(path+".error", "%v is not in 0…%d", *p.Error, maxError)
	case p.DepthError != nil && !(*p.DepthError >= 0 && *p.DepthError <= math.MaxUint16):
		return bad(path+".depthError", "%v is not in 0…%d mm", *p.DepthError, math.MaxUint16)
	case !CheckDelivery(p.Delivery):
		return bad(path+".delivery", "%.40q: want %s or %s", p.Delivery, DeliveryStream, DeliveryDatagram)
	case p.Delivery == DeliveryDatagram && p.Layout == LayoutVideo:
		return bad(path+".delivery", "%q: layout W is delivered on streams", p.Delivery)
	case p.onGrid() && (t.Width < 1 || t.Height < 1 || t.Width > maxGrid || t.Height > maxGrid):
		return bad(path+".layout", "layout %s needs width and height in 1…%d, not %d×%d", p.Layout, maxGrid, t.Width,
			t.Height)
	case p.onGrid() && t.InitRef == "":
		return bad(path+".layout", "layout %s needs an initRef to the camera's geometry", p.Layout)
	}
	return nil
}

// LayoutVideo is the layout of a track whose groups have several frames (docs/spec/video-frame.md).
const LayoutVideo = "W"

// onGrid reports whether the points of a frame are the pixels of a grid.
func (p *Points) onGrid() bool { return p.Layout == "A" || p.Layout == LayoutVideo }

// PointsTrack returns the name of a camera's track at a quality.
func PointsTrack(camera int, quality string) string {
	return fmt.Sprintf("points/%d/%s", camera, quality)
}

// CameraInit is the data about a camera that a player needs before its first frame. It is sent
// inline as initialization data, as JSON in base64.
type CameraInit struct {
	// Grid holds the intrinsics of the frame's pixel grid. Players use it to compute the ray table
	// of layouts A and W.
	Grid camera.Intrinsics `json:"grid"`
	// Pose maps grid camera coordinates to session coordinates, in millimetres.
	Pose camera.Transform `json:"pose"`
	// DepthMin and DepthMax bound the depths in frames, in millimetres.
	DepthMin uint16 `json:"depthMin"`
	DepthMax uint16 `json:"depthMax"`
	// Calibration is the sensor's complete calibration, which is needed for export. It may be nil.
	Calibration *camera.Calibration `json:"calibration,omitempty"`
}

// AddInit appends init to the initialization data under id and returns id, for Track.InitRef.
func (c *Catalog) AddInit(id string, init CameraInit) (string, error) {
	b, err := json.Marshal(init)
	if err != nil {
		return "", fmt.Errorf("catalog: initialization data %q: %w", id, err)
	}
	c.InitDataList = append(c.InitDataList, InitData{ID: id, Type: "inline", Data: base64.StdEncoding.EncodeToString(b)})
	return id, nil
}

// Init returns the camera data that t.InitRef refers to.
func (c *Catalog) Init(t Track) (CameraInit, error) {
	i := slices.IndexFunc(c.InitDataList, func(d InitData) bool { return d.ID == t.InitRef })
	if t.InitRef == "" || i < 0 {
		return CameraInit{}, fmt.Errorf("catalog: track %.80q has no initialization data", t.Name)
	}
	path := fmt.Sprintf("$.initDataList[%d].data", i)
	d := c.InitDataList[i]
	if d.Type != "inline" {
		return CameraInit{}, fmt.Errorf("catalog: %s: type is %s, but camera data must be inline", path, d.Type)
	}
	b, err := base64.StdEncoding.DecodeString(d.Data)
	if err != nil {
		return CameraInit{}, fmt.Errorf("catalog: %s: %w", path, err)
	}
	var init CameraInit
	if err := decode(b, path, &init); err != nil {
		return CameraInit{}, err
	}
	if err := init.Grid.Validate(); err != nil {
		return CameraInit{}, fmt.Errorf("catalog: %s.grid: %w", path, err)
	}
	if err := init.Pose.Validate(); err != nil {
		return CameraInit{}, fmt.Errorf("catalog: %s.pose: %w", path, err)
	}
	if init.Calibration != nil {
		if err := init.Calibration.Validate(); err != nil {
			return CameraInit{}, fmt.Errorf("catalog: %s.calibration: %w", path, err)
		}
	}
	if init.DepthMin > init.DepthMax {
		return CameraInit{}, fmt.Errorf("catalog: %s.depthMin: %d mm exceeds depthMax, %d mm", path,
			init.DepthMin, init.DepthMax)
	}
	if t.Points != nil && t.Points.onGrid() && (init.Grid.Width != t.Width || init.Grid.Height != t.Height) {
		return CameraInit{}, fmt.Errorf("catalog: %s.grid: %d×%d pixels, but track %.80q has %d×%d",
			path, init.Grid.Width, init.Grid.Height, t.Name, t.Width, t.Height)
	}
	return init, nil
}

// Cameras returns the numbers of the cameras with a point-cloud track in the session's namespace,
// ascending.
func (c *Catalog) Cameras() []int {
	var cameras []int
	for _, t := range c.Tracks {
		if t.Points != nil && t.Namespace == "" {
			cameras = append(cameras, t.Points.Camera)
		}
	}
	slices.Sort(cameras)
	return slices.Compact(cameras)
}

// PointsTracks returns one camera's tracks, highest bit rate first.
func (c *Catalog) PointsTracks(camera int) []Track {
	var tracks []Track
	for _, t := range c.Tracks {
		if t.Points != nil && t.Namespace == "" && t.Points.Camera == camera {
			tracks = append(tracks, t)
		}
	}
	slices.SortStableFunc(tracks, func(a, b Track) int { return cmp.Compare(b.Bitrate, a.Bitrate) })
	return tracks
}

// Select returns a camera's track at a quality; "" selects the highest bit rate. The error lists
// the available qualities.
func (c *Catalog) Select(camera int, quality string) (Track, error) {
	tracks := c.PointsTracks(camera)
	if len(tracks) == 0 {
		return Track{}, fmt.Errorf("catalog: no camera %d, only %v", camera, c.Cameras())
	}
	if quality == "" {
		return tracks[0], nil
	}
	var have []string
	for _, t := range tracks {
		if t.Points.Quality == quality {
			return t, nil
		}
		have = append(have, t.Points.Quality)
	}
	return Track{}, fmt.Errorf("catalog: camera %d has no quality %q, only %q", camera, quality, have)
}
