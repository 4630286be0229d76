package mjpeg

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	stdjpeg "image/jpeg"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// picture returns a smooth colour picture, which JPEG barely distorts.
func picture(w, h int) *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			img.SetRGBA(x, y, color.RGBA{
				R: uint8(255 * x / w), G: uint8(255 * y / h), B: uint8(128 + 64*(x+y)/(w+h)),
				A: 255,
			})
		}
	}
	return img
}

func stdEncode(t testing.TB, img image.Image) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := stdjpeg.Encode(&buf, img, &stdjpeg.Options{Quality: 95}); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func newDecoder(t testing.TB) *Decoder {
	t.Helper()
	d, err := NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func newEncoder(t testing.TB) *Encoder {
	t.Helper()
	e, err := NewEncoder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// meanAbs returns the mean absolute difference of two images' channels, 0 to 255.
func meanAbs(a, b image.Image) float64 {
	var sum, n float64
	for y := range a.Bounds().Dy() {
		for x := range a.Bounds().Dx() {
			r0, g0, b0, _ := a.At(x, y).RGBA()
			r1, g1, b1, _ := b.At(x, y).RGBA()
			for _, d := range []int{int(r0) - int(r1), int(g0) - int(g1), int(b0) - int(b1)} {
				sum += float64(max(d, -d)) / 257
			}
			n += 3
		}
	}
	return sum / n
}

func TestDecodeAgreesWithImageJPEG(t *testing.T) {
	for _, size := range []image.Point{{64, 48}, {33, 17}, {1, 1}} {
		jpeg := stdEncode(t, picture(size.X, size.Y))
		want, err := stdjpeg.Decode(bytes.NewReader(jpeg))
		if err != nil {
			t.Fatal(err)
		}
		d := newDecoder(t)
		var got image.YCbCr
		if err := d.DecodeYCbCr(&got, jpeg, 1); err != nil {
			t.Fatal(err)
		}
		if got.Rect.Size() != size {
			t.Fatalf("decoded %v pixels, want %v", got.Rect.Size(), size)
		}
		if diff := meanAbs(&got, want); diff > 1 {
			t.Errorf("%v: planes differ from image/jpeg by %.2f levels on average", size, diff)
		}
		rgb, w, h, err := d.DecodeRGB(nil, jpeg)
		if err != nil {
			t.Fatal(err)
		}
		rgba := image.NewRGBA(image.Rect(0, 0, w, h))
		for i := range w * h {
			copy(rgba.Pix[4*i:], rgb[3*i:3*i+3])
			rgba.Pix[4*i+3] = 255
		}
		if diff := meanAbs(rgba, want); diff > 4 { // libjpeg-turbo interpolates chroma; image/jpeg repeats it
			t.Errorf("%v: RGB differs from image/jpeg by %.2f levels on average", size, diff)
		}
	}
}

func TestDecodeReduced(t *testing.T) {
	jpeg := stdEncode(t, picture(203, 101))
	d := newDecoder(t)
	var full, small image.YCbCr
	if err := d.DecodeYCbCr(&full, jpeg, 1); err != nil {
		t.Fatal(err)
	}
	for _, reduce := range []int{2, 4, 8} {
		if err := d.DecodeYCbCr(&small, jpeg, reduce); err != nil {
			t.Fatal(err)
		}
		if want := image.Pt((203+reduce-1)/reduce, (101+reduce-1)/reduce); small.Rect.Size() != want {
			t.Errorf("reduce %d: %v pixels, want %v", reduce, small.Rect.Size(), want)
		}
		got := small.YCbCrAt(50/reduce, 50/reduce)
		want := full.YCbCrAt(50, 50)
		if d := int(got.Y) - int(want.Y); d < -12 || d > 12 {
			t.Errorf("reduce %d: luma %d where the full image has %d", reduce, got.Y, want.Y)
		}
	}
}

func TestEncodeRoundTrip(t *testing.T) {
	d, e := newDecoder(t), newEncoder(t)
	for _, ratio := range []image.YCbCrSubsampleRatio{
		image.YCbCrSubsampleRatio444, image.YCbCrSubsampleRatio422, image.YCbCrSubsampleRatio420,
		image.YCbCrSubsampleRatio440, image.YCbCrSubsampleRatio411,
	} {
		t.Run(ratio.String(), func(t *testing.T) {
			img, err := newYCbCr(67, 35, ratio)
			if err != nil {
				t.Fatal(err)
			}
			for i := range img.Y {
				img.Y[i] = uint8(40 + 2*(i%img.YStride))
			}
			for i := range img.Cb {
				img.Cb[i], img.Cr[i] = 100, 160
			}
			jpeg, err := e.EncodeYCbCr(nil, img, 95)
			if err != nil {
				t.Fatal(err)
			}
			var got image.YCbCr
			if err := d.DecodeYCbCr(&got, jpeg, 1); err != nil {
				t.Fatal(err)
			}
			if got.SubsampleRatio != ratio {
				t.Errorf("ratio %v", got.SubsampleRatio)
			}
			if diff := meanAbs(&got, img); diff > 1.5 {
				t.Errorf("round trip changes levels by %.2f on average", diff)
			}
		})
	}
	rgb := make([]byte, 3*40*30)
	for i := range rgb {
		rgb[i] = uint8(i / 20)
	}
	jpeg, err := e.EncodeRGB(nil, rgb, 40, 30, 95)
	if err != nil {
		t.Fatal(err)
	}
	hdr, err := d.Header(jpeg)
	if err != nil || hdr != (Header{Width: 40, Height: 30, Ratio: image.YCbCrSubsampleRatio422, YCbCr: true}) {
		t.Errorf("header %+v, %v", hdr, err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := stdEncode(t, picture(64, 64))
	huge := bytes.Clone(good)
	sof := bytes.Index(huge, []byte{0xff, 0xc0})
	copy(huge[sof+5:], []byte{0x9c, 0x40, 0x9c, 0x40}) // height and width
	gray := stdEncode(t, image.NewGray(image.Rect(0, 0, 16, 16)))

	tests := []struct {
		name    string
		jpeg    []byte
		corrupt bool
		want    string
	}{
		{"empty", nil, true, "image: empty"},
		{"no JPEG", []byte("II*\x00 not a JPEG at all"), true, "Not a JPEG file"},
		{"header cut off", good[:20], true, "corrupt JPEG image of 20 bytes"},
		{"no pixels", good[:sof], true, "corrupt JPEG image"},
		{"too large", huge, false, "40000×40000 pixels exceeds the limit"},
		{"grey", gray, false, "image of 16×16 pixels is not YCbCr"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var img image.YCbCr
			err := newDecoder(t).DecodeYCbCr(&img, tt.jpeg, 1)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q, want one with %q", err, tt.want)
			}
			if errors.Is(err, ErrCorrupt) != tt.corrupt {
				t.Errorf("errors.Is(%q, ErrCorrupt) is %v", err, !tt.corrupt)
			}
		})
	}
}

// TestDecodeDamaged checks that damaged images are decoded correctly up to the damage.
func TestDecodeDamaged(t *testing.T) {
	const size = 64
	good := stdEncode(t, picture(size, size))
	scan := bytes.Index(good, []byte{0xff, 0xda})
	var want image.YCbCr
	if err := newDecoder(t).DecodeYCbCr(&want, good, 1); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		jpeg []byte
		rows int // complete
		err  error
	}{
		{"no end marker", good[:len(good)-2], size, ErrIncomplete},
		{"end marker cut in half", good[:len(good)-1], size, ErrIncomplete},
		{"stray bytes between segments", slices.Concat(good[:scan], []byte("stray"), good[scan:]), size, ErrIncomplete},
		{
			"stray bytes before the end marker", slices.Concat(good[:len(good)-2], []byte("stray"), good[len(good)-2:]),
			size - 16, ErrIncomplete,
		},
		{"bytes after the end marker", append(bytes.Clone(good), "stray"...), size, nil},
		{"pixels cut off", good[:scan+(len(good)-scan)/2], 16, ErrIncomplete},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDecoder(t)
			var img image.YCbCr
			if err := d.DecodeYCbCr(&img, tt.jpeg, 1); !errors.Is(err, tt.err) {
				t.Errorf("error %v, want %v", err, tt.err)
			}
			if n := tt.rows * want.YStride; len(img.Y) < n || !bytes.Equal(img.Y[:n], want.Y[:n]) {
				t.Errorf("the first %d rows differ from the whole picture's", tt.rows)
			}
			if rgb, _, _, err := d.DecodeRGB(nil, tt.jpeg); !errors.Is(err, tt.err) || len(rgb) != 3*size*size {
				t.Errorf("%d bytes of RGB, error %v", len(rgb), err)
			}
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	e := newEncoder(t)
	img, err := newYCbCr(16, 16, image.YCbCrSubsampleRatio420)
	if err != nil {
		t.Fatal(err)
	}
	short := *img
	short.Cr = short.Cr[:10]
	other := *img
	other.SubsampleRatio = image.YCbCrSubsampleRatio410
	_, errShort := e.EncodeYCbCr(nil, &short, 90)
	_, errRatio := e.EncodeYCbCr(nil, &other, 90)
	_, errQuality := e.EncodeYCbCr(nil, img, 0)
	_, errSize := e.EncodeRGB(nil, make([]byte, 10), 16, 16, 90)
	_, errHuge := e.EncodeRGB(nil, nil, 1<<15, 1<<15, 90)
	e.Close()
	_, errUse := e.EncodeYCbCr(nil, img, 90)
	for _, tt := range []struct {
		err  error
		want string
	}{
		{errShort, "planes of 256, 64 and 10 bytes are too short for 16×16"},
		{errRatio, "YCbCrSubsampleRatio410 cannot be written"},
		{errQuality, "quality is 0, want 1 to 100"},
		{errSize, "10 bytes of RGB, want 768"},
		{errHuge, "cannot encode an image of 32768×32768"},
		{errUse, "use after Close"},
	} {
		if tt.err == nil || !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("error %v, want one with %q", tt.err, tt.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	good := stdEncode(f, picture(24, 20))
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte{0xff, 0xd8, 0xff, 0xd9})
	f.Fuzz(func(t *testing.T, jpeg []byte) {
		d := newDecoder(t)
		hdr, err := d.Header(jpeg)
		if err != nil || hdr.Width*hdr.Height > 1<<18 { // limit the cost of an input
			return
		}
		var img image.YCbCr
		if err := d.DecodeYCbCr(&img, jpeg, 1); err == nil && img.Rect.Size() != image.Pt(hdr.Width, hdr.Height) {
			t.Errorf("decoded %v, header says %d×%d", img.Rect, hdr.Width, hdr.Height)
		}
		_, _, _, _ = d.DecodeRGB(nil, jpeg)
	})
}

// kinectJPEG returns a real camera's image, or a synthetic one of the same size if the data is
// missing.
func kinectJPEG(b *testing.B) []byte {
	data := os.Getenv("HOLOCAST_DATA")
	if data == "" {
		data = "../../../shared/data"
	}
	jpeg, err := os.ReadFile(filepath.Join(data, "livescan_testdata/virtualdevice0/color_720p/Color_1.jpg"))
	if err != nil {
		b.Logf("HOLOCAST_DATA not found: %v; decoding a drawn picture", err)
		return stdEncode(b, picture(1280, 720))
	}
	return jpeg
}

func BenchmarkDecode720p(b *testing.B) {
	jpeg := kinectJPEG(b)
	for name, reduce := range map[string]int{"planes": 1, "planes_half": 2} {
		b.Run(name, func(b *testing.B) {
			d := newDecoder(b)
			var img image.YCbCr
			b.ReportAllocs()
			for b.Loop() {
				if err := d.DecodeYCbCr(&img, jpeg, reduce); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("rgb", func(b *testing.B) {
		d := newDecoder(b)
		var rgb []byte
		var err error
		b.ReportAllocs()
		for b.Loop() {
			if rgb, _, _, err = d.DecodeRGB(rgb, jpeg); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("image_jpeg", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := stdjpeg.Decode(bytes.NewReader(jpeg)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkEncode720p(b *testing.B) {
	d, e := newDecoder(b), newEncoder(b)
	var img image.YCbCr
	if err := d.DecodeYCbCr(&img, kinectJPEG(b), 1); err != nil {
		b.Fatal(err)
	}
	var jpeg []byte
	var err error
	b.ReportAllocs()
	for b.Loop() {
		if jpeg, err = e.EncodeYCbCr(jpeg, &img, 90); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(jpeg)), "bytes")
}

// newYCbCr returns an image with planes padded to whole chroma samples.
func newYCbCr(w, h int, ratio image.YCbCrSubsampleRatio) (*image.YCbCr, error) {
	img := new(image.YCbCr)
	return img, resize(img, w, h, ratio)
}
