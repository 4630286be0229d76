package catalog

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"holocast/internal/camera"
)

func studio(t testing.TB) *Catalog {
	t.Helper()
	c := &Catalog{Version: Version, GeneratedAt: 1790000000000}
	group := 1
	for cam := range 2 {
		id, err := c.AddInit("camera-"+string(rune('0'+cam)), CameraInit{
			Grid: camera.Intrinsics{Width: 640, Height: 576, Fx: 504, Fy: 504.5, Cx: 320, Cy: 288, K: [6]float64{0.1, 0.2}},
			Pose: camera.Identity, DepthMin: 500, DepthMax: 3860,
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, quality := range []string{"low", "full"} {
			c.Tracks = append(c.Tracks, Track{
				Name: PointsTrack(cam, quality), Packaging: PackagingPoints, IsLive: true, Role: RolePoints,
				RenderGroup: &group, InitRef: id, Width: 640, Height: 576, Framerate: 30, Bitrate: int64(1+i) * 50e6,
				Points: &Points{
					Camera: cam, CameraName: "kinect", Quality: quality, Layout: "A",
					Descriptions: 1, MaxPoints: 640 * 576, DeliveryTimeout: 200,
				},
			})
		}
	}
	c.Tracks = append(c.Tracks, NewPoseTrack(PointsTrack(0, "full"), PointsTrack(1, "full")), NewClockTrack(),
		Track{Name: "video", Packaging: PackagingLOC, IsLive: true, Role: RoleVideo, Codec: "avc1.64001f", Bitrate: 2e6})
	return c
}

func TestRoundTrip(t *testing.T) {
	want := studio(t)
	b, err := want.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Tracks, want.Tracks) || !slices.Equal(got.InitDataList, want.InitDataList) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if bytes.Index(b, []byte(`"initDataList"`)) < bytes.Index(b, []byte(`"tracks"`)) {
		t.Error("initDataList comes before tracks")
	}
}

func TestEmptyTracksAreWritten(t *testing.T) {
	b, err := (&Catalog{Version: Version, IsComplete: true}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"version":"draft-01","isComplete":true,"tracks":[]}`; string(b) != want {
		t.Errorf("got %s, want %s", b, want)
	}
}

func TestUnknownFieldsAreIgnored(t *testing.T) {
	c, err := Parse([]byte(`{"version":"draft-01","x":{"y":[1]},"tracks":[
		{"name":"v","packaging":"loc","isLive":true,"com.example-tier":"premium","authInfo":{"cat":"%t%"}},
		{"name":"sub","packaging":"catalog"},
		{"name":"odd","packaging":"of the future"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Tracks) != 3 || len(c.Cameras()) != 0 {
		t.Errorf("got %+v", c)
	}
}

func TestSelection(t *testing.T) {
	c := studio(t)
	if got := c.Cameras(); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("cameras %v", got)
	}
	tests := []struct {
		name    string
		choose  func() (Track, error)
		want    string
		wantErr string
	}{
		{"named quality", func() (Track, error) { return c.Select(1, "low") }, "points/1/low", ""},
		{"best quality", func() (Track, error) { return c.Select(0, "") }, "points/0/full", ""},
		{
			"unknown quality",
			func() (Track, error) { return c.Select(0, "ultra") },
			"",
			`camera 0 has no quality "ultra", only ["full" "low"]`,
		},
		{"unknown camera", func() (Track, error) { return c.Select(7, "") }, "", "no camera 7, only [0 1]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.choose()
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil || got.Name != tt.want {
				t.Errorf("got %q, %v, want %q", got.Name, err, tt.want)
			}
		})
	}
}

func TestInit(t *testing.T) {
	c := studio(t)
	init, err := c.Init(c.Tracks[0])
	if err != nil {
		t.Fatal(err)
	}
	if init.Grid.Fy != 504.5 || init.Pose != camera.Identity || init.DepthMax != 3860 {
		t.Errorf("got %+v", init)
	}
	tests := []struct {
		name    string
		entry   InitData
		wantErr string
	}{
		{"not base64", InitData{"camera-0", "inline", "%%"}, "$.initDataList[0].data: illegal base64"},
		{"not JSON", InitData{"camera-0", "inline", "AAAA"}, "$.initDataList[0].data: byte 1"},
		{"null", InitData{"camera-0", "inline", "bnVsbA=="}, "$.initDataList[0].data: null"},
		{"no lens", InitData{"camera-0", "inline", "e30="}, "$.initDataList[0].data.grid: image size 0×0"},
		{"not inline", InitData{"camera-0", "track-property", "0x79"}, "must be inline"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := studio(t)
			c.InitDataList[0] = tt.entry
			_, err := c.Init(c.Tracks[0])
			if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error %v, want %q", err, tt.wantErr)
			}
		})
	}
	c.Tracks[0].Width++
	if _, err := c.Init(c.Tracks[0]); err == nil || !strings.Contains(err.Error(), "640×576 pixels, but") {
		t.Errorf("grid of another size: %v", err)
	}
}

func TestBadCatalogs(t *testing.T) {
	tests := []struct{ name, doc, wantErr string }{
		{"empty", ``, "$: byte 0"},
		{"null", `null`, "$: null"},
		{"not an object", `[]`, "$: a JSON array, want an object"},
		{"no version", `{"tracks":[]}`, "$.version: missing"},
		{"future version", `{"version":"draft-99","tracks":[]}`, `$.version: "draft-99" is not supported`},
		{"no tracks", `{"version":"1"}`, "$.tracks: missing"},
		{"tracks not a list", `{"version":"1","tracks":{}}`, "$.tracks: a JSON object, want an array"},
		{"null track", `{"version":"1","tracks":[null]}`, "$.tracks[0]: null"},
		{"no name", `{"version":"1","tracks":[{"packaging":"loc"}]}`, "$.tracks[0].name: missing"},
		{"no packaging", `{"version":"1","tracks":[{"name":"a"}]}`, "$.tracks[0].packaging: missing"},
		{
			"wrong type",
			`{"version":"1","tracks":[{"name":"a","packaging":"loc","bitrate":"fast"}]}`,
			"$.tracks[0].bitrate: a JSON string, want a whole number in range",
		},
		{
			"wrong type inside",
			`{"version":"1","tracks":[{"name":"a","packaging":"hcpf","hcpf":{"camera":[]}}]}`,
			"$.tracks[0].hcpf.camera: a JSON array",
		},
		{
			"negative size",
			`{"version":"1","tracks":[{"name":"a","packaging":"loc","width":-1}]}`,
			"$.tracks[0].width: -1 is negative or not finite",
		},
		{
			"same name twice",
			`{"version":"1","tracks":[{"name":"a","packaging":"loc"},{"name":"a","packaging":"loc"}]}`,
			"$.tracks[1].name",
		},
		{
			"dangling initRef",
			`{"version":"1","tracks":[{"name":"a","packaging":"loc","initRef":"x"}]}`,
			"$.tracks[0].initRef",
		},
		{
			"same init id twice",
			`{"version":"1","tracks":[],"initDataList":[{"id":"a","type":"inline"},{"id":"a","type":"inline"}]}`,
			"$.initDataList[1].id",
		},
		{
			"unknown init type",
			`{"version":"1","tracks":[],"initDataList":[{"id":"a","type":"url"}]}`,
			"$.initDataList[0].type",
		},
		{"points without fields", `{"version":"1","tracks":[{"name":"a","packaging":"hcpf"}]}`, "$.tracks[0].hcpf: missing"},
		{
			"points fields elsewhere",
			`{"version":"1","tracks":[{"name":"a","packaging":"loc","hcpf":{}}]}`,
			"$.tracks[0].hcpf: not allowed",
		},
		{
			"layout",
			`{"version":"1","tracks":[{"name":"a","packaging":"hcpf","hcpf":{"layout":"Z"}}]}`,
			"$.tracks[0].hcpf.layout",
		},
		{
			"too many points",
			`{"version":"1","tracks":[{"name":"a","packaging":"hcpf","hcpf":{"layout":"B","descriptions":1,"maxPoints":99999999}}]}`,
			"$.tracks[0].hcpf.maxPoints",
		},
		{
			"A without a grid",
			`{"version":"1","tracks":[{"name":"a","packaging":"hcpf","hcpf":{"layout":"A","descriptions":1,"maxPoints":9}}]}`,
			"layout A needs width and height",
		},
		{
			"tile as video",
			`{"version":"1","tracks":[{"name":"tiles/1/high","packaging":"loc","role":"video"}]}`,
			"$.tracks[0].role",
		},
		{
			"event type missing",
			`{"version":"1","tracks":[{"name":"a","packaging":"eventtimeline"}]}`,
			"$.tracks[0].eventType",
		},
		{
			"live with a duration",
			`{"version":"1","tracks":[{"name":"a","packaging":"loc","isLive":true,"trackDuration":5}]}`,
			"$.tracks[0].trackDuration",
		},
		{"too large", strings.Repeat(" ", MaxSize+1), "1048577 bytes, more than 1048576"},
		{"too many tracks", `{"version":"1","tracks":[` + strings.Repeat("0,", maxTracks) + `0]}`, "$.tracks: 4097 entries"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse([]byte(tt.doc))
			if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error %v, want %q", err, tt.wantErr)
			}
		})
	}
}

func TestDelta(t *testing.T) {
	before := studio(t)
	snapshot, err := before.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse([]byte(`{"generatedAt":1,"deltaUpdate":[]}`)); !errors.Is(err, ErrDelta) {
		t.Errorf("Parse of a delta: %v, want ErrDelta", err)
	}
	after, err := before.Apply([]byte(`{"generatedAt":5,"deltaUpdate":[
		{"op":"update","tracks":[{"name":"points/0/full","bitrate":7,"renderGroup":9,"hcpf":
			{"camera":0,"quality":"full","layout":"A","descriptions":4,"maxPoints":5}}]},
		{"op":"clone","tracks":[{"parentName":"video","name":"video-2","bitrate":3,"buffers":{"target":100}}]},
		{"op":"update","tracks":[{"parentName":"video-2","buffers":{"min":50}}]},
		{"op":"remove","tracks":[{"name":"points/1/low"}]},
		{"op":"add","tracks":[{"name":"audio","packaging":"loc","isLive":true}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	full, err := after.Select(0, "full")
	if err != nil {
		t.Fatal(err)
	}
	if full.Bitrate != 7 || *full.RenderGroup != 9 || full.Points.Descriptions != 4 || full.Points.CameraName != "" ||
		full.Framerate != 30 {
		t.Errorf("updated track: %+v %+v", full, full.Points)
	}
	if got := len(after.PointsTracks(1)); got != 1 {
		t.Errorf("camera 1 has %d tracks, want 1", got)
	}
	clone := after.Tracks[slices.IndexFunc(after.Tracks, func(t Track) bool { return t.Name == "video-2" })]
	if clone.Codec != "avc1.64001f" || clone.Bitrate != 3 || *clone.Buffers != (Buffers{Min: 50}) {
		t.Errorf("cloned track: %+v %+v", clone, clone.Buffers)
	}
	if after.Tracks[len(after.Tracks)-1].Name != "audio" || after.GeneratedAt != 5 {
		t.Errorf("after: %+v", after)
	}
	if now, err := before.Marshal(); err != nil || !bytes.Equal(now, snapshot) {
		t.Errorf("Apply changed the catalog it was called on: %v", err)
	}
}

func TestDeltaWithoutBase(t *testing.T) {
	whole := []byte(`{"version":"draft-01","tracks":[{"name":"a","packaging":"loc","isLive":true}]}`)
	clone := func(parent, name string) []byte {
		return fmt.Appendf(nil, `{"generatedAt":1,"deltaUpdate":[{"op":"clone","tracks":[{"parentName":%q,"name":%q}]}]}`,
			parent, name)
	}
	var r Reader
	for i, step := range []struct {
		group   uint64
		payload []byte
		tracks  int // 0: refused
		noBase  bool
	}{
		{1, clone("a", "b"), 0, true},
		{1, whole, 1, false},
		{1, clone("a", "b"), 2, false},
		{2, clone("a", "c"), 0, true}, // group 2's catalog is missing
		{1, clone("x", "c"), 0, false},
		{1, clone("a", "c"), 0, true}, // may depend on the refused update
		{2, whole, 1, false},
		{2, clone("a", "c"), 2, false},
	} {
		c, err := r.Read(step.group, step.payload)
		if errors.Is(err, ErrNoBase) != step.noBase || (err == nil) != (step.tracks > 0) {
			t.Fatalf("step %d: error %v", i, err)
		}
		if err == nil && len(c.Tracks) != step.tracks {
			t.Errorf("step %d: %d tracks, want %d", i, len(c.Tracks), step.tracks)
		}
	}
}

func TestBadDeltas(t *testing.T) {
	tests := []struct{ name, doc, wantErr string }{
		{"no operation", `{"generatedAt":1,"deltaUpdate":[]}`, "$.deltaUpdate: missing or empty"},
		{"no time", `{"deltaUpdate":[{}]}`, "$.generatedAt: missing"},
		{"with version", `{"version":"1","generatedAt":1,"deltaUpdate":[{}]}`, "$.version: not allowed"},
		{
			"unknown operation",
			`{"generatedAt":1,"deltaUpdate":[{"op":"melt","tracks":[{"parentName":"video"}]}]}`,
			`operation "melt"`,
		},
		{
			"unknown track",
			`{"generatedAt":1,"deltaUpdate":[{"op":"remove","tracks":[{"name":"x"}]}]}`,
			`$.deltaUpdate[0].tracks[0]: no track "x" to remove`,
		},
		{
			"clone without name",
			`{"generatedAt":1,"deltaUpdate":[{"op":"clone","tracks":[{"parentName":"video"}]}]}`,
			"$.deltaUpdate[0].tracks[0].name",
		},
		{
			"name taken",
			`{"generatedAt":1,"deltaUpdate":[{"op":"add","tracks":[{"name":"video","packaging":"loc"}]}]}`,
			"catalog: $.deltaUpdate[0].tracks[0].name",
		},
		{
			"wrong type",
			`{"generatedAt":1,"deltaUpdate":[{"op":"update","tracks":[{"name":"video","codec":1}]}]}`,
			"$.deltaUpdate[0].tracks[0].codec",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := studio(t).Apply([]byte(tt.doc))
			if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error %v, want %q", err, tt.wantErr)
			}
		})
	}
}

func TestPoses(t *testing.T) {
	if b, err := MarshalPoses(nil); err != nil || string(b) != "[]" {
		t.Errorf("no events: %s, %v, want []", b, err)
	}
	want := []PoseEvent{{T: 1790000000000, Data: Pose{Camera: 2, Pose: camera.Identity}}}
	b, err := MarshalPoses(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParsePoses(b)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := ParsePoses([]byte(`[{"T":"now"}]`)); err == nil ||
		!strings.Contains(err.Error(), "poses[0].T: a JSON string") {
		t.Errorf("error %v", err)
	}
}

func TestDecompress(t *testing.T) {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write(make([]byte, 2*MaxSize)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Decompress(z.Bytes(), 1); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("gzip bomb: %v", err)
	}
	if _, err := Decompress(nil, 9); err == nil || !strings.Contains(err.Error(), "MSF_COMPRESSION 9") {
		t.Errorf("unknown compression: %v", err)
	}
	z.Reset()
	w.Reset(&z)
	if _, err := w.Write([]byte("{}")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := Decompress(z.Bytes(), 1); err != nil || string(b) != "{}" {
		t.Errorf("got %q, %v", b, err)
	}
}

// FuzzParse checks that Parse accepts the Marshal output of every accepted catalog, and that delta
// updates yield catalogs that can be marshalled.
func FuzzParse(f *testing.F) {
	b, err := studio(f).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"generatedAt":5,"deltaUpdate":[{"op":"update","tracks":[{"name":"video","bitrate":7}]}]}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		base := studio(t)
		if c, err := base.Apply(doc); err == nil {
			base = c
		}
		if c, err := Parse(doc); err == nil {
			base = c
		}
		for _, track := range base.Tracks {
			_, _ = base.Init(track) // must not panic; most fuzzed initialization data is invalid
		}
		out, err := base.Marshal()
		if err != nil {
			if !strings.Contains(err.Error(), "bytes, more than") {
				t.Fatalf("accepted but cannot be marshalled: %v", err)
			}
			return
		}
		again, err := Parse(out)
		if err != nil {
			t.Fatalf("own output refused: %v\n%s", err, out)
		}
		a, _ := json.Marshal(base)
		b, _ := json.Marshal(again)
		if !bytes.Equal(a, b) {
			t.Fatalf("round trip changed\n%s\n%s", a, b)
		}
	})
}
