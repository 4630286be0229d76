package catalog

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// vectors are the catalogs of testdata/vectors.json, which also test the web viewer's and, for sound, the Unity
// client's reader.
type vectors struct {
	Valid []struct {
		Name    string
		Objects []vectorObject // in order; each complete catalog begins a group
		Want    vectorCatalog
	}
	Invalid []struct {
		Name    string
		Objects []vectorObject // the last is invalid
		Error   string         // JSON path in the error, or a prefix of it
	}
	Poses []struct {
		Name  string
		Text  string
		Want  []vectorPose
		Error string
	}
}

// vectorObject is an object's payload: a document, invalid text, or a gzip stream in base64.
type vectorObject struct{ json.RawMessage }

func (o vectorObject) payload(t testing.TB) (payload []byte, compression properties) {
	t.Helper()
	var other struct {
		Text *string `json:"text"`
		Gzip []byte  `json:"gzip"`
	}
	if err := json.Unmarshal(o.RawMessage, &other); err != nil {
		t.Fatal(err)
	}
	switch {
	case other.Text != nil:
		return []byte(*other.Text), nil
	case other.Gzip != nil:
		return other.Gzip, properties{CompressionProperty: 1}
	}
	return o.RawMessage, nil
}

type properties map[uint64]uint64

func (p properties) Int(t uint64) (uint64, bool) { v, ok := p[t]; return v, ok }

// vectorCatalog is a player's view of a catalog.
type vectorCatalog struct {
	Complete bool             `json:"complete"`
	Tracks   []string         `json:"tracks"`
	Cameras  [][]vectorCamera `json:"cameras"` // by number; best quality first
	Poses    bool             `json:"poses"`
	Sphere   *vectorSphere    `json:"sphere,omitempty"`
	Sounds   []vectorSound    `json:"sounds,omitempty"` // microphones, by number
}

type vectorSound struct {
	Track    string    `json:"track"`
	Codec    string    `json:"codec"`
	Channels int       `json:"channels"`
	Name     string    `json:"name"`
	Position []float64 `json:"position"`
}

type vectorSphere struct {
	Video     string   `json:"video"`
	Stereo    bool     `json:"stereo"`
	Width     int      `json:"width"`
	Height    int      `json:"height"`
	Columns   int      `json:"columns"`
	Rows      int      `json:"rows"`
	Qualities int      `json:"qualities"`
	Yaw       float64  `json:"yaw"`
	Tiles     []string `json:"tiles"` // tracks, by tile and quality
	Rates     bool     `json:"rates"`
}

type vectorCamera struct {
	Track           string          `json:"track"`
	Camera          int             `json:"camera"`
	Name            string          `json:"name"`
	Quality         string          `json:"quality"`
	Layout          string          `json:"layout"`
	Descriptions    int             `json:"descriptions"`
	MaxPoints       int             `json:"maxPoints"`
	DeliveryTimeout int             `json:"deliveryTimeout"`
	Datagrams       bool            `json:"datagrams,omitempty"`
	Framerate       float64         `json:"framerate"`
	Bitrate         int64           `json:"bitrate"`
	Duration        int64           `json:"duration"`
	Timeline        *vectorTimeline `json:"timeline"`
	DepthError      *float64        `json:"depthError,omitempty"`
	Grid            []int           `json:"grid"` // width and height; nil without a lens
	Pose            [3]float64      `json:"pose"` // its translation
}

type vectorTimeline struct {
	Media     float64 `json:"media"`
	MediaStep float64 `json:"mediaStep"`
	Group     uint64  `json:"group"`
	GroupStep uint64  `json:"groupStep"`
	Wallclock float64 `json:"wallclock"`
}

type vectorPose struct {
	Camera int        `json:"camera"`
	T      [3]float64 `json:"t"`
}

func readVectors(t *testing.T) vectors {
	t.Helper()
	b, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// read reads a catalog track's objects like a player.
func read(t *testing.T, objects []vectorObject) (c *Catalog, err error) {
	t.Helper()
	var r Reader
	for _, o := range objects {
		payload, props := o.payload(t)
		if c, err = r.Read(1, payload, properties(nil), props); err != nil {
			return nil, err
		}
		for _, n := range c.Cameras() {
			for _, track := range c.PointsTracks(n) {
				if track.InitRef == "" {
					continue
				}
				if _, err := c.Init(track); err != nil {
					return nil, err
				}
			}
		}
	}
	return c, nil
}

func TestVectors(t *testing.T) {
	for _, v := range readVectors(t).Valid {
		t.Run(v.Name, func(t *testing.T) {
			c, err := read(t, v.Objects)
			if err != nil {
				t.Fatal(err)
			}
			got := vectorCatalog{Complete: c.IsComplete, Tracks: []string{}, Cameras: [][]vectorCamera{}}
			_, got.Poses = c.Poses()
			for _, track := range c.Tracks {
				got.Tracks = append(got.Tracks, track.Name)
			}
			for _, n := range c.Cameras() {
				var list []vectorCamera
				for _, track := range c.PointsTracks(n) {
					list = append(list, describe(t, c, track))
				}
				got.Cameras = append(got.Cameras, list)
			}
			got.Sphere = describeSphere(c)
			for _, t := range c.Sounds() {
				s := t.Sound
				got.Sounds = append(got.Sounds, vectorSound{t.Name, t.Codec, t.Channels(), s.MicrophoneName, s.Position})
			}
			if !reflect.DeepEqual(got, v.Want) {
				t.Errorf("got  %s\nwant %s", toJSON(got), toJSON(v.Want))
			}
		})
	}
}

func describe(t *testing.T, c *Catalog, track Track) vectorCamera {
	t.Helper()
	p := track.Points
	v := vectorCamera{
		Track: track.Name, Camera: p.Camera, Name: p.CameraName,
		Quality: p.Quality, Layout: p.Layout, Descriptions: p.Descriptions,
		MaxPoints: p.MaxPoints, DeliveryTimeout: p.DeliveryTimeout, Datagrams: p.Delivery == DeliveryDatagram,
		Framerate: track.Framerate, Bitrate: track.Bitrate, Duration: track.TrackDuration, DepthError: p.DepthError,
	}
	if m := track.Template; m != (Template{}) {
		v.Timeline = &vectorTimeline{m.Media, m.MediaStep, m.Location[0], m.Step[0], m.Wallclock}
	}
	if track.InitRef != "" {
		init, err := c.Init(track)
		if err != nil {
			t.Fatal(err)
		}
		v.Grid, v.Pose = []int{init.Grid.Width, init.Grid.Height}, init.Pose.T
	}
	return v
}

func describeSphere(c *Catalog) *vectorSphere {
	track := c.Sphere()
	if track == nil {
		return nil
	}
	s := track.Sphere
	v := &vectorSphere{
		Video: track.Name, Stereo: s.Eyes() == 2, Width: s.Width, Height: s.Height,
		Columns: s.Columns, Rows: s.Rows, Qualities: s.Qualities,
		Yaw: s.Yaw, Tiles: []string{},
	}
	for i := range s.Tiles() {
		for _, t := range c.TileTracks(i) {
			v.Tiles = append(v.Tiles, t.Name)
		}
	}
	v.Rates = slices.ContainsFunc(c.Tracks, func(t Track) bool { return t.EventType == RatesEventType })
	return v
}

func TestInvalidVectors(t *testing.T) {
	for _, v := range readVectors(t).Invalid {
		t.Run(v.Name, func(t *testing.T) {
			if n := len(v.Objects) - 1; n > 0 {
				if _, err := read(t, v.Objects[:n]); err != nil {
					t.Fatalf("an object before the wrong one: %v", err)
				}
			}
			c, err := read(t, v.Objects)
			if err == nil {
				t.Fatalf("taken: %s", toJSON(c))
			}
			if got := errorPath(err); !inside(got, v.Error) {
				t.Errorf("the error names %q, want %q: %v", got, v.Error, err)
			}
		})
	}
}

func TestPoseVectors(t *testing.T) {
	for _, v := range readVectors(t).Poses {
		t.Run(v.Name, func(t *testing.T) {
			events, err := ParsePoses([]byte(v.Text))
			if v.Error != "" {
				if err == nil || !inside(errorPath(err), v.Error) {
					t.Errorf("error %v, want one that names %q", err, v.Error)
				}
				return
			}
			var got []vectorPose
			for _, e := range events {
				got = append(got, vectorPose{e.Data.Camera, e.Data.Pose.T})
			}
			if err != nil || !slices.Equal(got, v.Want) {
				t.Errorf("got %+v, %v, want %+v", got, err, v.Want)
			}
		})
	}
}

var pathOf = regexp.MustCompile(`catalog: (\S+): `)

// errorPath returns the JSON path in one of this package's errors.
func errorPath(err error) string {
	if m := pathOf.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	return ""
}

func inside(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func toJSON(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// FuzzReader checks that every catalog that Reader accepts, compressed or not, can be marshalled.
func FuzzReader(f *testing.F) {
	b, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		f.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(b, &v); err != nil {
		f.Fatal(err)
	}
	for _, c := range v.Valid {
		for _, o := range c.Objects {
			payload, props := o.payload(f)
			f.Add(payload, props[CompressionProperty])
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte, compression uint64) {
		r := Reader{current: studio(t), group: 1, intact: true}
		before := toJSON(r.current)
		base := r.current
		c, err := r.Read(1, payload, properties{CompressionProperty: compression})
		if after := toJSON(base); after != before {
			t.Fatalf("changed the catalog before from\n%s to\n%s", before, after)
		}
		if err != nil {
			return
		}
		if _, err := c.Marshal(); err != nil && !strings.Contains(err.Error(), "bytes, more than") {
			t.Fatalf("accepted but cannot be marshalled: %v", err)
		}
	})
}
