package spherical

import (
	"bytes"
	"errors"
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

func TestParse(t *testing.T) {
	turned := mp4box.Append(nil, "sv3d",
		mp4box.Append(nil, "proj",
			mp4box.Append(nil, "prhd", []byte{0, 0, 0, 0, 0, 90, 0x80, 0, 0xff, 0xf6, 0, 0, 0, 0, 0, 0}),
			mp4box.Append(nil, "equi", make([]byte, 20))))
	half := mp4box.Append(nil, "sv3d",
		mp4box.Append(nil, "proj", mp4box.Append(nil, "equi", make([]byte, 12), []byte{0x40, 0, 0, 0, 0x40, 0, 0, 0})))
	for _, tt := range []struct {
		name string
		file []byte
		want Metadata
	}{
		{"nothing", movie(nil, nil), Metadata{}},
		{"V2 mono", movie(SampleEntryBoxes(Mono), nil), Metadata{Projection: Equirectangular, Stereo: Mono}},
		{
			"V2 top-bottom", movie(SampleEntryBoxes(TopBottom), nil),
			Metadata{Projection: Equirectangular, Stereo: TopBottom},
		},
		{
			"V2 side-by-side", movie(SampleEntryBoxes(SideBySide), nil),
			Metadata{Projection: Equirectangular, Stereo: SideBySide},
		},
		{"V2 turned", movie(turned, nil), Metadata{Projection: Equirectangular, Yaw: 90.5, Pitch: -10}},
		{"V2 part", movie(half, nil), Metadata{Projection: Equirectangular, Part: true}},
		{
			"V2 cube", movie(mp4box.Append(nil, "sv3d",
				mp4box.Append(nil, "proj", mp4box.Append(nil, "cbmp", make([]byte, 8)))), nil),
			Metadata{Projection: Cubemap},
		},
		{"V1", movie(nil, TrackBox(TopBottom)), Metadata{Projection: Equirectangular, Stereo: TopBottom}},
		{
			"V1 side-by-side, V2 mono", movie(SampleEntryBoxes(Mono), TrackBox(SideBySide)),
			Metadata{Projection: Equirectangular, Stereo: Mono},
		},
		{
			"V1 of other tools", movie(nil, v1(`<rdf:SphericalVideo><GSpherical:Spherical>true</GSpherical:Spherical>`+
				`<GSpherical:InitialViewHeadingDegrees>45</GSpherical:InitialViewHeadingDegrees></rdf:SphericalVideo>`)),
			Metadata{Projection: Equirectangular, Yaw: 45},
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
		{"size below a header", []byte("\x00\x00\x00\x04ftypisom"), `box "ftyp" at 0 has the invalid size 4`},
		{
			"huge size", []byte("\x00\x00\x00\x01ftyp\xff\xff\xff\xff\xff\xff\xff\xff"),
			"has the invalid size 18446744073709551615",
		},
		{
			"child longer than its parent",
			append(mp4box.Append(nil, "ftyp", nil), mp4box.Append(nil, "moov", []byte("\x00\x00\x10\x00trak"))...),
			"is longer than its parent",
		},
		{"nested", mp4box.Append(nil, "moov", mp4box.Append(nil, "trak", deep)), "nested deeper than 12"},
		{
			"many", mp4box.Append(nil, "moov", bytes.Repeat(mp4box.Append(nil, "free", nil), maxBoxes)),
			"more than 16384 boxes",
		},
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
	index := movie(SampleEntryBoxes(TopBottom), nil)
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
	if err := Tag(path, TopBottom); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := parse(b); err != nil || m != (Metadata{Projection: Equirectangular, Stereo: TopBottom}) {
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
	f.Add(movie(SampleEntryBoxes(TopBottom), TrackBox(SideBySide)))
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
		_, _ = rewrite(b, nil, &tagged, TopBottom)
		isVideo(b)
	})
}
