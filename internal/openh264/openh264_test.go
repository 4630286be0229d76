package openh264

import (
	"testing"

	"holocast/internal/x264"
)

func encode(t testing.TB, width, height, frames int) (units [][]byte, luma [][]byte) {
	t.Helper()
	e, err := x264.New(x264.Config{
		Width: width, Height: height, FPSNum: 30, FPSDen: 1, QP: 20, Preset: "ultrafast", ByteStream: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for n := range frames {
		p := x264.Picture{
			Y: make([]byte, width*height), Cb: make([]byte, width*height/4), Cr: make([]byte, width*height/4),
			YStride: width, CStride: width / 2,
		}
		for i := range p.Y {
			p.Y[i] = byte(3*(i%width) + 5*(i/width) + 7*n)
		}
		b, err := e.Encode(nil, p, false, 0)
		if err != nil {
			t.Fatal(err)
		}
		y := make([]byte, width*height)
		e.Luma(y)
		units, luma = append(units, b), append(luma, y)
	}
	return units, luma
}

// TestDecode compares the decoder's pictures with the encoder's.
func TestDecode(t *testing.T) {
	const width, height = 70, 38
	d, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	units, luma := encode(t, width, height, 5)
	for n, b := range units {
		p, err := d.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if p.Width != width || p.Height != height {
			t.Fatalf("%d×%d pixels", p.Width, p.Height)
		}
		for i, want := range luma[n] {
			if got := p.Y[i/width*p.YStride+i%width]; got != want {
				t.Fatalf("picture %d, pixel %d: %d, want %d", n, i, got, want)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	d, err := New()
	if err != nil {
		t.Fatal(err)
	}
	units, _ := encode(t, 32, 32, 2)
	for _, b := range [][]byte{nil, {1}, units[1], make([]byte, 1000)} {
		if _, err := d.Decode(b); err == nil {
			t.Errorf("%.20x decodes", b)
		}
	}
	d.Close()
	d.Close()
	if _, err := d.Decode(units[0]); err == nil {
		t.Error("a closed decoder decodes")
	}
}

func FuzzDecode(f *testing.F) {
	units, _ := encode(f, 32, 32, 2)
	f.Add(units[0], units[1])
	f.Add(units[0][:40], []byte{0, 0, 1})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		d, err := New()
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for _, b := range [][]byte{first, second} {
			if p, err := d.Decode(b); err == nil && len(p.Y) < p.Width*p.Height {
				t.Fatalf("picture of %d×%d with %d bytes", p.Width, p.Height, len(p.Y))
			}
		}
	})
}
