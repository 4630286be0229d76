package spherical

import (
	"bytes"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holocast/internal/mp4box"
)

// movie returns an MP4 file without media: a sound track, then a video track with the given boxes
// in its sample entry and after its media.
func movie(entry, beside []byte) []byte {
	track := func(handler string, entry, beside []byte) []byte {
		stsd := mp4box.Append(nil, "stsd", []byte{0, 0, 0, 0, 0, 0, 0, 1},
			mp4box.Append(nil, "avc1", make([]byte, visualHeader), entry))
		minf := mp4box.Append(nil, "minf", mp4box.Append(nil, "stbl", stsd))
		hdlr := mp4box.Append(nil, "hdlr", make([]byte, 8), []byte(handler), make([]byte, 13))
		return mp4box.Append(nil, "trak", mp4box.Append(nil, "mdia", hdlr, minf), beside)
	}
	b := mp4box.Append(nil, "ftyp", []byte("isom\x00\x00\x00\x00"))
	return mp4box.Append(b, "moov", mp4box.Append(nil, "mvhd", make([]byte, 100)), track("soun", nil, nil),
		track("vide", entry, beside))
}

func parse(b []byte) (Metadata, error) { return Parse(bytes.NewReader(b), int64(len(b))) }

func v1(xml string) []byte { return mp4box.Append(nil, "uuid", v1ID[:], []byte(xml)) }

func vexu(projection string) []byte {
	return mp4box.Append(nil, "vexu", mp4box.Append(nil, "proj", mp4box.Append(nil, "prji", make([]byte, 4),
		[]byte(projection))))
}

// TestWritten checks that both versions preserve a rotation.
func TestWritten(t *testing.T) {
	for _, want := range []Metadata{
		{Yaw: 30},
		{Pitch: -40},
		{Roll: 50},
		{Yaw: -170, Pitch: 80, Roll: 10},
		{Yaw: 20, Pitch: 90},
		{Stereo: TopBottom, Yaw: 180},
	} {
		v2, err := parse(movie(SampleEntryBoxes(want), nil))
		if err != nil || math.Abs(math.Remainder(v2.Yaw-want.Yaw, 360)) > 1e-4 || v2.Pitch != want.Pitch ||
			v2.Roll != want.Roll {
			t.Errorf("%+v: V2 %+v, %v", want, v2, err)
		}
		v1, err := parse(movie(nil, TrackBox(want)))
		if err != nil || math.Abs(math.Remainder(v1.Yaw-want.Yaw, 360)) > 3 || math.Abs(v1.Pitch-want.Pitch) > 1 ||
			math.Abs(v1.Roll-want.Roll) > 3 { // V1 stores the initial view in whole degrees
			t.Errorf("%+v: V1 %+v, %v", want, v1, err)
		}
	}
}

func TestParse(t *testing.T) {
	turned := mp4box.Append(nil, "sv3d",
		mp4box.Append(nil, "proj",
			mp4box.Append(nil, "prhd", []byte{0, 0, 0, 0, 0, 90, 0x80, 0, 0xff, 0xf6, 0, 0, 0, 5, 0, 0}),
			mp4box.Append(nil, "equi", make([]byte, 20))))
	half := mp4box.Append(nil, "sv3d",
		mp4box.Append(nil, "proj", mp4box.Append(nil, "equi", make([]byte, 12), []byte{0x40, 0, 0, 0, 0x40, 0, 0, 0})))
	for _, tt := range []struct {
		name string
		file []byte
		want Metadata
	}{
		{"nothing", movie(nil, nil), Metadata{}},
		{
			"V2 mono", movie(SampleEntryBoxes(Metadata{Stereo: Mono}), nil),
			Metadata{Projection: Equirectangular, Stereo: Mono},
		},
		{
			"V2 top-bottom", movie(SampleEntryBoxes(Metadata{Stereo: TopBottom}), nil),
			Metadata{Projection: Equirectangular, Stereo: TopBottom},
		},
		{
			"V2 side-by-side", movie(SampleEntryBoxes(Metadata{Stereo: SideBySide}), nil),
			Metadata{Projection: Equirectangular, Stereo: SideBySide},
		},
		{"V2 turned", movie(turned, nil), Metadata{Projection: Equirectangular, Yaw: -90.5, Pitch: -10, Roll: -5}},
		{"V2 part", movie(half, nil), Metadata{Projection: Equirectangular, Part: true}},
		{
			"V2 cube", movie(mp4box.Append(nil, "sv3d",
				mp4box.Append(nil, "proj", mp4box.Append(nil, "cbmp", make([]byte, 8)))), nil),
			Metadata{Projection: Cubemap},
		},
		{"V1", movie(nil, TrackBox(Metadata{Stereo: TopBottom})), Metadata{Projection: Equirectangular, Stereo: TopBottom}},
		{
			"V1 side-by-side, V2 mono", movie(SampleEntryBoxes(Metadata{Stereo: Mono}), TrackBox(Metadata{Stereo: SideBySide})),
			Metadata{Projection: Equirectangular, Stereo: Mono},
		},
		{
			"V1 of other tools", movie(nil, v1(`<rdf:SphericalVideo><GSpherical:Spherical>true</GSpherical:Spherical>`+
				`<GSpherical:InitialViewHeadingDegrees>45</GSpherical:InitialViewHeadingDegrees></rdf:SphericalVideo>`)),
			Metadata{Projection: Equirectangular, Yaw: -45},
		},
		{
			"V1 looking up", movie(nil, v1(`<a><Spherical>true</Spherical>`+
				`<InitialViewPitchDegrees>30</InitialViewPitchDegrees></a>`)),
			Metadata{Projection: Equirectangular, Pitch: -30},
		},
		{
			"V1 rolled view", movie(nil, v1(`<a><Spherical>true</Spherical>`+
				`<InitialViewRollDegrees>90</InitialViewRollDegrees></a>`)),
			Metadata{Projection: Equirectangular, Roll: 90},
		},
		{
			"V1 whole without a cropped area", movie(nil, v1(`<a><Spherical>true</Spherical>`+
				`<FullPanoWidthPixels>1920</FullPanoWidthPixels><FullPanoHeightPixels>960</FullPanoHeightPixels></a>`)),
			Metadata{Projection: Equirectangular},
		},
		{
			"V2 right-left", movie(mp4box.Append(nil, "st3d", []byte{0, 0, 0, 0, 4}), nil),
			Metadata{Stereo: SideBySide, RightFirst: true},
		},
		{"V2 custom", movie(mp4box.Append(nil, "st3d", []byte{0, 0, 0, 0, 3}), nil), Metadata{Stereo: Custom}},
		{
			"V2 half", movie(mp4box.Append(nil, "sv3d",
				mp4box.Append(nil, "proj", mp4box.Append(nil, "hequ", make([]byte, 4)))), nil),
			Metadata{Projection: Equirectangular, Part: true},
		},
		{"Apple's whole sphere", movie(vexu("equi"), nil), Metadata{Projection: Equirectangular}},
		{"Apple's half sphere", movie(vexu("hequ"), nil), Metadata{Projection: Equirectangular, Part: true}},
		{"Apple's wide angle", movie(vexu("prim"), nil), Metadata{Projection: "fisheye"}},
		{"Apple's plane", movie(vexu("rect"), nil), Metadata{}},
		{
			"a camera's data behind the last box",
			append(movie(SampleEntryBoxes(Metadata{Stereo: Mono}), nil), "inst \x00\x00\x00\x00vendor's trailer"...),
			Metadata{Projection: Equirectangular, Stereo: Mono},
		},
		{
			"zeros behind the last box", append(movie(nil, TrackBox(Metadata{})), make([]byte, 100)...),
			Metadata{Projection: Equirectangular, Stereo: Mono},
		},
		{
			"a media box per frame before the index", append(
				bytes.Repeat(mp4box.Append(nil, "mdat", nil), 1<<15), movie(nil, TrackBox(Metadata{}))...),
			Metadata{Projection: Equirectangular, Stereo: Mono},
		},
		{
			"fragments behind the index", append(movie(nil, TrackBox(Metadata{})),
				bytes.Repeat(append(mp4box.Append(nil, "moof", nil), mp4box.Append(nil, "mdat", nil)...), 1<<14)...),
			Metadata{Projection: Equirectangular, Stereo: Mono},
		},
		{
			"V1 part",
			movie(nil,
				v1(`<a><Spherical>true</Spherical><CroppedAreaImageWidthPixels>960</CroppedAreaImageWidthPixels>`+
					`<FullPanoWidthPixels>1920</FullPanoWidthPixels></a>`)),
			Metadata{Projection: Equirectangular, Part: true},
		},
		{"V1 not spherical", movie(nil, v1(`<a><Spherical>false</Spherical></a>`)), Metadata{}},
		{"V1 no XML", movie(nil, v1("<<<")), Metadata{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parse(tt.file)
			if err != nil || got != tt.want {
				t.Errorf("got %+v, %v\nwant %+v", got, err, tt.want)
			}
		})
	}
}

func TestHostileBoxes(t *testing.T) {
	deep := []byte("x")
	for range 30 {
		deep = mp4box.Append(nil, "mdia", deep)
	}
	for _, tt := range []struct {
		name string
		file []byte
		want string
	}{
		{"empty", nil, "not an MP4 file"},
		{"text", []byte("hello, this is no film"), "not an MP4 file"},
		{"raw H.264", []byte("\x00\x00\x00\x01\x67\x64\x00\x1f\xac\xd9\x40\x50\x05\xbb\x01\x6c\x80"), "not an MP4 file"},
		{"size below a header", []byte("\x00\x00\x00\x04ftypisom"), `box "ftyp" at 0 has invalid size 4`},
		{
			"huge size", []byte("\x00\x00\x00\x01ftyp\xff\xff\xff\xff\xff\xff\xff\xff"),
			"has invalid size 18446744073709551615",
		},
		{
			"child longer than its parent",
			append(mp4box.Append(nil, "ftyp", nil), mp4box.Append(nil, "moov", []byte("\x00\x00\x10\x00trak"))...),
			"is longer than its parent",
		},
		{"nested", mp4box.Append(nil, "moov", mp4box.Append(nil, "trak", deep)), "nested deeper than 12"},
		{"a leaf too long", mp4box.Append(nil, "moov",
			mp4box.Append(nil, "trak",
				mp4box.Append(nil, "mdia", mp4box.Append(nil, "hdlr", make([]byte, maxLeaf+1))))), "more than 1048576"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if m, err := parse(tt.file); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %+v, error %v, want %q", m, err, tt.want)
			}
		})
	}
}

func TestTruncated(t *testing.T) {
	media := mp4box.Append(nil, "mdat", make([]byte, 100))
	index := movie(SampleEntryBoxes(Metadata{Stereo: TopBottom}), nil)
	var cut *TruncatedError
	m, err := parse(append(index, media[:50]...))
	if !errors.As(err, &cut) || !cut.Index || cut.Bytes != 58 || m.Stereo != TopBottom {
		t.Errorf("index before media: %+v, %v", m, err)
	}
	for name, b := range map[string][]byte{
		"media":          append(mp4box.Append(nil, "ftyp", nil), media[:50]...),
		"behind media":   append(mp4box.Append(nil, "ftyp", nil), media...),
		"in the index":   index[:len(index)-10],
		"only the start": index[:16],
	} {
		if _, err := parse(b); !errors.As(err, &cut) || cut.Index {
			t.Errorf("cut off %s: %v", name, err)
		}
	}
}

// TestTag checks that Parse and FFmpeg read Tag's metadata.
func TestTag(t *testing.T) {
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("ffmpeg is not installed")
	}
	path := filepath.Join(t.TempDir(), "a.mp4")
	if out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-f", "lavfi", "-i",
		"testsrc=size=64x32:rate=5:duration=1",
		"-f", "lavfi", "-i", "sine=duration=1", "-map", "1", "-map", "0", "-c:v", "libx264", path).
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := Tag(path, Metadata{Stereo: TopBottom, Yaw: 20, Pitch: 10}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := parse(b); err != nil ||
		m != (Metadata{Projection: Equirectangular, Stereo: TopBottom, Yaw: 20, Pitch: 10}) {
		t.Errorf("parsed %+v, %v", m, err)
	}
	out, err := exec.CommandContext(t.Context(), "ffprobe", "-v", "error", "-select_streams", "v", "-show_streams",
		path).
		CombinedOutput()
	if err != nil || !strings.Contains(string(out), "projection=equirectangular") ||
		!strings.Contains(string(out), "type=top and bottom") {
		t.Errorf("ffprobe: %v: %s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-i", path, "-f", "null", "-").
		CombinedOutput(); err != nil ||
		len(out) > 0 {
		t.Errorf("it does not play: %v: %s", err, out)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(movie(SampleEntryBoxes(Metadata{Stereo: TopBottom}), TrackBox(Metadata{Stereo: SideBySide})))
	f.Add(movie(nil, nil)[:40])
	f.Add([]byte("\x00\x00\x00\x01ftyp\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parse(b)
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("a message of %d bytes", len(err.Error()))
		}
		if len(m.Projection) > len(b) {
			t.Errorf("projection %q", m.Projection)
		}
		tagged := false
		_, _ = rewrite(b, nil, &tagged, Metadata{Stereo: TopBottom})
		isVideo(b)
	})
}
