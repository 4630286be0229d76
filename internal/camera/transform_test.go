package camera

import (
	"math"
	"testing"
)

func near(a, b []float64, tol float64) bool {
	for i := range a {
		if math.Abs(a[i]-b[i]) > tol {
			return false
		}
	}
	return true
}

func TestTransformApply(t *testing.T) {
	// A quarter turn about z takes x to y.
	quarter := Transform{R: [9]float64{0, -1, 0, 1, 0, 0, 0, 0, 1}, T: [3]float64{10, 20, 30}}
	if got, want := quarter.Apply([3]float64{1, 2, 3}), [3]float64{8, 21, 33}; got != want {
		t.Errorf("Apply = %v, want %v", got, want)
	}
}

func TestTransformComposeAndInverse(t *testing.T) {
	a, err := FromQuaternion(Quaternion{0.1, -0.7, 0.3, 0.5}, [3]float64{100, -50, 3})
	if err != nil {
		t.Fatal(err)
	}
	b, err := FromQuaternion(Quaternion{-0.2, 0.1, 0.9, -0.1}, [3]float64{7, 8, -9})
	if err != nil {
		t.Fatal(err)
	}
	p := [3]float64{12, -34, 56}
	ab := a.Compose(b)
	got, want := ab.Apply(p), a.Apply(b.Apply(p))
	if !near(got[:], want[:], 1e-9) {
		t.Errorf("Compose: %v, want %v", got, want)
	}
	id := ab.Compose(ab.Inverse())
	if !near(id.R[:], Identity.R[:], 1e-12) || !near(id.T[:], Identity.T[:], 1e-9) {
		t.Errorf("a motion and its inverse make %v", id)
	}
}

func TestQuaternionRoundTrip(t *testing.T) {
	for name, q := range map[string]Quaternion{
		"identity":    {0, 0, 0, 1},
		"half turn x": {1, 0, 0, 0},
		"half turn y": {0, 1, 0, 0},
		"half turn z": {0, 0, 1, 0},
		"mixed":       {0.5, -0.5, 0.5, 0.5},
		"nearly half": {0.8, 0.6, 0.01, 0.001},
		"long":        {2, 4, -6, 8},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := FromQuaternion(q, [3]float64{})
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Validate(); err != nil {
				t.Fatal(err)
			}
			again, err := FromQuaternion(m.Quaternion(), [3]float64{})
			if err != nil {
				t.Fatal(err)
			}
			if !near(m.R[:], again.R[:], 1e-12) {
				t.Errorf("rotation %v became %v", m.R, again.R)
			}
		})
	}
	for name, q := range map[string]Quaternion{"zero": {}, "infinite": {W: math.Inf(1)}, "NaN": {X: math.NaN()}} {
		t.Run(name, func(t *testing.T) {
			if _, err := FromQuaternion(q, [3]float64{}); err == nil {
				t.Error("no error")
			}
		})
	}
}
