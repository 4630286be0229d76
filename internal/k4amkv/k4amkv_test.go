package k4amkv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"holocast/internal/camera"
)

// small configures test recordings with the smallest images.
var small = Config{
	DepthMode: camera.NFOV2x2Binned, ColorMode: camera.Color720P, ColorFormat: camera.MJPG, FPS: 30,
	Depth: true, IR: true, IMU: true, Serial: "000123456789", Calibration: []byte(`{"CalibrationInformation":{}}`),
}

const base = 1_700_000_000 * time.Second // start of an Orbbec camera's clock

// frame returns capture i of a recording; images differ from frame to frame.
func frame(config Config, i int) Capture {
	t := base + time.Duration(i)*config.period()
	t -= t % time.Microsecond
	var c Capture
	if config.ColorMode != camera.ColorOff {
		c.Color, c.ColorTime = bytes.Repeat([]byte{byte(i), 0xFF, 0xD8}, 1000+i), t
	}
	w, h := config.DepthMode.Size()
	if config.Depth {
		c.Depth, c.DepthTime = make([]uint16, w*h), t+config.DepthDelay+133*time.Microsecond
		for p := range c.Depth {
			c.Depth[p] = uint16(i*257 + p)
		}
	}
	if config.IR {
		c.IR, c.IRTime = make([]uint16, w*h), t+config.DepthDelay+133*time.Microsecond
		for p := range c.IR {
			c.IR[p] = uint16(i*3 - p)
		}
	}
	return c
}

// recordImages writes n captures without IMU samples to a file, and returns its path, its content
// and the captures.
func recordImages(t *testing.T, n int) (path string, file []byte, captures []Capture) {
	t.Helper()
	config := small
	config.IMU = false
	path, captures = record(t, config, n)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, file, captures
}

// record writes n captures to a file and returns its path and the captures.
func record(t testing.TB, config Config, n int) (string, []Capture) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "recording.mkv")
	w, err := Create(path, config)
	if err != nil {
		t.Fatal(err)
	}
	var captures []Capture
	for i := range n {
		c := frame(config, i)
		if config.IMU && i > 0 {
			at := c.Time() - 5*time.Millisecond
			c.IMU = []IMUSample{{at, [3]float32{float32(i), 2, 3}, at + time.Microsecond, [3]float32{4, 5, 6}}}
		}
		if err := w.WriteCapture(&c); err != nil {
			t.Fatal(err)
		}
		captures = append(captures, c)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path, captures
}

// readAll reads a recording to its end or an error.
func readAll(r *Reader) ([]Capture, error) {
	var all []Capture
	for {
		var c Capture
		if err := r.Next(&c); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return all, err
		}
		all = append(all, c)
	}
}

func open(t testing.TB, path string) *Reader {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// same is reflect.DeepEqual, but faster.
func same(a, b Capture) bool {
	grey := slices.Equal(a.Depth, b.Depth) && slices.Equal(a.IR, b.IR)
	a.Depth, a.IR, b.Depth, b.IR = nil, nil, nil, nil
	return grey && reflect.DeepEqual(a, b)
}

func compare(t *testing.T, got, want []Capture) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d captures, want %d", len(got), len(want))
	}
	for i := range want {
		if !same(got[i], want[i]) {
			t.Fatalf("capture %d differs: times %v %v %v, want %v %v %v; %d IMU samples, want %d", i, got[i].ColorTime,
				got[i].DepthTime, got[i].IRTime, want[i].ColorTime, want[i].DepthTime, want[i].IRTime, len(got[i].IMU),
				len(want[i].IMU))
		}
	}
}

func TestRoundTrip(t *testing.T) {
	configs := map[string]Config{
		"all tracks": small,
		"depth only": {DepthMode: camera.NFOV2x2Binned, FPS: 15, Depth: true},
		"color only": {ColorMode: camera.Color3072P, ColorFormat: camera.MJPG, FPS: 5},
		"passive IR": {DepthMode: camera.PassiveIR, IR: true, FPS: 30},
		"depth late": {
			DepthMode:   camera.NFOV2x2Binned,
			ColorMode:   camera.Color720P,
			ColorFormat: camera.MJPG,
			FPS:         5,
			Depth:       true,
			DepthDelay:  150 * time.Millisecond,
		},
		"depth early": {
			DepthMode:   camera.NFOV2x2Binned,
			ColorMode:   camera.Color720P,
			ColorFormat: camera.MJPG,
			FPS:         30,
			Depth:       true,
			DepthDelay:  -20 * time.Millisecond,
		},
	}
	for name, config := range configs {
		t.Run(name, func(t *testing.T) {
			path, want := record(t, config, 25)
			r := open(t, path)
			config.StartOffset = r.Config.StartOffset
			if !reflect.DeepEqual(r.Config, config) {
				t.Errorf("configuration\n got %+v\nwant %+v", r.Config, config)
			}
			if first := want[0].Time(); r.Config.StartOffset != first {
				t.Errorf("StartOffset %v, want %v", r.Config.StartOffset, first)
			}
			last := want[len(want)-1]
			end := max(last.ColorTime, last.DepthTime, last.IRTime) - r.Config.StartOffset
			if d := r.Duration - end; d < -time.Microsecond || d > time.Microsecond {
				t.Errorf("Duration %v, want %v", r.Duration, end)
			}
			for pass := range 2 {
				got, err := readAll(r)
				if err != nil {
					t.Fatal(err)
				}
				if config.IMU {
					// IMU samples precede every capture except perhaps the first.
					for i := range got {
						if pass == 0 && i > 0 && len(got[i].IMU) == 0 {
							t.Fatalf("capture %d has no IMU sample", i)
						}
					}
				}
				compare(t, got, want)
				if err := r.SeekTo(0); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestRawColorFormats(t *testing.T) {
	for format, size := range map[camera.ColorFormat]int{
		camera.NV12: 1280 * 720 * 3 / 2, camera.YUY2: 1280 * 720 * 2,
		camera.BGRA: 1280 * 720 * 4,
	} {
		t.Run(string(format), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "recording.mkv")
			w, err := Create(path, Config{ColorMode: camera.Color720P, ColorFormat: format, FPS: 30})
			if err != nil {
				t.Fatal(err)
			}
			image := make([]byte, size)
			for i := range image {
				image[i] = byte(i * 7)
			}
			if err := w.WriteCapture(&Capture{Color: image[1:]}); err == nil ||
				!strings.Contains(err.Error(), "colour image has") {
				t.Errorf("an image a byte short: error %v", err)
			}
			if err := w.WriteCapture(&Capture{Color: image}); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			r := open(t, path)
			var c Capture
			if err := r.Next(&c); err != nil || !bytes.Equal(c.Color, image) || r.Config.ColorFormat != format {
				t.Errorf("read %d bytes of %s, error %v", len(c.Color), r.Config.ColorFormat, err)
			}
		})
	}
}

func TestMissingImages(t *testing.T) {
	config := small
	config.IMU = false
	path := filepath.Join(t.TempDir(), "recording.mkv")
	w, err := Create(path, config)
	if err != nil {
		t.Fatal(err)
	}
	var want []Capture
	for i := range 60 {
		c := frame(config, i)
		switch {
		case i%7 == 3:
			c.Color, c.ColorTime = nil, 0
		case i >= 20 && i < 50: // the depth camera pauses for a second
			c.Depth, c.DepthTime, c.IR, c.IRTime = nil, 0, nil, 0
		}
		if c.Color == nil && c.Depth == nil {
			continue
		}
		want = append(want, c)
		if err := w.WriteCapture(&c); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := readAll(open(t, path))
	if err != nil {
		t.Fatal(err)
	}
	compare(t, got, want)
}

// TestCutOff reads the file of a recorder that was killed.
func TestCutOff(t *testing.T) {
	config := small
	config.IMU = false
	path := filepath.Join(t.TempDir(), "recording.mkv")
	w, err := Create(path, config)
	if err != nil {
		t.Fatal(err)
	}
	var want []Capture
	for i := range 60 {
		c := frame(config, i)
		want = append(want, c)
		if err := w.WriteCapture(&c); err != nil {
			t.Fatal(err)
		}
	}
	r := open(t, path)
	got, err := readAll(r)
	if err != nil || r.Duration != 0 {
		t.Errorf("error %v, duration %v", err, r.Duration)
	}
	if lost := len(want) - len(got); lost > 17 { // half a second and the unfinished cluster
		t.Errorf("%d captures are lost", lost)
	}
	compare(t, got, want[:len(got)])
	if err := r.SeekTo(want[40].Time() - r.Config.StartOffset); err != nil {
		t.Fatal(err)
	}
	var c Capture
	if err := r.Next(&c); err != nil || c.Time() != want[40].Time() {
		t.Errorf("after SeekTo: capture of %v, error %v, want %v", c.Time(), err, want[40].Time())
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestUnclosed reads files whose Segment or last Cluster has no valid size, as libk4arecord leaves
// them until it closes them.
func TestUnclosed(t *testing.T) {
	path, whole, want := recordImages(t, 30)
	r := open(t, path)
	segment, first := r.header.segment.data, r.header.firstCluster
	clusters := clusterStarts(r)
	last := clusters[len(clusters)-1]
	cues := bytes.LastIndex(whole, []byte{0x1C, 0x53, 0xBB, 0x6B})
	for name, tc := range map[string]struct {
		size   int64 // of Segment
		change func(file []byte) []byte
	}{
		"size 0":                 {0, func(b []byte) []byte { return b[:cues] }},
		"closed, size 0":         {0, nil},
		"ends in the header":     {100, nil},
		"ends before a cluster":  {first - segment, nil},
		"ends in a cluster":      {first - segment + 20, nil},
		"ends after ten":         {clusters[10] - segment, nil},
		"ends in the tenth":      {clusters[10] - segment + 500, nil},
		"last cluster of size 0": {0, func(b []byte) []byte { return unsized(b[:cues], last) }},
		"all clusters of size 0": {0, func(b []byte) []byte {
			for _, at := range clusters {
				b = unsized(b, at)
			}
			return b
		}},
		"neither Info nor SeekHead": {0, func(b []byte) []byte {
			copy(b[segment:], void(seekHeadSize))
			info := bytes.Index(b, []byte{0x15, 0x49, 0xA9, 0x66})
			copy(b[info:], void(bytes.Index(b, []byte{0x16, 0x54, 0xAE, 0x6B})-info))
			return b[:cues]
		}},
		"trailing zeros": {int64(len(whole)) - segment, func(b []byte) []byte {
			return append(b, make([]byte, 1000)...)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			file := bytes.Clone(whole)
			binary.BigEndian.PutUint64(file[segment-8:], 1<<56|uint64(tc.size))
			if tc.change != nil {
				file = tc.change(file)
			}
			r, err := NewReader(bytes.NewReader(file), int64(len(file)))
			if err != nil {
				t.Fatal(err)
			}
			got, err := readAll(r)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, got, want)
			if err := r.SeekTo(want[20].Time() - r.Config.StartOffset); err != nil {
				t.Fatal(err)
			}
			var c Capture
			if err := r.Next(&c); err != nil || c.Time() != want[20].Time() {
				t.Errorf("after SeekTo: capture of %v, error %v, want %v", c.Time(), err, want[20].Time())
			}
		})
	}
}

// clusterStarts returns the offsets of a recording's clusters.
func clusterStarts(r *Reader) []int64 {
	var starts []int64
	for at := r.header.firstCluster; ; {
		e, err := r.file.header(at, r.header.segment.end)
		if err != nil {
			return starts
		}
		if e.id == idCluster {
			starts = append(starts, e.start)
		}
		at = e.end
	}
}

// unsized gives the Cluster at the given offset a size of 0.
func unsized(file []byte, cluster int64) []byte {
	binary.BigEndian.PutUint64(file[cluster+4:], 1<<56)
	return file
}

// TestRemuxed reads recordings as FFmpeg and mkvmerge rewrite them.
func TestRemuxed(t *testing.T) {
	path, whole, want := recordImages(t, 3)
	reference := open(t, path)
	replace := func(pairs ...string) []byte {
		file := bytes.Clone(whole)
		for i := 0; i < len(pairs); i += 2 {
			at := bytes.Index(file, []byte(pairs[i]))
			if at < 0 || len(pairs[i]) != len(pairs[i+1]) {
				t.Fatalf("cannot replace %q", pairs[i])
			}
			copy(file[at:], pairs[i+1])
		}
		return file
	}
	height := binary.LittleEndian.AppendUint32(nil, 288)
	negative := binary.LittleEndian.AppendUint32(nil, -288&math.MaxUint32)
	depth := "\x01\x00\x10\x00b16g"
	for name, file := range map[string][]byte{
		"one Tag of all SimpleTags": oneTag(t, reference, whole, false),
		"Targets last":              oneTag(t, reference, whole, true),
		"V_MJPEG":                   replace("V_MS/VFW/FOURCC", "V_MJPEG"+strings.Repeat("\x00", 8)),
		"grey of FourCC 0": replace(
			string(height)+depth, string(negative)+depth[:4]+"\x00\x00\x00\x00",
			string(height)+depth, string(negative)+depth[:4]+"\x00\x00\x00\x00",
		),
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewReader(bytes.NewReader(file), int64(len(file)))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(r.Config, reference.Config) {
				t.Errorf("configuration\n got %+v\nwant %+v", r.Config, reference.Config)
			}
			got, err := readAll(r)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, got, want)
		})
	}
}

// oneTag returns a recording whose Tag elements are merged into one.
func oneTag(t *testing.T, r *Reader, file []byte, targetsLast bool) []byte {
	t.Helper()
	start := bytes.LastIndex(file, []byte{0x12, 0x54, 0xC3, 0x67}) // SeekHead has the first
	tags, err := r.file.header(int64(start), r.file.size)
	if err != nil {
		t.Fatal(err)
	}
	var simple, target []byte
	if err := r.file.children(tags, func(e element) error {
		return r.file.children(e, func(e element) error {
			content := file[e.start:e.end]
			if e.id == idSimpleTag {
				simple = append(simple, content...)
			} else if bytes.Contains(content, []byte{0x63, 0xC6}) { // TagAttachmentUID
				target = content
			}
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	content := append(bytes.Clone(target), simple...)
	if targetsLast {
		content = append(simple, target...)
	}
	b := append(bytes.Clone(file[:start]), 0x12, 0x54, 0xC3, 0x67)
	b = appendSize(b, int64(len(content)+6))
	b = append(b, 0x73, 0x73)
	b = appendSize(b, int64(len(content)))
	b = append(b, content...)
	b = append(b, file[tags.end:]...)
	binary.BigEndian.PutUint64(b[r.header.segment.data-8:], 1<<56) // its size has changed
	copy(b[r.header.segment.data:], void(seekHeadSize))            // and so have its positions
	return b
}

func TestSeek(t *testing.T) {
	_, whole, want := recordImages(t, 120)
	cues := bytes.LastIndex(whole, []byte{0x1C, 0x53, 0xBB, 0x6B})
	for name, file := range map[string][]byte{"by cues": whole, "by scan": whole[:cues]} {
		t.Run(name, func(t *testing.T) {
			r, err := NewReader(bytes.NewReader(file), int64(len(file)))
			if err != nil {
				t.Fatal(err)
			}
			if (r.header.index != nil) != (name == "by cues") {
				t.Fatalf("index of %d entries", len(r.header.index))
			}
			for _, i := range []int{60, 0, 119, 31, 30, 90, 1} {
				at := want[i].Time() - r.Config.StartOffset
				if err := r.SeekTo(at); err != nil {
					t.Fatal(err)
				}
				var c Capture
				if err := r.Next(&c); err != nil {
					t.Fatal(err)
				}
				if c.Time() != want[i].Time() || !slices.Equal(c.Depth, want[i].Depth) {
					t.Errorf("SeekTo(%v) reads the capture of %v, want %v", at, c.Time(), want[i].Time())
				}
			}
			if err := r.SeekTo(time.Hour); err != nil {
				t.Fatal(err)
			}
			if err := r.Next(&Capture{}); !errors.Is(err, io.EOF) {
				t.Errorf("behind the end: error %v, want EOF", err)
			}
		})
	}
}

func TestWrongCues(t *testing.T) {
	config := small
	config.IMU = false
	path, want := record(t, config, 70)
	r := open(t, path)
	for i := range r.header.index {
		r.header.index[i].offset += 3
	}
	if err := r.SeekTo(want[65].Time() - r.Config.StartOffset); err != nil {
		t.Fatal(err)
	}
	var c Capture
	if err := r.Next(&c); err != nil || c.Time() != want[65].Time() {
		t.Errorf("capture of %v, error %v, want %v", c.Time(), err, want[65].Time())
	}
}

func TestTruncated(t *testing.T) {
	path, whole, want := recordImages(t, 30)
	r := open(t, path)
	first := int(r.header.firstCluster)
	for name, tc := range map[string]struct {
		size   int
		open   string // expected error of Open
		next   string // expected error of Next
		offset int64
		min    int
	}{
		"empty":              {size: 0, open: "the file is empty"},
		"EBML header":        {size: 20, open: "not a Matroska file"},
		"no segment":         {size: 40, open: "(Segment): not found after the EBML header"},
		"in the header":      {size: first - 40, open: "left in the file"},
		"before the cluster": {size: first, open: "the recording ends before its first frame"},
		"in a frame":         {size: len(whole) * 2 / 3, next: "left in the file", min: 18},
		"in the first frame": {size: first + 500, next: "left in the file"},
		"in a header":        {size: first + 7, open: "(Cluster): invalid variable-length integer as size"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewReader(bytes.NewReader(whole[:tc.size]), int64(tc.size))
			if tc.open != "" {
				if err == nil || !strings.Contains(err.Error(), tc.open) {
					t.Errorf("error %v, want %q", err, tc.open)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := readAll(r)
			var damage *DamageError
			if !errors.As(err, &damage) || !strings.Contains(err.Error(), tc.next) {
				t.Fatalf("error %v, want %q", err, tc.next)
			}
			if damage.Offset < int64(first) || damage.Offset >= int64(tc.size) {
				t.Errorf("error names byte %d of %d", damage.Offset, tc.size)
			}
			if len(got) < tc.min {
				t.Fatalf("%d captures before the damage, want at least %d", len(got), tc.min)
			}
			whole := len(got)
			if whole > 0 && got[whole-1].IR == nil {
				whole-- // the truncated capture
			}
			compare(t, got[:whole], want[:whole])
			if err := r.Next(&Capture{}); !errors.Is(err, io.EOF) {
				t.Errorf("after the damage: %v, want EOF", err)
			}
		})
	}
}

func TestBitFlips(t *testing.T) {
	path, whole, want := recordImages(t, 40)
	clusters := clusterStarts(open(t, path))
	if len(clusters) != 40 {
		t.Fatalf("%d clusters, want 40", len(clusters))
	}
	for name, tc := range map[string]struct {
		flip   int64
		want   string
		before int
	}{
		"payload":       {clusters[20] + 100_000, "(Cluster): its", 20},
		"block's size":  {clusters[20] + 30, "(Cluster): its", 20},
		"timestamp":     {clusters[20] + 25, "(Cluster): its", 20},
		"cluster's ID":  {clusters[20], "recording is damaged at byte", 20},
		"cluster's end": {clusters[20] + 5, "but Cluster begins inside it", 21},
	} {
		t.Run(name, func(t *testing.T) {
			file := bytes.Clone(whole)
			file[tc.flip] ^= 0x10
			r, err := NewReader(bytes.NewReader(file), int64(len(file)))
			if err != nil {
				t.Fatal(err)
			}
			got, err := readAll(r)
			var damage *DamageError
			if !errors.As(err, &damage) || !strings.Contains(err.Error(), tc.want) || damage.Offset != clusters[20] {
				t.Fatalf("error %v, want %q at byte %d", err, tc.want, clusters[20])
			}
			compare(t, got, want[:tc.before])
			// Captures after the damage are still read.
			rest, err := readAll(r)
			for err != nil {
				var more []Capture
				more, err = readAll(r)
				rest = append(rest, more...)
			}
			if n := len(rest); n < 9 || !same(rest[n-1], want[39]) {
				t.Errorf("%d captures after the damage", n)
			}
		})
	}
}

func TestHeaderErrors(t *testing.T) {
	config := small
	path, _ := record(t, config, 3)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(old, new string) []byte {
		if len(old) != len(new) || !bytes.Contains(whole, []byte(old)) {
			t.Fatalf("cannot replace %q", old)
		}
		return bytes.Replace(whole, []byte(old), []byte(new), 1)
	}
	for name, tc := range map[string]struct {
		file []byte
		want string
	}{
		"text": {[]byte("not a recording at all, but a line of text\n"), "not a Matroska file"},
		"webm": {replace("matroska", "webm\x00\x00\x00\x00"), `not a Matroska file: DocType is "webm"`},
		"depth mode": {
			replace("NFOV_2X2BINNED", "NFOV_9X9BINNED"),
			`tag K4A_DEPTH_MODE: unknown depth mode "NFOV_9X9BINNED"`,
		},
		"no depth mode": {replace("K4A_DEPTH_MODE", "K4A_DEPTH_MOOD"), "tag K4A_DEPTH_MODE is missing"},
		"other mode": {
			replace("NFOV_2X2BINNED", "WFOV_2X2BINNED"),
			"320×288, but depth mode WFOV_2X2BINNED is 512×512",
		},
		"colour format": {replace("MJPG\x00", "H264\x00"), `colour format "H264" is none of MJPG, NV12, YUY2, BGRA`},
		"depth format":  {replace("b16g", "gray"), `format "gray" is not b16g`},
		"codec": {
			replace("V_MS/VFW/FOURCC", "V_MPEG4/ISO/AVC"),
			`codec "V_MPEG4/ISO/AVC" is not V_MS/VFW/FOURCC`,
		},
		"start offset": {
			replace("1700000000000000000", "170000000000000000x"),
			`tag K4A_START_OFFSET_NS is "170000000000000000x", want nanoseconds`,
		},
		"track number": {replace("\xd7\x81\x01\x73\xc5", "\xd7\x81\x00\x73\xc5"), `track "COLOR" has no number`},
		"colour size": {
			replace("\xb0\x82\x05\x00", "\xb0\x82\x05\x01"),
			"BITMAPINFOHEADER says 1280×720, but the track is 1281×720",
		},
		"header too long": {replace("\x28\x00\x00\x00\x00\x05\x00\x00\xd0\x02",
			"\x28\x00\x00\x00\x00\x06\x00\x00\xd0\x02"), "BITMAPINFOHEADER says 1536×720"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewReader(bytes.NewReader(tc.file), int64(len(tc.file)))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestHostileLengths(t *testing.T) {
	_, whole, _ := recordImages(t, 2)
	hostile := func(element []byte, skip int) []byte {
		file := bytes.Clone(whole)
		at := bytes.Index(file, element)
		if at < 0 {
			t.Fatalf("no % x", element)
		}
		copy(file[at+len(element)+skip:], []byte{0x01, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFE})
		return file
	}
	for name, file := range map[string][]byte{
		"Tracks":       hostile([]byte{0x16, 0x54, 0xAE, 0x6B}, 0),
		"CodecPrivate": hostile([]byte{0x63, 0xA2}, 0),
		"FileData":     hostile([]byte{0x46, 0x5C}, 0),
		"Tags":         hostile([]byte{0x12, 0x54, 0xC3, 0x67}, 0),
		"Cluster":      hostile([]byte{0x1F, 0x43, 0xB6, 0x75}, 0),
		"SimpleBlock":  hostile([]byte{0x1F, 0x43, 0xB6, 0x75}, 8+6+10+1),
	} {
		t.Run(name, func(t *testing.T) {
			allocated := testing.AllocsPerRun(1, func() {
				r, err := NewReader(bytes.NewReader(file), int64(len(file)))
				if err == nil {
					_, err = readAll(r)
				}
				var damage *DamageError
				if !errors.As(err, &damage) {
					t.Errorf("error %v, want a DamageError", err)
				}
			})
			if allocated > 5000 {
				t.Errorf("%v allocations", allocated)
			}
		})
	}
}

func TestWriterRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"frame rate":  {func(c *Config) { c.FPS = 25 }, "FPS is 25, want 5, 15 or 30"},
		"colour mode": {func(c *Config) { c.ColorMode = "4K" }, `unknown colour mode "4K"`},
		"format":      {func(c *Config) { c.ColorFormat = "H264" }, `unknown colour format "H264"`},
		"depth mode":  {func(c *Config) { c.DepthMode = "" }, `unknown depth mode ""`},
		"passive":     {func(c *Config) { c.DepthMode = camera.PassiveIR }, "depth mode PASSIVE_IR has no depth"},
		"nothing":     {func(c *Config) { *c = Config{FPS: 30} }, "neither colour, depth nor IR is recorded"},
		"calibration": {
			func(c *Config) { c.Calibration = make([]byte, 2<<20) },
			"calibration has 2097152 bytes, more than the limit of 1048576",
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := small
			tc.change(&config)
			if _, err := Create(filepath.Join(t.TempDir(), "x.mkv"), config); err == nil ||
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}

	config := small
	config.IMU, config.IR = false, false
	path := filepath.Join(t.TempDir(), "x.mkv")
	w, err := Create(path, config)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		c := frame(config, i)
		if err := w.WriteCapture(&c); err != nil {
			t.Fatal(err)
		}
	}
	late, short := frame(config, 2), frame(config, 31)
	short.Depth = short.Depth[:100]
	for name, tc := range map[string]struct {
		c    Capture
		want string
	}{
		"no image": {Capture{}, "the capture has no image"},
		"late":     {late, "is too late: the recording has reached"},
		"short":    {short, "depth image has 100 values, want 92160"},
		"IR": {
			Capture{IR: make([]uint16, 320*288)},
			"the capture has an IR image, but the recording has no such track",
		},
		"IMU": {
			Capture{Color: []byte{1}, ColorTime: base + time.Hour, IMU: make([]IMUSample, 1)},
			"the capture has IMU samples, but the recording has no such track",
		},
		"empty colour": {Capture{Color: []byte{}, ColorTime: base + time.Hour}, "colour image has 0 bytes, want 1 to 67108864"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := w.WriteCapture(&tc.c); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(open(t, path)); err != nil || len(got) != 30 {
		t.Errorf("%d captures, error %v, want the 30 that were accepted", len(got), err)
	}
}

func TestNothingRecorded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.mkv")
	w, err := Create(path, small)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "no capture was written") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty recording is left behind: %v", err)
	}
}

// TestIMULacing reads several samples per block, as libk4arecord writes them.
func TestIMULacing(t *testing.T) {
	config := small
	path, _ := record(t, config, 2)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var block []byte
	block = append(block, 0x84, 0, 0, 0x04, 2) // track 4, fixed lacing of 3 samples
	for i := range 3 {
		s := IMUSample{base + time.Duration(i), [3]float32{1, 2, float32(i)}, base, [3]float32{3, 4, 5}}
		block = append(block, s.bytes()...)
	}
	group := append([]byte{idBlock, 0x40, byte(len(block))}, block...)
	content := append([]byte{idTimestamp, 0x81, 0, idBlockGroup, 0x40, byte(len(group))}, group...)
	cluster := []byte{0x1F, 0x43, 0xB6, 0x75, 0x40, byte(len(content) + 6), idCRC32, 0x84}
	cluster = binary.LittleEndian.AppendUint32(cluster, crc32.ChecksumIEEE(content))
	cluster = append(cluster, content...)
	at := open(t, path).header.firstCluster
	file = append(append(bytes.Clone(file[:at]), cluster...), file[at:]...)
	// Segment's size no longer fits; make it unknown.
	segment := bytes.Index(file, []byte{0x18, 0x53, 0x80, 0x67})
	copy(file[segment+4:], []byte{0x01, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF})
	r, err := NewReader(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	var c Capture
	if err := r.Next(&c); err != nil {
		t.Fatal(err)
	}
	if len(c.IMU) < 3 || c.IMU[2].Accel != [3]float32{1, 2, 2} || c.IMU[2].AccelTime != base+2 {
		t.Errorf("samples %+v", c.IMU)
	}
}

// realRecording returns the path of the k4arecorder file in the capture data, or skips the test.
func realRecording(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("HOLOCAST_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("HOLOCAST_DATA not found: %v", err)
	}
	return filepath.Join(dir, "k4a_recording", "pyk4a_recording.mkv")
}

func TestRealRecording(t *testing.T) {
	r := open(t, realRecording(t))
	c := r.Config
	if c.DepthMode != camera.NFOVUnbinned || c.ColorMode != camera.Color720P || c.ColorFormat != camera.MJPG ||
		c.FPS != 5 ||
		!c.Depth || !c.IR ||
		!c.IMU ||
		c.Serial != "001514394512" ||
		c.StartOffset != 336277*time.Microsecond {
		t.Errorf("configuration %+v", c)
	}
	if _, err := camera.Parse(c.Calibration, c.DepthMode, c.ColorMode); err != nil {
		t.Error(err)
	}
	got, err := readAll(r)
	if err != nil || len(got) != 1 {
		t.Fatalf("%d captures, error %v, want 1", len(got), err)
	}
	points := 0
	for _, d := range got[0].Depth {
		if d > 0 {
			points++
		}
	}
	if !bytes.HasPrefix(got[0].Color, []byte{0xFF, 0xD8}) || points < 100_000 || len(got[0].IR) != 640*576 {
		t.Errorf("colour begins % x, %d depth readings, %d IR values", got[0].Color[:2], points, len(got[0].IR))
	}
	if len(got[0].IMU) == 0 || math.Abs(float64(got[0].IMU[0].Accel[2])) > 20 {
		t.Errorf("IMU samples %+v", got[0].IMU)
	}
	if want := 800345 * time.Microsecond; got[0].Time() > want {
		t.Errorf("capture of %v", got[0].Time())
	}
}

func FuzzReader(f *testing.F) {
	config := Config{
		DepthMode:   camera.NFOV2x2Binned,
		ColorMode:   camera.Color720P,
		ColorFormat: camera.MJPG,
		FPS:         30,
		IMU:         true,
		Calibration: []byte("{}"),
	}
	path := filepath.Join(f.TempDir(), "x.mkv")
	w, err := Create(path, config)
	if err != nil {
		f.Fatal(err)
	}
	for i := range 4 {
		c := Capture{Color: []byte{0xFF, 0xD8, byte(i)}, ColorTime: time.Duration(i) * 40 * time.Millisecond}
		c.IMU = []IMUSample{{AccelTime: c.ColorTime}}
		if err := w.WriteCapture(&c); err != nil {
			f.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file, int64(50*time.Millisecond))
	f.Add(file[:len(file)/2], int64(0))
	unclosed := bytes.Clone(file)
	segment := bytes.Index(unclosed, []byte{0x18, 0x53, 0x80, 0x67})
	binary.BigEndian.PutUint64(unclosed[segment+4:], 1<<56)
	f.Add(unclosed, int64(50*time.Millisecond))
	f.Add([]byte{0x1A, 0x45, 0xDF, 0xA3, 0x80}, int64(1))
	f.Fuzz(func(t *testing.T, file []byte, seek int64) {
		r, err := NewReader(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			return
		}
		drain := func() {
			var c Capture
			// Each call consumes at least a byte of the file or ends.
			for range len(file) + 2 {
				err := r.Next(&c)
				if errors.Is(err, io.EOF) {
					return
				}
				if err == nil && c.Color == nil && c.Depth == nil && c.IR == nil {
					t.Fatal("a capture without an image")
				}
			}
			t.Fatal("reading does not end")
		}
		drain()
		if r.SeekTo(time.Duration(seek)) == nil {
			drain()
		}
	})
}

func BenchmarkReader(b *testing.B) {
	config := small
	config.DepthMode = camera.NFOVUnbinned
	path, captures := record(b, config, 30)
	st, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	r := open(b, path)
	b.SetBytes(st.Size())
	b.ReportAllocs()
	for b.Loop() {
		if err := r.SeekTo(0); err != nil {
			b.Fatal(err)
		}
		var c Capture
		n := 0
		for r.Next(&c) == nil {
			n++
		}
		if n != len(captures) {
			b.Fatalf("%d captures", n)
		}
	}
	b.ReportMetric(float64(b.N*len(captures))/b.Elapsed().Seconds(), "captures/s")
}
