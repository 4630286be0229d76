package livescan_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"

	"holocast/internal/livescan"
	"holocast/internal/livescan/livescantest"
	"holocast/internal/pointcloud"
)

// cloud returns n points of noise.
func cloud(n int) *pointcloud.Points {
	p := &pointcloud.Points{XYZ: make([]int16, 3*n), RGB: make([]byte, 3*n)}
	for i := range p.XYZ {
		p.XYZ[i], p.RGB[i] = int16(rand.IntN(8000)-4000), byte(rand.IntN(256))
	}
	return p
}

func same(a, b *pointcloud.Points) bool {
	return slices.Equal(a.XYZ, b.XYZ) && slices.Equal(a.RGB, b.RGB)
}

func TestAnswerBytes(t *testing.T) {
	got := livescan.AppendAnswer(nil,
		&pointcloud.Points{XYZ: []int16{1, -2, 3, 256, 0, -1}, RGB: []byte{10, 20, 30, 40, 50, 60}})
	want := []byte{2, 0, 0, 0, 1, 0, 0xfe, 0xff, 3, 0, 0, 1, 0, 0, 0xff, 0xff, 10, 20, 30, 40, 50, 60}
	if !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
}

func TestAnswers(t *testing.T) {
	first, second := cloud(1000), cloud(3)
	b := livescan.AppendAnswer(livescan.AppendAnswer(livescan.AppendAnswer(nil, first), &pointcloud.Points{}), second)
	a := livescan.NewAnswers(iotest.HalfReader(bytes.NewReader(b)))
	var p pointcloud.Points
	if n, err := a.Next(&p); n != 1000 || err != nil || !same(&p, first) {
		t.Errorf("%d points, %v", n, err)
	}
	if n, err := a.Next(&p); n != 0 || err != nil || len(p.XYZ) != 0 {
		t.Errorf("%d points, %v", n, err)
	}
	if n, err := a.Next(nil); n != 3 || err != nil {
		t.Errorf("%d points, %v", n, err)
	}
	if _, err := a.Next(&p); err != io.EOF {
		t.Errorf("error %v at the end", err)
	}
}

func TestBadAnswers(t *testing.T) {
	number := func(n int32) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(n)) }
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"negative", number(-1), "announces -1 points"},
		{"more than any cloud", number(livescan.MaxPoints + 1), "announces 12582913 points"},
		{"truncated number", []byte{1, 0}, "unexpected EOF"},
		{"truncated points", append(number(1000), 1, 2, 3), "unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, p := range []*pointcloud.Points{nil, {}} {
				if _, err := livescan.NewAnswers(bytes.NewReader(c.b)).Next(p); err == nil ||
					!strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want one with %q", err, c.want)
				}
			}
		})
	}
}

// messages reads all messages in b.
func messages(t testing.TB, b []byte) (list []livescan.Message, v livescan.Version, err error) {
	t.Helper()
	m, err := livescan.NewMessages(iotest.HalfReader(bytes.NewReader(b)))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for {
		x, err := m.Next()
		if err != nil {
			return list, m.Version(), err
		}
		if x.Cloud != nil {
			x.Cloud = &pointcloud.Points{XYZ: slices.Clone(x.Cloud.XYZ), RGB: slices.Clone(x.Cloud.RGB)}
		}
		list = append(list, x)
	}
}

func TestFrames(t *testing.T) {
	for _, compress := range []bool{false, true} {
		p := cloud(30_000)
		b := livescantest.AppendFrame(nil, p, compress)
		b = livescantest.AppendFrame(b, &pointcloud.Points{}, compress)
		list, _, err := messages(t, b)
		if err != io.EOF || len(list) != 2 || !same(list[0].Cloud, p) || len(list[1].Cloud.XYZ) != 0 {
			t.Errorf("compressed %v: %d messages, %v", compress, len(list), err)
		}
	}
}

// TestEvenFrame reads a frame of identical points, which compresses extremely well.
func TestEvenFrame(t *testing.T) {
	p := &pointcloud.Points{XYZ: make([]int16, 3*100_000), RGB: make([]byte, 3*100_000)}
	list, _, err := messages(t, livescantest.AppendFrame(nil, p, true))
	if err != io.EOF || len(list) != 1 || !same(list[0].Cloud, p) {
		t.Errorf("%d messages, %v", len(list), err)
	}
}

func TestCalibration(t *testing.T) {
	// A quarter turn about y, then a translation.
	azure := livescantest.AppendCalibration(nil, livescan.AzureKinect, 3,
		[12]float32{0, 0, 1, 0.5, 0, 1, 0, -0.25, -1, 0, 0, 2})
	kinect := livescantest.AppendCalibration(nil, livescan.KinectV2, 3,
		[12]float32{0, 0, 1, 0, 1, 0, -1, 0, 0, -2, -0.25, 0.5})
	for _, c := range []struct {
		name    string
		b       []byte
		version livescan.Version
	}{{"Azure Kinect", azure, livescan.AzureKinect}, {"Kinect v2", kinect, livescan.KinectV2}} {
		t.Run(c.name, func(t *testing.T) {
			list, v, err := messages(t, append(c.b, 0)) // followed by the message that a picture was taken
			if err != io.EOF || len(list) != 2 || v != c.version {
				t.Fatalf("%d messages of %v, %v", len(list), v, err)
			}
			got := list[0].Calibration
			if got == nil || got.Marker != 3 || !got.Known() || got.Pose.T != [3]float64{500, -250, 2000} ||
				got.Pose.R != [9]float64{0, 0, 1, 0, 1, 0, -1, 0, 0} {
				t.Errorf("%+v", got)
			}
		})
	}
	none := livescantest.AppendCalibration(nil, livescan.AzureKinect, -1,
		[12]float32{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0})
	if list, _, _ := messages(t, none); len(list) != 1 || list[0].Calibration.Known() {
		t.Error("a client at the origin is taken for one with a pose")
	}
}

func TestOtherMessages(t *testing.T) {
	b := livescantest.AppendConfiguration(nil, "000841194412", "left\x01")
	b = append(b, 5, 0, 6, 1, 7, 1, 9, 1, 10, 11)
	b = append(b, 2, 0xff, 0xff, 0xff, 0xff)                   // no stored frame
	b = append(b, 3, 0xba, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0xa0) // no frame while the camera starts, then garbage
	list, v, err := messages(t, b)
	if v != livescan.AzureKinect || len(list) != 9 {
		t.Fatalf("%d messages of %v, %v", len(list), v, err)
	}
	if c := list[0].Configuration; c.Serial != "000841194412" || c.Name != "left" {
		t.Errorf("%+v", c)
	}
	for i, x := range list[1:] {
		if x != (livescan.Message{}) {
			t.Errorf("message %d: %+v", i+1, x)
		}
	}
	if e := (*livescan.ProtocolError)(nil); !errors.As(err, &e) || err.Error() != "livescan: message 160 is unknown" {
		t.Errorf("error %v", err)
	}
}

// frame returns a frame message with arbitrary content.
func frame(length, compressed uint32, body ...byte) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{3}, length)
	return append(binary.LittleEndian.AppendUint32(b, compressed), body...)
}

func compressed(t testing.TB, body []byte) []byte {
	t.Helper()
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := e.EncodeAll(body, nil)
	return frame(uint32(len(b)), 1, b...)
}

func TestBadMessages(t *testing.T) {
	bomb := compressed(t, make([]byte, 64<<20))
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"unknown", []byte{8}, "message 8 is unknown"},
		{"a web browser", []byte("GET / HTTP/1.1\r\n"), "message 71 is unknown"},
		{"truncated pose", []byte{1, 0, 0}, "unexpected EOF"},
		{
			"pose of noise", append([]byte{1, 0, 0, 0, 0}, bytes.Repeat([]byte{0x42}, 48)...),
			"invalid client pose",
		},
		{"hostile length", frame(0x7fffffff, 0), "announces 2147483647 bytes"},
		{"three bytes", frame(3, 0, 1, 2, 3), "announces 3 bytes"},
		{"unknown compression", frame(4, 7, 0, 0, 0, 0), "compression is 7"},
		{"truncated frame", frame(1000, 0, 1, 2, 3), "unexpected EOF"},
		{"hostile number of points", frame(4, 0, 0xff, 0xff, 0xff, 0x7f), "announces 2147483647 points"},
		{"negative number of points", frame(4, 0, 0xff, 0xff, 0xff, 0xff), "announces -1 points"},
		{"no zstd", frame(4, 1, 1, 2, 3, 4), "cannot be decompressed"},
		{"bomb", bomb, "when decompressed"},
		{"decompressed to nothing", compressed(t, nil), "has 0 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, _, err := messages(t, c.b); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// TestMemory checks that announced but unsent data takes no memory.
func TestMemory(t *testing.T) {
	header := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa4, 0, 0, 0, 6, 1, 0, 0} // zstd: one segment of 96 MiB
	for _, c := range []struct {
		name string
		read func() error
	}{
		{"answer", func() error {
			_, err := livescan.NewAnswers(bytes.NewReader([]byte{0, 0, 0xc0, 0})).Next(new(pointcloud.Points))
			return err
		}},
		{"frame", func() error { _, _, err := messages(t, frame(100<<20, 0)); return err }},
		{"compressed frame", func() error {
			_, _,
				err := messages(t, frame(uint32(len(header)), 1, header...))
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := c.read()
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Error("no error")
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
				t.Errorf("%d MiB were allocated: %v", n>>20, err)
			}
		})
	}
}

// TestSettings parses AppendSettings' output as the clients do.
func TestSettings(t *testing.T) {
	s := livescan.Settings{
		Min:         [3]float32{-1, -2, -3},
		Max:         [3]float32{1, 2, 3},
		Markers:     []int32{0, 1, 2, 3, 4, 5},
		Compression: 2,
	}
	for _, c := range []struct {
		version livescan.Version
		kind    byte
		length  int
	}{
		{livescan.KinectV2, 2, 24 + 1 + 4 + 4 + 4 + 6*52 + 1 + 4},
		{livescan.AzureKinect, 3, 24 + 4 + 6*68 + 4 + 1 + 4 + 1 + 4 + 4 + 4 + 1},
	} {
		b := livescan.AppendSettings(nil, c.version, s)
		if b[0] != c.kind || int(binary.LittleEndian.Uint32(b[1:])) != c.length || len(b) != 5+c.length {
			t.Errorf("%v: message %d of %d bytes announces %d, want message %d of %d", c.version, b[0], len(b)-5,
				binary.LittleEndian.Uint32(b[1:]), c.kind, c.length)
		}
	}
}

func TestRequests(t *testing.T) {
	got := [][]byte{
		livescan.AppendProbe(nil), livescan.AppendCalibrationRequest(nil),
		livescan.AppendFrameRequest(nil, livescan.KinectV2), livescan.AppendFrameRequest(nil, livescan.AzureKinect),
	}
	if want := [][]byte{{11}, {1}, {4}, {5}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func FuzzMessages(f *testing.F) {
	small := cloud(4)
	f.Add(livescantest.AppendFrame(nil, small, false))
	f.Add(livescantest.AppendFrame(nil, small, true))
	f.Add(livescantest.AppendCalibration(nil, livescan.AzureKinect, 3, [12]float32{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2}))
	f.Add(livescantest.AppendCalibration(nil, livescan.KinectV2, 3, [12]float32{1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 2}))
	f.Add(append(livescantest.AppendConfiguration(nil, "1", "a"), 5, 0, 6, 0, 7, 0, 9, 0, 10, 11, 2, 0xff, 0xff, 0xff,
		0xff))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, _, err := messages(t, b)
		if err == nil {
			t.Fatal("no end")
		}
		for _, m := range list {
			if c := m.Cloud; c != nil && len(c.XYZ) != len(c.RGB) {
				t.Fatalf("%d coordinates, %d colours", len(c.XYZ), len(c.RGB))
			}
			if c := m.Calibration; c != nil && c.Pose.Validate() != nil {
				t.Fatalf("pose %+v", c.Pose)
			}
		}
	})
}

func FuzzAnswers(f *testing.F) {
	f.Add(livescan.AppendAnswer(livescan.AppendAnswer(nil, cloud(2)), &pointcloud.Points{}))
	f.Add([]byte{0xff, 0xff, 0xff, 0x7f, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		a := livescan.NewAnswers(bytes.NewReader(b))
		var again []byte
		for {
			var p pointcloud.Points
			n, err := a.Next(&p)
			if err != nil {
				break
			}
			if len(p.XYZ) != 3*n || len(p.RGB) != 3*n {
				t.Fatalf("%d points with %d coordinates and %d colours", n, len(p.XYZ), len(p.RGB))
			}
			again = livescan.AppendAnswer(again, &p)
		}
		if !bytes.HasPrefix(b, again) {
			t.Fatal("a read message is written differently")
		}
	})
}
