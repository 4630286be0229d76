package x264

import (
	"strings"
	"testing"

	"holocast/internal/loc"
)

const width = 64

func picture(height int, luma byte) Picture {
	p := Picture{
		Y:       make([]byte, width*height),
		Cb:      make([]byte, width*height/4),
		Cr:      make([]byte, width*height/4),
		YStride: width,
		CStride: width / 2,
	}
	for i := range p.Y {
		p.Y[i] = luma + byte(i%width)
	}
	return p
}

func TestEncode(t *testing.T) {
	e, err := New(Config{Width: 64, Height: 32, FPSNum: 30, FPSDen: 1, QP: 20, Preset: "ultrafast"})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if codec, err := loc.AVCCodec(e.Config()); err != nil || !strings.HasPrefix(codec, "avc1.42c0") {
		t.Errorf("codec %q, %v", codec, err)
	}
	if n := e.LumaError(picture(32, 50), 0, make([]float32, 32)); n != 0 {
		t.Errorf("error %v before the first frame", n)
	}
	ones := make([]float32, 32)
	for i := range ones {
		ones[i] = 1
	}
	for n := range 300 { // no IDR frame unless requested
		p := picture(32, byte(n))
		b, err := e.Encode(nil, p, n == 7, 0)
		if err != nil {
			t.Fatal(err)
		}
		if idr := b[4]&0x1f == 5; idr != (n == 0 || n == 7) {
			t.Fatalf("frame %d: IDR %v", n, idr)
		}
		luma := make([]byte, 64*32)
		e.Luma(luma)
		sum := 0.0
		for i := range luma {
			d := float64(luma[i]) - float64(p.Y[i])
			sum += d * d
		}
		if got := e.LumaError(p, 0, ones); got != sum {
			t.Fatalf("frame %d: error %v, want %v", n, got, sum)
		}
	}
}

func TestErrors(t *testing.T) {
	good := Config{Width: 64, Height: 32, FPSNum: 30, FPSDen: 1, QP: 20, Preset: "ultrafast"}
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"odd width", func(c *Config) { c.Width = 63 }, "pictures of 63×32"},
		{"no height", func(c *Config) { c.Height = 0 }, "pictures of 64×0"},
		{"quantiser", func(c *Config) { c.QP = 52 }, "quantiser 52"},
		{"frame rate", func(c *Config) { c.FPSNum = 0 }, "0/1 frames per second"},
		{"preset", func(c *Config) { c.Preset = "placebo" }, `preset "placebo"`},
	} {
		c := good
		tt.change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	e, err := New(good)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Encode(nil, picture(16, 0), true, 0); err == nil {
		t.Error("a picture that is too small is taken")
	}
	e.Close()
	e.Close()
	if _, err := e.Encode(nil, picture(32, 0), true, 0); err == nil {
		t.Error("a closed encoder encodes")
	}
}
