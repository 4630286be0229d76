package points

import (
	"testing"
	"testing/synctest"
	"time"

	"holocast/capture-server/publish/publishtest"
	"holocast/internal/catalog"
	"holocast/internal/pointcloud"
	"holocast/internal/pointvideo"
)

// high returns a medium with tracks in layout W, its pipeline and the track of quality low.
func high(t *testing.T, cfg Config) (*Medium, *pipeline, *pointsTrack) {
	t.Helper()
	cfg.High = true
	m := newMedium(t, cfg, newStill(t))
	l := m.pipelines[0]
	return m, l, l.tracks[len(l.tracks)-1]
}

// publishFrames publishes n captures.
func publishFrames(l *pipeline, n int) {
	for range n {
		now := time.Now()
		f := l.src.(*still).frame
		f.CaptureTime = now
		l.sequence++
		l.publish(&capture{Frame: f, sequence: l.sequence - 1, taken: now})
	}
}

// TestVideoGroups checks that each group begins with a key frame, and that a viewer's request
// begins a new group.
func TestVideoGroups(t *testing.T) { synctest.Test(t, testVideoGroups) }

func testVideoGroups(t *testing.T) {
	m, l, track := high(t, Config{AlwaysEncode: true, Descriptions: 4})
	v := track.video
	publishFrames(l, 3)
	v.request(v.group) // the group after the current one
	publishFrames(l, 1)
	if !v.renew.Load() {
		t.Error("a group begins less than 250 ms after the last one")
	}
	time.Sleep(renewInterval)
	publishFrames(l, 2)
	v.request(v.group - 1)
	if v.renew.Load() {
		t.Error("a request of the current group begins another")
	}
	time.Sleep(keyInterval)
	publishFrames(l, 2)
	d, err := pointvideo.NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var g pointcloud.Grid
	objects := publishtest.Objects(t, m.session, track.Track.Name().Name)
	if len(objects) != 8 {
		t.Errorf("%d objects are cached, want 8: a viewer may still receive an earlier group", len(objects))
	}
	for i, object := range objects {
		h, err := d.Decode(&g, object)
		if err != nil {
			t.Fatal(err)
		}
		_, index, _ := pointvideo.ParseHeader(object)
		if h.Points == 0 || h.Sequence != uint32(i) || index != []int{0, 1, 2, 3, 0, 1, 0, 1}[i%8] {
			t.Errorf("object %d: sequence %d, index %d, %d points", i, h.Sequence, index, h.Points)
		}
	}
	if v.object != 2 {
		t.Errorf("the group has %d objects, want 2", v.object)
	}
}

// TestVideoRests checks that an unwatched track encodes nothing and keeps no old frames for the
// next viewer.
func TestVideoRests(t *testing.T) {
	_, l, track := high(t, Config{})
	now := time.Now()
	l.want(now)
	if track.due.Load() || track.video.encoder != nil {
		t.Error("a track without viewers encodes")
	}
	track.due.Store(true) // as if watched
	publishFrames(l, 1)
	if track.video.feed == nil {
		t.Fatal("nothing is published")
	}
	l.want(now)
	if track.video.feed != nil {
		t.Error("the group of an unwatched track stays open")
	}
	if l, _ := track.Largest(); l.Object != 0 || l.Group != track.video.group-1 {
		t.Errorf("largest location %+v, want an empty group", l)
	}
}

// TestVideoAnnouncesDepthError checks that the catalog has the depth error once a track is watched, and
// again after it has changed.
func TestVideoAnnouncesDepthError(t *testing.T) {
	m, l, track := high(t, Config{AlwaysEncode: true})
	announced := func() float64 {
		t.Helper()
		c := catalog.Catalog{Version: catalog.Version}
		if err := m.Describe(&c); err != nil {
			t.Fatal(err)
		}
		x, err := c.Select(0, track.quality)
		if err != nil {
			t.Fatal(err)
		}
		if x.Points.DepthError == nil {
			return 0
		}
		return *x.Points.DepthError
	}
	v := track.video
	if v.announce() || announced() != 0 {
		t.Errorf("error %g mm before the first frame", announced())
	}
	publishFrames(l, 2)
	if !v.announce() || announced() <= 0 {
		t.Errorf("error %g mm after two frames", announced())
	}
	fine := announced()
	if v.announce() {
		t.Error("an unchanged error is announced again")
	}
	v.encoder.SetQP(51, 51)
	v.rest() // the next frame is a key frame
	publishFrames(l, 1)
	for range 10 {
		v.announce()
	}
	if coarse := announced(); coarse < 1.25*fine {
		t.Errorf("error %g mm with coarser quantizers, before %g mm", coarse, fine)
	}
	v.rest()
	if v.announce() || announced() < 1.25*fine {
		t.Error("the error of an unwatched track changes")
	}
}

func TestVideoDescribed(t *testing.T) {
	m, _, _ := high(t, Config{Descriptions: 4, Delivery: catalog.DeliveryDatagram})
	c := catalog.Catalog{Version: catalog.Version}
	if err := m.Describe(&c); err != nil {
		t.Fatal(err)
	}
	track, err := c.Select(0, "high")
	if err != nil {
		t.Fatal(err)
	}
	if p := track.Points; p.Layout != catalog.LayoutVideo || p.Descriptions != 1 || p.Delivery != catalog.DeliveryStream {
		t.Errorf("%+v", p)
	}
	if _, err := c.Marshal(); err != nil {
		t.Error(err)
	}
}
