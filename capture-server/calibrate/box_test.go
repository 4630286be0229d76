package calibrate

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holocast/internal/camera"
	"holocast/internal/vec3"
)

// published returns a LiveScan3D file for a box, in the form that LiveScan3D writes. x is half the
// width, z half the depth and top the height of marker 4 on top ("0" for none), in metres.
func published(x, z, top string) string {
	marker := func(id int, at, angles [3]string) string {
		return fmt.Sprintf("Marker ID %d\nTranslation\tX: %s\tY: %s\tZ: %s\nRotation\tX: %s\tY: %s\tZ: %s\n\n", id,
			at[0], at[1], at[2], angles[0], angles[1], angles[2])
	}
	s := marker(0, [3]string{"0", "0", z}, [3]string{"0", "0", "0"}) +
		marker(1, [3]string{"-" + x, "0", "0"}, [3]string{"0", "90", "0"}) +
		marker(2, [3]string{"0", "0", "-" + z}, [3]string{"0", "180", "0"}) +
		marker(3, [3]string{x, "0", "0"}, [3]string{"0", "-90", "0"})
	if top != "0" {
		return s + marker(4, [3]string{"0", top, "0"}, [3]string{"90", "0", "0"})
	}
	return s + marker(4, [3]string{"0", "0", "0"}, [3]string{"0", "0", "0"})
}

// testSet is the file of LiveScan3D's test set, including its mistake: markers 0 and 3 are in the
// same place.
const testSet = `Marker Settings for Testdata-Set

Marker ID 0
Orientation: 0 | 0 | 0
Translation: 0 | 0 | 0.105

Marker ID 1
Orientation: 0 | 180 | 0
Translation: 0 | 0 | -0.105

Marker ID 2
Orientation: 0 | 90 | 0
Translation: 0.105 | 0 | 0

Marker ID 3
Orientation: 0 | -90 | 0
Translation: 0 | 0 | 0.105`

func TestReadBox(t *testing.T) {
	top := PublishedBox(210)
	top[0] = camera.Transform{R: top[0].R, T: [3]float64{0, 0, 148.5}}
	top[2] = camera.Transform{R: top[2].R, T: [3]float64{0, 0, -148.5}}
	top[4] = camera.Transform{R: [9]float64{1, 0, 0, 0, 0, 1, 0, -1, 0}, T: [3]float64{0, 148.5, 0}}
	for name, c := range map[string]struct {
		text  string
		want  Placement
		notes int
	}{
		"four sides": {published("0.105", "0.105", "0"), PublishedBox(210), 0},
		"five sides": {published("0.105", "0.1485", "0.1485"), top, 0},
		"Windows lines and a BOM": {
			"\ufeff" + strings.ReplaceAll(published("0.037", "0.037", "0"), "\n", "\r\n"), PublishedBox(74), 0,
		},
		"test set, with a mistake":  {testSet, Box(210), 1},
		"test set, put right":       {testSet[:len(testSet)-len("0 | 0 | 0.105")] + "-0.105 | 0 | 0\n", Box(210), 0},
		"no blank lines, no spaces": {strings.ReplaceAll(strings.ReplaceAll(testSet, "\n\n", "\n"), " | ", "|"), Box(210), 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, notes, err := ReadBox(strings.NewReader(c.text))
			if err != nil || len(got) != len(c.want) || len(notes) != c.notes {
				t.Fatalf("%v, notes %q, %v", got, notes, err)
			}
			for id, want := range c.want {
				off := got[id].Inverse().Compose(want)
				if vec3.Length(off.T) > 0.01 || off.R[0]+off.R[4]+off.R[8] < 2.9999 {
					t.Errorf("marker %d: %v, want %v", id, got[id], want)
				}
			}
		})
	}
}

func TestReadBoxRefuses(t *testing.T) {
	good := published("0.105", "0.105", "0")
	for name, c := range map[string]struct{ text, want string }{
		"nothing":        {"", "no marker has a position"},
		"something else": {"relay: localhost\n", "no marker has a position"},
		"no identity":    {"Marker ID x\n", `line 1: "Marker ID x" has no ID`},
		"identity 16":    {"Marker ID 16\n", "has no ID from 0 to 15"},
		"twice":          {good + good, "marker 0 appears twice"},
		"same side": {
			strings.Replace(good, "X: 0\tY: 180\tZ: 0", "X: 0\tY: 0\tZ: 0", 1), "markers 0 and 2 are on the same side",
		},
		"truncated":       {good[:60], "does not give x, y and z"},
		"cut in a marker": {good[:40], "marker 0 has no translation or no rotation"},
		"two numbers":     {"Marker ID 0\nTranslation: 1 | 2\n", `line 2: "Translation: 1 | 2" does not give x, y and z`},
		"not a number":    {"Marker ID 0\nTranslation: 1 | NaN | 2\n", "does not give x, y and z"},
		"millimetres":     {"Marker ID 0\nTranslation: 0 | 0 | 105\n", "does not give x, y and z"},
		"huge":            {strings.Repeat("x", maxBoxFile+1), "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			if at, _, err := ReadBox(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, error %v, want %q", at, err, c.want)
			}
		})
	}
}

func FuzzReadBox(f *testing.F) {
	f.Add(published("0.105", "0.1485", "0.1485"))
	f.Add(testSet)
	f.Fuzz(func(t *testing.T, text string) {
		at, _, err := ReadBox(strings.NewReader(text))
		if err != nil {
			return
		}
		for id, p := range at {
			if err := p.Validate(); err != nil || id < 0 || id >= maxMarkers {
				t.Errorf("marker %d: %v, %v", id, p, err)
			}
		}
	})
}

func TestFindBox(t *testing.T) {
	take, named := t.TempDir(), filepath.Join(t.TempDir(), "box.txt")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(named, published("0.074", "0.074", "0"))
	check := func(what, setting string, options int, marker1 float64) {
		t.Helper()
		c, err := findBox(take, setting)
		if err != nil || len(c.options) != options {
			t.Errorf("%s: %v, %v", what, c, err)
		} else if got := vec3.Length(c.options[0][1].T); math.Abs(got-marker1) > 0.01 {
			t.Errorf("%s: marker 1 is %.1f mm from the middle, want %.1f", what, got, marker1)
		}
	}
	check("nothing", "", 2, 105)
	check("a width", "297", 2, 148.5)
	check("a file", named, 1, 74)
	write(filepath.Join(take, "notes.txt"), "Marker notes\n")
	write(filepath.Join(take, "Marker_Settings.txt"), published("0.052", "0.052", "0"))
	check("the take's file", "", 1, 52)
	check("a file, before the take's", named, 1, 74)
	for setting, want := range map[string]string{
		"3":                              "marker box is 3 mm wide, want 20 to 2000",
		"NaN":                            "want 20 to 2000",
		named + "x":                      "no such file",
		filepath.Join(take, "notes.txt"): "no marker has a position",
	} {
		if _, err := findBox(take, setting); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", setting, err, want)
		}
	}
}

// TestPublishedBoxes solves LiveScan3D's published boxes with their files. Without a file, it
// checks that the A4 box is recognized and others are refused.
func TestPublishedBoxes(t *testing.T) {
	read := func(text string) Placement {
		at, _, err := ReadBox(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	a4 := choice{options: []Placement{Box(boxWidth), PublishedBox(boxWidth)}, guessed: true}
	for _, c := range []struct {
		name      string
		text      string
		x, z, top float64 // half the box, millimetres
		unaided   string  // outcome without the file; "" = not tested
	}{
		{"4S_A4", published("0.105", "0.105", "0"), 105, 105, 120, "solved"},
		{"4S_A3", published("0.1485", "0.1485", "0"), 148.5, 148.5, 160, "refused"},
		{"4S_Letter", published("0.108", "0.108", "0"), 108, 108, 120, ""},
		{"4S_A5", published("0.074", "0.074", "0"), 74, 74, 90, "refused"},
		{"5S_A4", published("0.105", "0.1485", "0.1485"), 105, 148.5, 148.5, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			at := read(c.text)
			scene := room{at: at, half: [3]float64{c.x, c.top, c.z}, size: 0.8 * min(c.x, c.z)}
			truth := []camera.Transform{
				lookAt([3]float64{300, 500, 1800}), lookAt([3]float64{1900, 400, 250}),
				lookAt([3]float64{-200, 450, -1850}), lookAt([3]float64{-1800, 550, -350}),
			}
			views := make([]View, len(truth))
			for i, pose := range truth {
				views[i] = scene.view(t, fmt.Sprintf("camera-%d", i), pose)
			}
			try := func(box choice) (off float64, err error) {
				poses, residual, err := solveAny(t.Context(), views, box)
				for i, pose := range poses {
					off = max(off, vec3.Length(pose.Inverse().Compose(truth[i]).T))
				}
				t.Logf("%.1f mm off, %+v, %v", off, residual, err)
				return off, err
			}
			if off, err := try(choice{options: []Placement{at}}); err != nil || off > 8 {
				t.Errorf("with its file: %.1f mm off, %v", off, err)
			}
			if c.unaided == "" {
				return
			}
			off, err := try(a4)
			if solved := err == nil && off < 8; c.unaided == "solved" != solved || !solved && !errors.Is(err, ErrDisagree) {
				t.Errorf("without: %.1f mm off, %v", off, err)
			}
		})
	}
}

// TestImpossibleAdjacency checks that the error names a camera that sees two markers together
// although they are not adjacent on the box.
func TestImpossibleAdjacency(t *testing.T) {
	const size = 84
	pose := lookAt([3]float64{1000, 300, 1000})
	see := func(at Placement, ids ...int) (list []sighting) {
		toCamera := pose.Inverse()
		for _, id := range ids {
			s := sighting{id: id, size: size}
			for k, c := range outline {
				place := at[id]
				s.corners[k] = toCamera.Apply(place.Apply([3]float64{c[0] * size, -c[1] * size, 0}))
			}
			list = append(list, s)
		}
		return list
	}
	views := []View{{Name: "left"}, {Name: "right"}}
	for name, c := range map[string]struct {
		seen []sighting
		at   Placement
		want string
	}{
		"the box itself":       {see(PublishedBox(210), 0, 3), PublishedBox(210), ""},
		"one marker":           {see(PublishedBox(297), 0), Box(210), ""},
		"opposite sides":       {see(PublishedBox(210), 0, 1), Box(210), "camera right: wrong marker box: it sees markers 0 1"},
		"the wrong way around": {see(PublishedBox(210), 0, 3), Box(210), "sees markers 0 3 together"},
		"a larger box":         {see(PublishedBox(297), 0, 3), PublishedBox(210), "mm off their positions"},
	} {
		t.Run(name, func(t *testing.T) {
			err := check(views, [][]sighting{nil, c.seen}, c.at, size)
			if errors.Is(err, ErrDisagree) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}
