package calibrate

import (
	"math"
	"testing"

	"holocast/capture-server/depthmap"
	"holocast/internal/camera"
	"holocast/internal/srgb"
)

// colored returns views of the room by cameras whose exposures differ by gains, in linear light.
func colored(t *testing.T, poses []camera.Transform, gains []depthmap.Gain) []View {
	t.Helper()
	scene := square(210, 84)
	cal, err := synthetics()
	if err != nil {
		t.Fatal(err)
	}
	rays := &cal.depth
	views := make([]View, len(poses))
	for i, pose := range poses {
		v := scene.view(t, "camera-"+string(rune('0'+i)), pose)
		turn := camera.Transform{R: pose.R}
		v.Color = make([]byte, 3*len(v.Depth))
		for k := range v.Depth {
			if v.Depth[k] == 0 {
				continue
			}
			_, gray, _ := scene.cast(pose.T, turn.Apply([3]float64{float64(rays.X[k]), float64(rays.Y[k]), 1}))
			for c, tint := range [3]float64{1, 0.8, 0.6} {
				light := tint * srgb.Linear(float64(gray)/255) / gains[i][c]
				v.Color[3*k+c] = byte(255*srgb.Encode(light) + 0.5)
			}
		}
		views[i] = v
	}
	return views
}

// around are poses of four cameras that see the box from all sides.
func around() []camera.Transform {
	return []camera.Transform{
		lookAt([3]float64{300, 500, 1800}), lookAt([3]float64{1900, 400, 250}),
		lookAt([3]float64{-200, 450, -1850}), lookAt([3]float64{-1800, 550, -350}),
	}
}

func TestMatchColorsFindsKnownGains(t *testing.T) {
	want := []depthmap.Gain{{1.2, 1.1, 0.9}, {0.8, 0.9, 1.25}, {1.25, 1, 0.8}, {1 / 1.2, 1 / 0.99, 1 / 0.9}}
	got, residual := MatchColors(colored(t, around(), want), around())
	t.Logf("%.3f %+v", got, residual)
	for i := range want {
		for c := range 3 {
			if off := math.Abs(got[i][c]/want[i][c] - 1); off > 0.02 {
				t.Errorf("camera %d, channel %d: gain %.3f, want %.3f", i, c, got[i][c], want[i][c])
			}
		}
	}
	if residual.Before < 10 || residual.After > 1.5 || residual.Pairs < 5000 {
		t.Errorf("residual %+v", residual)
	}
}

func TestMatchColorsWithout(t *testing.T) {
	even := []depthmap.Gain{{1, 1, 1}, {1.3, 1.3, 1.3}}
	for name, tt := range map[string]struct {
		poses []camera.Transform
		spoil func(v *View)
	}{
		"overlap": {
			// The second camera sees another room.
			poses: []camera.Transform{lookAt([3]float64{300, 500, 1800}), {R: camera.Identity.R, T: [3]float64{1e5, 0, 0}}},
		},
		"color": {poses: around()[:2], spoil: func(v *View) { v.Color = nil }},
		"light": {poses: around()[:2], spoil: func(v *View) { clear(v.Color) }},
		"range": {poses: around()[:2], spoil: func(v *View) {
			for i := range v.Color {
				v.Color[i] = 255
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			views := colored(t, around()[:2], even)
			if tt.spoil != nil {
				tt.spoil(&views[1])
			}
			gains, residual := MatchColors(views, tt.poses)
			if want := (depthmap.Gain{1, 1, 1}); gains[0] != want || gains[1] != want || residual != (ColorResidual{}) {
				t.Errorf("gains %v, residual %+v, want none", gains, residual)
			}
		})
	}
}

// TestMatchColorsBounds checks that gains are bounded, that two pairs of cameras without shared
// surfaces are matched separately, and that saturated parts do not count.
func TestMatchColorsBounds(t *testing.T) {
	poses := []camera.Transform{around()[0], around()[1], around()[0], around()[1]}
	views := colored(t, poses, []depthmap.Gain{{1, 1, 1}, {1.5, 1.5, 1.5}, {1, 1, 1}, {6, 6, 6}})
	for i := range poses[2:] {
		poses[2+i].T[0] += 1e5
	}
	for i := range views[1].Color[:len(views[1].Color)/2] {
		views[1].Color[i] = 255
	}
	gains, _ := MatchColors(views, poses)
	t.Logf("%.3f", gains)
	for i, want := range []float64{math.Sqrt(1 / 1.5), math.Sqrt(1.5), 0.5, 2} {
		if off := math.Abs(gains[i][0]/want - 1); off > 0.02 {
			t.Errorf("camera %d: gain %.3f, want %.3f", i, gains[i][0], want)
		}
	}
}

func TestMatchColorsOfRealStudio(t *testing.T) {
	solved, err := Livescan(t.Context(), studio(t), "")
	if err != nil {
		t.Fatal(err)
	}
	for name, gain := range solved.Gains {
		t.Logf("%s: %.3f", name, gain)
	}
	t.Logf("%+v", solved.Colors)
	if r := solved.Colors; r.After > 0.25*r.Before || r.Pairs < 5000 {
		t.Errorf("residual %+v", r)
	}
}
