package calibrate

import (
	"errors"
	"image"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"holocast/capture-server/source/synthetic"
	"holocast/internal/camera"
	"holocast/internal/vec3"
)

// ink is a printed marker's brightness at (x, y), in units of half the side of its square, y down:
// 20 for black, 230 for white.
func ink(id int, x, y float64) uint8 {
	const black, white = 20, 230
	if math.Abs(x) > 1 || y < -1 || y > 5./3-(1-math.Abs(x))*2/3 {
		return white
	}
	if math.Abs(x) >= 0.6 || math.Abs(y) >= 0.6 {
		return black
	}
	var cells [9]bool
	even := true
	for i := range 4 {
		cells[i] = id>>(3-i)&1 == 1
		cells[i+4] = !cells[i]
		even = even != cells[i]
	}
	cells[8] = even
	if cells[int((y+0.6)/0.4)*3+int((x+0.6)/0.4)] {
		return white
	}
	return black
}

func TestFindsEveryMarker(t *testing.T) {
	for id := range 16 {
		// A projective view of the marker, from the side and from below.
		to := [5][2]float64{{203, 218}, {150, 262}, {146, 98}, {262, 112}, {250, 240}}
		h, ok := homography([][2]float64{{-1, -1}, {1, -1}, {1, 5. / 3}, {-1, 5. / 3}},
			[][2]float64{to[2], to[3], to[4], to[1]})
		if !ok {
			t.Fatal("no homography")
		}
		back, ok := homography([][2]float64{to[2], to[3], to[4], to[1]},
			[][2]float64{{-1, -1}, {1, -1}, {1, 5. / 3}, {-1, 5. / 3}})
		if !ok {
			t.Fatal("no homography")
		}
		img := image.NewGray(image.Rect(0, 0, 400, 320))
		for y := range 320 {
			for x := range 400 {
				var sum int
				for s := range 16 { // 4×4 samples per pixel
					p := back.apply(float64(x)+float64(s%4)/4-0.375, float64(y)+float64(s/4)/4-0.375)
					sum += int(ink(id, p[0], p[1]))
				}
				img.Pix[y*img.Stride+x] = uint8(sum / 16)
			}
		}
		found := findMarkers(img)
		if len(found) != 1 || found[0].id != id {
			t.Errorf("marker %d: found %+v", id, found)
			continue
		}
		lines, ok := edgeLines(img, found[0], func(u, v float64) (float64, float64, bool) { return u, v, true })
		if !ok {
			t.Errorf("marker %d: no edges", id)
			continue
		}
		for k, o := range outline {
			want := h.apply(o[0], o[1])
			got, _ := meet(lines[(k+4)%5], lines[k])
			if d := math.Hypot(got[0]-want[0], got[1]-want[1]); d > 0.15 {
				t.Errorf("marker %d: corner %d is %.2f pixels off", id, k, d)
			}
		}
	}
}

func TestNoMarkerInNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	img := image.NewGray(image.Rect(0, 0, 320, 240))
	for block := range 32 * 24 {
		v := uint8(rng.IntN(256))
		for k := range 100 {
			img.Pix[(block/32*10+k/10)*img.Stride+block%32*10+k%10] = v
		}
	}
	if found := findMarkers(img); len(found) > 0 {
		t.Errorf("found %+v in noise", found)
	}
}

// room is a scene for ray casting: the box with its markers, a floor and walls.
type room struct {
	at   Placement  // marker positions on the box
	half [3]float64 // half the box's size, millimetres; below its middle the box is 220 high
	size float64    // half of a marker's square
}

func square(width, size float64) room {
	return room{at: Box(width), half: [3]float64{width / 2, 120, width / 2}, size: size}
}

// cast returns the distance to the scene from eye along dir, the scene's brightness there, and
// whether the ray hits the box.
func (r room) cast(eye, dir [3]float64) (t float64, gray uint8, box bool) {
	t, gray = math.Inf(1), 150
	walls := [3][2]float64{{-2300, 2500}, {-1200, 1500}, {-2600, 2400}}
	for k := range 3 {
		wall := walls[k][1]
		if dir[k] < 0 {
			wall = walls[k][0]
		}
		if d := (wall - eye[k]) / dir[k]; d < t {
			t, gray = d, uint8(110+30*k)
		}
	}
	low, high := [3]float64{-r.half[0], -220, -r.half[2]}, r.half
	enter, leave, axis := 0.0, math.Inf(1), -1
	for k := range 3 {
		a, b := (low[k]-eye[k])/dir[k], (high[k]-eye[k])/dir[k]
		if a > b {
			a, b = b, a
		}
		if a > enter {
			enter, axis = a, k
		}
		leave = min(leave, b)
	}
	if axis < 0 || enter >= leave {
		return t, gray, false
	}
	t, gray = enter, 230
	p := [3]float64{eye[0] + t*dir[0], eye[1] + t*dir[1], eye[2] + t*dir[2]}
	for id, place := range r.at {
		inverse := place.Inverse()
		if q := inverse.Apply(p); math.Abs(q[2]) < 0.01 {
			gray = ink(id, q[0]/r.size, -q[1]/r.size)
		}
	}
	return t, gray, true
}

// lens is the synthetic camera with the rays of its images.
type lens struct {
	camera.Calibration
	depth, color camera.RayTable
}

var synthetics = sync.OnceValues(func() (lens, error) {
	cal, err := synthetic.Calibration(0, camera.NFOVUnbinned, camera.Color720P)
	return lens{cal, cal.Depth.RayTable(), cal.Color.RayTable()}, err
})

func (r room) view(t *testing.T, name string, pose camera.Transform) View {
	t.Helper()
	cal, err := synthetics()
	if err != nil {
		t.Fatal(err)
	}
	rays := &cal.color
	gray := image.NewGray(image.Rect(0, 0, cal.Color.Width, cal.Color.Height))
	v := View{Name: name, Calibration: cal.Calibration, Gray: gray}
	rng := rand.New(rand.NewPCG(5, uint64(len(name))))
	turn := camera.Transform{R: pose.R}
	for i := range cal.Depth.Width * cal.Depth.Height {
		x, y := float64(cal.depth.X[i]), float64(cal.depth.Y[i])
		var z float64
		if !math.IsNaN(x) {
			z, _, _ = r.cast(pose.T, turn.Apply([3]float64{x, y, 1}))
			z += 2 * rng.NormFloat64()
		}
		v.Depth = append(v.Depth, uint16(min(z+0.5, 65535)))
	}
	colorPose := pose.Compose(cal.DepthToColor.Inverse())
	turn.R = colorPose.R
	for i := range v.Gray.Pix {
		right := min(i+1, len(v.Gray.Pix)-1)
		_, gray, box := r.cast(colorPose.T, turn.Apply([3]float64{float64(rays.X[i]), float64(rays.Y[i]), 1}))
		if v.Gray.Pix[i] = gray; !box {
			continue
		}
		var sum float64
		for s := range 9 { // 3×3 samples per pixel
			fx, fy := float64(s%3-1)/3, float64(s/3-1)/3
			pitch := float64(rays.X[right] - rays.X[i])
			if right%cal.Color.Width == 0 {
				pitch = 0
			}
			_, gray, _ := r.cast(colorPose.T,
				turn.Apply([3]float64{float64(rays.X[i]) + fx*pitch, float64(rays.Y[i]) + fy*pitch, 1}))
			sum += float64(gray)
		}
		v.Gray.Pix[i] = uint8(sum/9 + 0.5)
	}
	return v
}

// lookAt returns the pose of a level camera at eye that looks at the origin.
func lookAt(eye [3]float64) camera.Transform {
	length := math.Sqrt(vec3.Dot(eye, eye))
	f := [3]float64{-eye[0] / length, -eye[1] / length, -eye[2] / length}
	flat := math.Hypot(f[0], f[2])
	right := [3]float64{-f[2] / flat, 0, f[0] / flat}
	down := [3]float64{f[1]*right[2] - f[2]*right[1], f[2]*right[0] - f[0]*right[2], f[0]*right[1] - f[1]*right[0]}
	return camera.Transform{
		R: [9]float64{right[0], down[0], f[0], right[1], down[1], f[1], right[2], down[2], f[2]},
		T: eye,
	}
}

func TestSolveFindsKnownPoses(t *testing.T) {
	scene := square(210, 84)
	truth := []camera.Transform{
		lookAt([3]float64{300, 500, 1800}), lookAt([3]float64{1900, 400, 250}),
		lookAt([3]float64{-200, 450, -1850}), lookAt([3]float64{-1800, 550, -350}),
	}
	views := make([]View, len(truth))
	for i, pose := range truth {
		views[i] = scene.view(t, "camera-"+string(rune('0'+i)), pose)
	}
	poses, residual, err := Solve(t.Context(), views, Box(210))
	if err != nil {
		t.Fatal(err)
	}
	for i, pose := range poses {
		off := pose.Inverse().Compose(truth[i])
		angle := math.Acos(min(1, (off.R[0]+off.R[4]+off.R[8]-1)/2)) * 180 / math.Pi
		moved := math.Sqrt(vec3.Dot(off.T, off.T))
		if angle > 0.15 || moved > 6 {
			t.Errorf("camera %d is %.1f mm and %.2f° off", i, moved, angle)
		}
	}
	if residual.RMS > 4 || residual.Markers > 2 || residual.Pairs < 5000 {
		t.Errorf("residual %+v", residual)
	}
}

func TestSolveRefuses(t *testing.T) {
	cal, err := synthetic.Calibration(0, camera.NFOV2x2Binned, camera.Color720P)
	if err != nil {
		t.Fatal(err)
	}
	blank := View{
		Name:        "left",
		Calibration: cal,
		Depth:       make([]uint16, 320*288),
		Gray:        image.NewGray(image.Rect(0, 0, 1280, 720)),
	}
	short, small := blank, blank
	short.Depth = short.Depth[:100]
	small.Gray = image.NewGray(image.Rect(0, 0, 640, 480))
	for _, tt := range []struct {
		name string
		view View
		want string
	}{
		{"no marker", blank, "calibrate: camera left: no marker of the 4 placed markers can be read"},
		{"depth of another mode", short, "camera left: depth image has 100 pixels, calibration has 320×288"},
		{"colour of another mode", small, "camera left: colour image is 640×480, calibration has 1280×720"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := Solve(t.Context(), []View{tt.view}, Box(210))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
			if errors.Is(err, ErrNoMarker) != (tt.name == "no marker") {
				t.Errorf("errors.Is(%v, ErrNoMarker)", err)
			}
		})
	}
}

func TestRigidFindsMotion(t *testing.T) {
	want, err := camera.FromQuaternion(camera.Quaternion{X: 0.3, Y: -0.5, Z: 0.1, W: 0.8}, [3]float64{100, -200, 300})
	if err != nil {
		t.Fatal(err)
	}
	from := [][3]float64{
		{0, 0, 0},
		{100, 0, 0},
		{0, 70, 0},
		{30, 40, 0},
	} // coplanar points, which must not yield a reflection
	to := make([][3]float64, len(from))
	for i, p := range from {
		to[i] = want.Apply(p)
	}
	got := rigid(from, to)
	for i := range got.R {
		if math.Abs(got.R[i]-want.R[i]) > 1e-9 {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}

func studio(t testing.TB) string {
	t.Helper()
	data := os.Getenv("HOLOCAST_DATA")
	if data == "" {
		data = "../../../shared/data"
	}
	dir := filepath.Join(data, "livescan_testdata")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("HOLOCAST_DATA not found: %v", err)
	}
	return dir
}

func TestRealStudio(t *testing.T) {
	solved, err := Livescan(t.Context(), studio(t), "")
	if err != nil {
		t.Fatal(err)
	}
	poses, residual, notes := solved.Poses, solved.Residual, solved.Notes
	t.Logf("%+v", residual)
	if len(notes) != 1 || !strings.HasPrefix(notes[0], "marker 3 is at [0 0 0.105] m") {
		t.Errorf("notes %q", notes) // the file's marker 3 is where marker 0 is
	}
	if len(poses) != 4 {
		t.Fatalf("%d poses, want 4", len(poses))
	}
	// Four cameras on stands around the box, 1.8 to 2.3 m away, at least about as high as its
	// middle and looking at it.
	for name, p := range poses {
		if d := math.Hypot(p.T[0], p.T[2]); d < 1500 || d > 2600 || math.Abs(p.T[1]) > 600 {
			t.Errorf("%s is at %.0f mm", name, p.T)
		}
		forward := [3]float64{p.R[2], p.R[5], p.R[8]}
		if vec3.Dot(forward, p.T) > -0.9*math.Sqrt(vec3.Dot(p.T, p.T)) {
			t.Errorf("%s looks away from the box: %.2f from %.0f", name, forward, p.T)
		}
	}
	if residual.RMS > 7 || residual.Median > 4 || residual.Markers > 3.5 || residual.Pairs < 15000 {
		t.Errorf("residual %+v", residual)
	}
}

func BenchmarkLivescan(b *testing.B) {
	dir := studio(b)
	for b.Loop() {
		if _, err := Livescan(b.Context(), dir, ""); err != nil {
			b.Fatal(err)
		}
	}
}
