package gazetrace

import (
	"bytes"
	"compress/gzip"
	"math"
	"strings"
	"testing"

	"holocast/internal/tile360"
)

func TestRead(t *testing.T) {
	text := "video,user,t,x,y,z\n1,b,0,0,0,1\n1,a,0,2,0,0\n1,b,0.1,0,0.1,0.1\n2,b,0,0,1,0\n"
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	for name, in := range map[string]string{
		"text": text, "gzip": zipped.String(), "byte order mark": "\ufeff" + text,
	} {
		t.Run(name, func(t *testing.T) {
			traces, err := Read(strings.NewReader(in))
			if err != nil || len(traces) != 3 {
				t.Fatalf("%d traces, %v", len(traces), err)
			}
			if traces[0].User != "b" || len(traces[0].Samples) != 2 || traces[1].Samples[0].Gaze != (tile360.Vec{X: 1}) {
				t.Errorf("%+v", traces)
			}
			if of := Of(traces, "1"); len(of) != 2 || of[0].User != "a" {
				t.Errorf("of video 1: %+v", of)
			}
			if v := Videos(traces); strings.Join(v, " ") != "1 2" {
				t.Errorf("videos %v", v)
			}
		})
	}
	traces, err := Read(strings.NewReader("T, pitch, yaw\n0,0,0\n1,0,90\n"))
	if err != nil {
		t.Fatal(err)
	}
	for seconds, yaw := range map[float64]float64{-1: 0, 0: 0, 0.5: 45, 1: 90, 7: 90} {
		if got, _ := traces[0].At(seconds).Angles(); math.Abs(got*180/math.Pi-yaw) > 1e-9 {
			t.Errorf("at %g s yaw %g, want %g", seconds, got*180/math.Pi, yaw)
		}
	}
	c := Crowd(traces, 10)
	if len(c.Viewers) != 1 || len(c.Viewers[0]) != 11 {
		t.Errorf("a crowd of %d with %d samples", len(c.Viewers), len(c.Viewers[0]))
	}
}

func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"nothing":      {"", "no header line"},
		"no samples":   {"t,yaw,pitch\n", "no samples"},
		"columns":      {"t,x,y\n0,1,2\n", `columns "t,x,y"; want`},
		"not a number": {"t,yaw,pitch\n0,0,up\n", `line 2: "up" is not a number`},
		"infinite":     {"t,yaw,pitch\n0,0,Inf\n", `line 2: "Inf" is not a number`},
		"order":        {"t,yaw,pitch\n1,0,0\n1,0,0\n", "line 3: t does not ascend"},
		"no direction": {"t,x,y,z\n1,0,0,0\n", "line 2: x, y, z do not give a direction"},
		"short line":   {"t,yaw,pitch\n1,0\n", "wrong number of fields"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Read(strings.NewReader(c.in)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("video,user,t,x,y,z\n1,b,0,0,0,1\n"))
	f.Add([]byte("t,yaw,pitch\n0,0,90\n0.5,1e300,-90\n"))
	f.Add([]byte{0x1f, 0x8b})
	f.Fuzz(func(t *testing.T, in []byte) {
		traces, err := Read(bytes.NewReader(in))
		if err != nil {
			return
		}
		for _, trace := range traces {
			for _, s := range append(trace.Samples, tile360.Sample{Gaze: trace.At(0.5)}) {
				if l := s.Gaze.Dot(s.Gaze); math.Abs(l-1) > 1e-6 {
					t.Fatalf("a gaze of length² %g", l)
				}
			}
		}
	})
}
