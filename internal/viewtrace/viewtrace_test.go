package viewtrace

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"holocast/internal/camera"
)

func read(t *testing.T, text string) Trace {
	t.Helper()
	trace, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestAt(t *testing.T) {
	// Eyes at z = 2000 that look along −z with y up, and then along +x.
	directions := read(t, "\ufefft, x,y,z,dx,dy,dz,ux,uy,uz\n0,0,0,2000,0,0,-1,0,1,0\n2,200,0,2000,5,0,0,1,2,0\n")
	h := math.Sqrt(0.5)
	quaternions := Trace{
		{Rotation: camera.Quaternion{X: 1}, Position: [3]float64{0, 0, 2000}},
		{T: 2, Rotation: camera.Quaternion{X: -h, Z: -h}, Position: [3]float64{200, 0, 2000}},
	}
	for name, trace := range map[string]Trace{"directions": directions, "quaternions": quaternions} {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				seconds    float64
				point      [3]float64
				x, y, eyeZ float64
			}{
				{-1, [3]float64{100, 300, 0}, 100, -300, 2000},
				{0, [3]float64{100, 300, 0}, 100, -300, 2000},
				{1, [3]float64{100 + 100*h, 0, 2000 - 100*h}, 0, 0, 100}, // turned by 45°
				{2, [3]float64{1200, 300, 2100}, 100, -300, 1000},
				{9, [3]float64{1200, 300, 2100}, 100, -300, 1000},
			} {
				v := trace.At(c.seconds, 1, 0.5)
				if e := v.Eye.Apply(c.point); !near(e[0], c.x) || !near(e[1], c.y) || !near(e[2], c.eyeZ) {
					t.Errorf("at %g s: %v, want %v", c.seconds, e, c)
				}
				if v.TanX != 1 || v.TanY != 0.5 {
					t.Errorf("field of view %v, %v", v.TanX, v.TanY)
				}
			}
		})
	}
	fov := read(t, "fovx,fovy,t,x,y,z,qx,qy,qz,qw\n90,90,0,0,0,0,0,0,0,2\n")
	if v := fov.At(0, 7, 7); !near(v.TanX, 1) || v.Eye.R != camera.Identity.R {
		t.Errorf("%+v", v)
	}
}

func TestReadRefuses(t *testing.T) {
	const q, d = "t,x,y,z,qx,qy,qz,qw\n", "t,x,y,z,dx,dy,dz,ux,uy,uz\n"
	for name, c := range map[string]struct{ in, want string }{
		"nothing":       {"", "no header line"},
		"no samples":    {q, "no samples"},
		"columns":       {"t,x,y,z\n", `columns "t,x,y,z"; want`},
		"not a number":  {q + "0,0,0,0,0,0,0,up\n", `line 2: qw: "up" is not a number`},
		"infinite":      {q + "0,Inf,0,0,0,0,0,1\n", `line 2: x: "Inf" is not a number`},
		"order":         {q + "1,0,0,0,0,0,0,1\n1,0,0,0,0,0,0,1\n", "line 3: t does not ascend"},
		"no rotation":   {q + "1,0,0,0,0,0,0,0\n", "line 2: qx, qy, qz, qw: quaternion"},
		"huge rotation": {q + "1,0,0,0,0,0,0,1e200\n", "line 2: qx, qy, qz, qw: quaternion"},
		"far away":      {q + "1,0,2e6,0,0,0,0,1\n", "line 2: position [0 2e+06 0] exceeds 1e+06 mm"},
		"no direction":  {d + "1,0,0,0,0,0,1,0,0,1\n", "line 2: dx, dy, dz and ux, uy, uz do not give two directions"},
		"short line":    {q + "1,0\n", "wrong number of fields"},
		"field of view": {"fovx,fovy," + q + "180,90,0,0,0,0,0,0,0,1\n", "line 2: field of view 180×90, want 10 to 150"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Read(strings.NewReader(c.in)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("t,x,y,z,qx,qy,qz,qw\n0,0,0,0,0,0,0,1\n1,0,0,0,0,0,0,-1\n"))
	f.Add([]byte("t,x,y,z,dx,dy,dz,ux,uy,uz,fovx,fovy\n0,1,2,3,0,0,1,0,1,0,90,60\n3,1,2,3,0,0,-1,0,1,0,90,60\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		trace, err := Read(bytes.NewReader(in))
		if err != nil {
			return
		}
		for _, s := range trace {
			for _, at := range []float64{s.T, s.T + 0.5} {
				v := trace.At(at, 1, 1)
				if err := v.Eye.Validate(); err != nil || !(v.TanX > 0 && v.TanY > 0) {
					t.Fatalf("at %g: %v, %+v", at, err, v)
				}
			}
		}
	})
}
