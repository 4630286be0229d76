package camera

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// document is a factory document with invented but plausible numbers: a wide-angle depth lens, and
// a colour lens 32 mm to the side that looks 5° down.
const document = `{"CalibrationInformation":{"Cameras":[
{"Intrinsics":{"ModelParameterCount":14,"ModelParameters":[0.51,0.505,0.4925,0.493,1.25,0.75,0.04,1.5,1.2,0.2,0,0,-0.00005,0.00008],
 "ModelType":"CALIBRATION_LensDistortionModelBrownConrady"},
 "Location":"CALIBRATION_CameraLocationD0","MetricRadius":1.74,
 "Rt":{"Rotation":[1,0,0,0,1,0,0,0,1],"Translation":[0,0,0]},"SensorHeight":1024,"SensorWidth":1024},
{"Intrinsics":{"ModelParameterCount":14,"ModelParameters":[0.4995,0.506,0.478,0.637,0.5,-2.5,1.5,0.4,-2.3,1.4,0,0,-0.0001,-0.0002],
 "ModelType":"CALIBRATION_LensDistortionModelBrownConrady"},
 "Location":"CALIBRATION_CameraLocationPV0","MetricRadius":0,
 "Rt":{"Rotation":[1,0,0,0,0.99619469809,0.08715574275,0,-0.08715574275,0.99619469809],"Translation":[-0.032,-0.002,0.004]},
 "SensorHeight":3072,"SensorWidth":4096}],
"InertialSensors":[],"Metadata":{"SerialId":"000123456789"}}}`

func parseDocument(t testing.TB, depth DepthMode, color ColorMode) Calibration {
	t.Helper()
	cal, err := Parse([]byte(document), depth, color)
	if err != nil {
		t.Fatal(err)
	}
	return cal
}

func TestParseReadsEveryField(t *testing.T) {
	cal, err := Parse([]byte(document+"\x00"), NFOVUnbinned, Color720P)
	if err != nil {
		t.Fatal(err)
	}
	// Use variables, because constant products are not rounded like products at run time.
	depthFx, colorFx, colorFy := 0.4925, 0.478, 0.637
	wantDepth := Intrinsics{
		Width: 640, Height: 576,
		Fx: depthFx * 1024, Fy: 0.493 * 1024,
		Cx: 0.51*1024 - 192 - 0.5, Cy: 0.505*1024 - 180 - 0.5,
		K: [6]float64{1.25, 0.75, 0.04, 1.5, 1.2, 0.2}, P: [2]float64{0.00008, -0.00005},
		MaxRadius: 1.74,
	}
	if cal.Depth != wantDepth {
		t.Errorf("depth lens\n got %+v\nwant %+v", cal.Depth, wantDepth)
	}
	wantColor := Intrinsics{
		Width: 1280, Height: 720,
		Fx: colorFx * 1280, Fy: colorFy * 960,
		Cx: 0.4995*1280 - 0.5, Cy: 0.506*960 - 120 - 0.5,
		K: [6]float64{0.5, -2.5, 1.5, 0.4, -2.3, 1.4}, P: [2]float64{-0.0002, -0.0001},
		MaxRadius: 1.7,
	}
	if cal.Color != wantColor {
		t.Errorf("colour lens\n got %+v\nwant %+v", cal.Color, wantColor)
	}
	if want := [3]float64{-32, -2, 4}; cal.DepthToColor.T != want {
		t.Errorf("DepthToColor.T = %v mm, want %v", cal.DepthToColor.T, want)
	}
	if cal.Serial != "000123456789" {
		t.Errorf("Serial = %q", cal.Serial)
	}
	if string(cal.Raw) != document {
		t.Errorf("Raw is not the document without its NUL")
	}
}

// TestParseVariants checks that Parse accepts unusual documents, as the Azure Kinect Sensor SDK
// does.
func TestParseVariants(t *testing.T) {
	want := parseDocument(t, NFOVUnbinned, Color720P)
	fifteen := strings.ReplaceAll(document, ":14,", ":15,")
	fifteen = strings.Replace(fifteen, "0.00008]", "0.00008,1.74]", 1)
	for name, doc := range map[string]string{
		"byte order mark":     "\xef\xbb\xbf" + document,
		"NUL":                 document + "\x00",
		"text after the NUL":  document + "\x00 written by a wrapper",
		"binary after it":     document + "\x00\xff\xfe{",
		"text after it":       document + "\r\n// end",
		"another document":    document + document,
		"space":               "\n " + document + " \n",
		"15 parameters":       fifteen,
		"14 of 15 parameters": strings.ReplaceAll(document, ":14,", ":15,"),
	} {
		t.Run(name, func(t *testing.T) {
			cal, err := Parse([]byte(doc), NFOVUnbinned, Color720P)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Parse(cal.Raw, NFOVUnbinned, Color720P); err != nil {
				t.Errorf("Raw: %v", err)
			}
			cal.Raw = want.Raw
			if !reflect.DeepEqual(cal, want) {
				t.Errorf("calibration\n got %+v\nwant %+v", cal, want)
			}
		})
	}
}

// rationalDocument is the factory document of an early device, with Rational6KT lenses.
const rationalDocument = `{"CalibrationInformation":{"Cameras":[
{"Intrinsics":{"ModelParameterCount":15,"ModelParameters":[0.5102,0.5003,0.4935,0.4937,
 0.4361,0.06834,0.004369,0.7732,0.1479,0.02008,-0.000483,-0.0000545,0.0000639,-0.00009,1.739],
 "ModelType":"CALIBRATION_LensDistortionModelRational6KT"},
 "Location":"CALIBRATION_CameraLocationD0","MetricRadius":1.739,
 "Rt":{"Rotation":[1,0,0,0,1,0,0,0,1],"Translation":[0,0,0]},"SensorHeight":1024,"SensorWidth":1024},
{"Intrinsics":{"ModelParameterCount":15,"ModelParameters":[0.5064,0.5013,0.4732,0.6306,
 0.6688,-2.7474,1.5317,0.5454,-2.5779,1.464,0.001089,0.001036,-0.0000857,0.000833,1.4],
 "ModelType":"CALIBRATION_LensDistortionModelRational6KT"},
 "Location":"CALIBRATION_CameraLocationPV0","MetricRadius":0,
 "Rt":{"Rotation":[1,0,0,0,1,0,0,0,1],"Translation":[-0.032,-0.002,0.004]},
 "SensorHeight":3072,"SensorWidth":4096}]}}`

// TestParseRational6KT compares converted lenses with the model's formula.
func TestParseRational6KT(t *testing.T) {
	cal, err := Parse([]byte(rationalDocument), WFOVUnbinned, Color1536P)
	if err != nil {
		t.Fatal(err)
	}
	for name, lens := range map[string]struct {
		got            Intrinsics
		cx, cy, fx, fy float64 // of the document, pixels
		k              [6]float64
		centre, p      [2]float64
		radius         float64 // maxRadius of the image's corners or of the lens
	}{
		"depth": {
			cal.Depth, 0.5102*1024 - 0.5, 0.5003*1024 - 0.5, 0.4935 * 1024, 0.4937 * 1024,
			[6]float64{0.4361, 0.06834, 0.004369, 0.7732, 0.1479, 0.02008},
			[2]float64{-0.000483, -0.0000545},
			[2]float64{-0.00009, 0.0000639},
			1.73,
		},
		"colour": {
			cal.Color, 0.5064*2048 - 0.5, 0.5013*1536 - 0.5, 0.4732 * 2048, 0.6306 * 1536,
			[6]float64{0.6688, -2.7474, 1.5317, 0.5454, -2.5779, 1.464},
			[2]float64{0.001089, 0.001036},
			[2]float64{0.000833, -0.0000857},
			1.3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pixels, worst := 0, 0.0
			for x := -lens.radius; x <= lens.radius; x += 0.02 {
				for y := -lens.radius; y <= lens.radius; y += 0.02 {
					dx, dy := x-lens.centre[0], y-lens.centre[1]
					s, k, p := dx*dx+dy*dy, lens.k, lens.p
					d := (1 + k[0]*s + k[1]*s*s + k[2]*s*s*s) / (1 + k[3]*s + k[4]*s*s + k[5]*s*s*s)
					u := (dx*d+(s+2*dx*dx)*p[1]+dx*dy*p[0]+lens.centre[0])*lens.fx + lens.cx
					v := (dy*d+(s+2*dy*dy)*p[0]+dx*dy*p[1]+lens.centre[1])*lens.fy + lens.cy
					gotU, gotV, ok := lens.got.Project([3]float64{x, y, 1})
					if x*x+y*y > lens.radius*lens.radius ||
						math.Abs(2*u+1-float64(lens.got.Width)) > float64(lens.got.Width) ||
						math.Abs(2*v+1-float64(lens.got.Height)) > float64(lens.got.Height) {
						continue
					}
					pixels++
					if worst = max(worst, math.Hypot(gotU-u, gotV-v)); !ok {
						t.Fatalf("(%g, %g) has no pixel, want (%g, %g)", x, y, u, v)
					}
				}
			}
			// The corners are worst.
			if limit := 0.0006 * lens.fx; pixels < 1000 || worst > limit {
				t.Errorf("up to %.3f pixels from the model at %d points, want at most %.3f", worst, pixels, limit)
			}
		})
	}
}

func TestParseModes(t *testing.T) {
	for _, depth := range []DepthMode{NFOV2x2Binned, NFOVUnbinned, WFOV2x2Binned, WFOVUnbinned} {
		for _, color := range []ColorMode{
			ColorOff, Color720P, Color1080P, Color1440P, Color1536P, Color2160P,
			Color3072P,
		} {
			t.Run(string(depth)+"/"+string(color), func(t *testing.T) {
				cal := parseDocument(t, depth, color)
				dw, dh := depth.Size()
				cw, ch := color.Size()
				if cal.Depth.Width != dw || cal.Depth.Height != dh || cal.Color.Width != cw || cal.Color.Height != ch {
					t.Errorf("sizes %d×%d and %d×%d, want %d×%d and %d×%d",
						cal.Depth.Width, cal.Depth.Height, cal.Color.Width, cal.Color.Height, dw, dh, cw, ch)
				}
				// Binning and cropping move pixels but not directions, so the sensor's middle has
				// the same ray in every mode.
				full := parseDocument(t, WFOVUnbinned, Color3072P)
				checkSameRay(t, depth.crop, &cal.Depth, &full.Depth, 512, 512, 1024)
				if color != ColorOff {
					checkSameRay(t, color.crop, &cal.Color, &full.Color, 2048, 1536, 4096)
				}
			})
		}
	}
}

// checkSameRay compares the rays of one sensor point in two modes. (u, v) counts pixels from the
// top-left corner of a full-sensor image that is width pixels wide.
func checkSameRay(t *testing.T, crop func() (crop, bool), in, full *Intrinsics, u, v, width float64) {
	t.Helper()
	c, _ := crop()
	scale := c.scaled[0] / width
	x, y, ok := in.Unproject(u*scale-c.offset[0]-0.5, v*scale-c.offset[1]-0.5)
	wx, wy, wok := full.Unproject(u-0.5, v-0.5)
	if !ok || !wok || math.Abs(x-wx) > 1e-9 || math.Abs(y-wy) > 1e-9 {
		t.Errorf("ray (%g, %g) %v, want (%g, %g) %v", x, y, ok, wx, wy, wok)
	}
}

func TestParseLegacy16x9(t *testing.T) {
	// This is the same lens, calibrated on the 16:9 middle of the sensor.
	wide := strings.NewReplacer(
		`"SensorHeight":3072,"SensorWidth":4096`, `"SensorHeight":2304,"SensorWidth":4096`,
		"0.506,0.478,0.637", "0.508,0.478,0.8493333333333334",
	).Replace(document)
	got, err := Parse([]byte(wide), NFOVUnbinned, Color1080P)
	if err != nil {
		t.Fatal(err)
	}
	want := parseDocument(t, NFOVUnbinned, Color1080P)
	for name, d := range map[string]float64{
		"fx": got.Color.Fx - want.Color.Fx, "fy": got.Color.Fy - want.Color.Fy,
		"cx": got.Color.Cx - want.Color.Cx, "cy": got.Color.Cy - want.Color.Cy,
	} {
		if math.Abs(d) > 1e-9 {
			t.Errorf("%s is off by %g pixels", name, d)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	replace := func(old, new string) string {
		if !strings.Contains(document, old) {
			t.Fatalf("document does not contain %q", old)
		}
		return strings.Replace(document, old, new, 1)
	}
	for name, tc := range map[string]struct {
		doc   string
		depth DepthMode
		color ColorMode
		want  string
	}{
		"empty":      {doc: "", want: "not a factory document: EOF"},
		"not JSON":   {doc: "{", want: "not a factory document: unexpected EOF"},
		"other JSON": {doc: `{"a":1}`, want: "CalibrationInformation is missing"},
		"null":       {doc: `null`, want: "CalibrationInformation is missing"},
		"too large": {
			doc:  strings.Repeat(" ", maxDocument+1),
			want: "document has 1048577 bytes, more than the limit of 1048576",
		},
		"infinite": {doc: replace("0.51,", "1e999,"), want: "cannot unmarshal number 1e999"},
		"no depth camera": {
			doc:  replace("LocationD0", "LocationX"),
			want: "no camera CALIBRATION_CameraLocationD0 among the document's 2 cameras",
		},
		"no colour camera": {
			doc: replace("LocationPV0", "LocationX"), color: Color720P,
			want: "no camera CALIBRATION_CameraLocationPV0 among the document's 2 cameras",
		},
		"model": {
			doc:  replace("BrownConrady", "Polynomial3K"),
			want: `CALIBRATION_CameraLocationD0: lens model "Polynomial3K" is not supported`,
		},
		"count": {
			doc:  replace(":14", ":13"),
			want: "ModelParameterCount is 13 for 14 ModelParameters; both must be 14 or 15",
		},
		"many parameters": {
			doc:  replace(`:14,"ModelParameters":[0.51,`, `:16,"ModelParameters":[0.51,0,0,`),
			want: "ModelParameterCount is 16 for 16 ModelParameters; both must be 14 or 15",
		},
		"far from Brown-Conrady": {
			doc:  strings.Replace(replace("BrownConrady", "Rational6KT"), ",0,0,-0.00005", ",0.1,0,-0.00005", 1),
			want: "CALIBRATION_CameraLocationD0: lens model Rational6KT deviates by 0.0",
		},
		"few parameters": {doc: replace("0.51,", ""), want: "ModelParameterCount is 14 for 13 ModelParameters"},
		"no intrinsics":  {doc: replace(`"Intrinsics"`, `"Extrinsics"`), want: "field Intrinsics is missing"},
		"no Rt":          {doc: replace(`"Rt"`, `"Tr"`), want: "field Rt is missing"},
		"short rotation": {
			doc:  replace("[1,0,0,0,1,0,0,0,1]", "[1]"),
			want: "Rt has 1 rotation and 3 translation values",
		},
		"no rotation": {
			doc:  replace("[1,0,0,0,1,0,0,0,1]", "[2,0,0,0,1,0,0,0,1]"),
			want: "rotation rows 0 and 0 have scalar product 4",
		},
		"reflection": {
			doc:  replace("[1,0,0,0,1,0,0,0,1]", "[-1,0,0,0,1,0,0,0,1]"),
			want: "rotation is a reflection",
		},
		"distortion's centre": {
			doc: replace(",0,0,-0.00005", ",0.1,0,-0.00005"), want: "centre of distortion (0.1, 0) is not zero",
		},
		"focal length": {doc: replace("0.4925", "-0.4925"), want: "depth: focal length fx -504.32"},
		"depth sensor": {
			doc:  replace(`"SensorWidth":1024`, `"SensorWidth":640`),
			want: "sensor is 640×1024, want 1024×1024",
		},
		"colour sensor": {
			doc: replace(`"SensorWidth":4096`, `"SensorWidth":3072`), color: Color720P,
			want: "sensor is 3072×3072, want an aspect ratio of 4:3 or 16:9",
		},
		"passive IR":         {doc: document, depth: PassiveIR, want: "depth mode PASSIVE_IR has no depth"},
		"unknown depth mode": {doc: document, depth: "NARROW", want: `unknown depth mode "NARROW"`},
		"unknown color mode": {doc: document, color: "4K", want: `unknown colour mode "4K"`},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.depth == "" {
				tc.depth = NFOVUnbinned
			}
			_, err := Parse([]byte(tc.doc), tc.depth, tc.color)
			if err == nil || !strings.HasPrefix(err.Error(), "calibration: ") ||
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %q, want it to contain %q", err, tc.want)
			}
		})
	}
}

func TestModeNames(t *testing.T) {
	if m, err := ParseDepthMode("nfov_unbinned"); m != NFOVUnbinned || err != nil {
		t.Errorf("ParseDepthMode = %q, %v", m, err)
	}
	if m, err := ParseColorMode("720p"); m != Color720P || err != nil {
		t.Errorf("ParseColorMode = %q, %v", m, err)
	}
	if m, err := ParseColorMode("off"); m != ColorOff || err != nil {
		t.Errorf("ParseColorMode = %q, %v", m, err)
	}
	if _, err := ParseDepthMode("wide"); err == nil || !strings.Contains(err.Error(), `unknown depth mode "wide"`) {
		t.Errorf("ParseDepthMode error %v", err)
	}
	if _, err := ParseColorMode("8k"); err == nil || !strings.Contains(err.Error(), `unknown colour mode "8k"`) {
		t.Errorf("ParseColorMode error %v", err)
	}
}

func TestUnprojectInvertsProject(t *testing.T) {
	cal := parseDocument(t, WFOVUnbinned, Color2160P)
	for name, in := range map[string]*Intrinsics{"depth": &cal.Depth, "color": &cal.Color} {
		t.Run(name, func(t *testing.T) {
			valid := 0
			for v := 0; v < in.Height; v += 31 {
				for u := 0; u < in.Width; u += 29 {
					x, y, ok := in.Unproject(float64(u), float64(v))
					if !ok {
						continue
					}
					valid++
					pu, pv, ok := in.Project([3]float64{x * 700, y * 700, 700})
					if !ok || math.Hypot(pu-float64(u), pv-float64(v)) > 1e-3 {
						t.Fatalf("pixel (%d, %d) → (%g, %g) → (%g, %g) %v", u, v, x, y, pu, pv, ok)
					}
				}
			}
			if valid < 500 {
				t.Errorf("only %d pixels have a ray", valid)
			}
		})
	}
}

func TestProjectRefuses(t *testing.T) {
	cal := parseDocument(t, NFOVUnbinned, ColorOff)
	for name, p := range map[string][3]float64{
		"behind":            {0, 0, -1},
		"in the lens plane": {1, 0, 0},
		"beyond MaxRadius":  {1.75, 0, 1},
		"not a number":      {0, 0, math.NaN()},
	} {
		t.Run(name, func(t *testing.T) {
			if u, v, ok := cal.Depth.Project(p); ok {
				t.Errorf("Project = (%g, %g), want no pixel", u, v)
			}
		})
	}
}

func TestUnprojectWithoutSolution(t *testing.T) {
	in := parseDocument(t, NFOVUnbinned, ColorOff).Depth
	in.K = [6]float64{math.NaN()}
	if _, _, ok := in.Unproject(10, 10); ok {
		t.Error("a lens that is not a number has a ray")
	}
}

// TestRayTableBits checks the table's bits. Implementations of Unproject in other languages check
// against the same testdata/raytable.json: sha256 is the digest of X, then Y, as little-endian
// float32 with NaN as 0x7fc00000.
func TestRayTableBits(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("testdata", "raytable.json"))
	if err != nil {
		t.Fatal(err)
	}
	var vector struct {
		Intrinsics  Intrinsics `json:"intrinsics"`
		WithoutRays int        `json:"withoutRays"`
		SHA256      string     `json:"sha256"`
	}
	if err := json.Unmarshal(doc, &vector); err != nil {
		t.Fatal(err)
	}
	table := vector.Intrinsics.RayTable()
	var buf []byte
	invalid := 0
	for i, x := range table.X {
		if x != x {
			invalid++
			if table.Y[i] != 0 {
				t.Fatalf("pixel %d without a ray has Y = %g", i, table.Y[i])
			}
			table.X[i] = math.Float32frombits(0x7fc00000)
		}
	}
	for _, plane := range [][]float32{table.X, table.Y} {
		for _, f := range plane {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(f))
		}
	}
	sum := sha256.Sum256(buf)
	if got := hex.EncodeToString(sum[:]); got != vector.SHA256 || invalid != vector.WithoutRays {
		t.Errorf("ray table has digest %s and %d pixels without a ray, want %s and %d", got, invalid, vector.SHA256,
			vector.WithoutRays)
	}
}

func TestCalibrationJSONRoundTrip(t *testing.T) {
	want := parseDocument(t, NFOVUnbinned, Color1440P)
	doc, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Calibration
	if err := json.Unmarshal(doc, &got); err != nil {
		t.Fatal(err)
	}
	want.Raw = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("calibration changed on its way through JSON\n got %+v\nwant %+v", got, want)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(*Calibration)
		want  string
	}{
		"width": {
			func(c *Calibration) { c.Depth.Width = 1 << 30 },
			"depth: image size 1073741824×576 is outside 1..8192",
		},
		"height":   {func(c *Calibration) { c.Color.Height = -1 }, "color: image size 1280×-1"},
		"focal":    {func(c *Calibration) { c.Depth.Fx = math.NaN() }, "depth: focal length fx NaN"},
		"radial":   {func(c *Calibration) { c.Depth.K[5] = math.Inf(1) }, "depth: a lens parameter is not finite"},
		"radius":   {func(c *Calibration) { c.Depth.MaxRadius = -1 }, "depth: maxRadius -1 is negative"},
		"rotation": {func(c *Calibration) { c.DepthToColor.R = [9]float64{} }, "depthToColor: rotation rows 0 and 0"},
		"transform": {
			func(c *Calibration) { c.DepthToColor.T[1] = math.NaN() },
			"depthToColor: transform is not finite",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cal := parseDocument(t, NFOVUnbinned, Color720P)
			tc.spoil(&cal)
			if err := cal.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// dataDir returns the directory of capture data, or skips the test.
func dataDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("HOLOCAST_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("HOLOCAST_DATA not found: %v", err)
	}
	return dir
}

func TestParseRealCalibrations(t *testing.T) {
	dir := dataDir(t)
	files, err := filepath.Glob(filepath.Join(dir, "livescan_testdata", "*", "Intrinsics.json"))
	if err != nil || len(files) != 4 {
		t.Fatalf("found %d Intrinsics.json, want 4 (%v)", len(files), err)
	}
	for _, file := range files {
		doc, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		cal, err := Parse(doc, NFOVUnbinned, Color1080P)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		table := cal.Depth.RayTable()
		rays := 0
		for _, x := range table.X {
			if x == x {
				rays++
			}
		}
		// The lens model covers the whole narrow field of view, so every pixel has a ray.
		if rays != len(table.X) {
			t.Errorf("%s: %d of %d pixels have a ray", file, rays, len(table.X))
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(document), uint8(1), uint8(1))
	f.Add([]byte(strings.Replace(document, "0.51,", "1e308,", 1)), uint8(3), uint8(6))
	f.Add([]byte(`{"CalibrationInformation":{"Cameras":[{}]}}`), uint8(0), uint8(0))
	f.Add([]byte("\xef\xbb\xbf"+rationalDocument+"\x00text"), uint8(3), uint8(1))
	depths := []DepthMode{NFOV2x2Binned, NFOVUnbinned, WFOV2x2Binned, WFOVUnbinned, PassiveIR}
	colors := []ColorMode{ColorOff, Color720P, Color1080P, Color1440P, Color1536P, Color2160P, Color3072P}
	f.Fuzz(func(t *testing.T, doc []byte, depth, color uint8) {
		cal, err := Parse(doc, depths[int(depth)%len(depths)], colors[int(color)%len(colors)])
		if err != nil {
			return
		}
		if err := cal.Validate(); err != nil {
			t.Fatalf("Parse let through a calibration that is not valid: %v", err)
		}
		if x, y, ok := cal.Depth.Unproject(320, 200); ok && !finite(x, y) {
			t.Fatalf("ray (%g, %g) is not finite", x, y)
		}
	})
}

func BenchmarkRayTableNFOV(b *testing.B) {
	in := parseDocument(b, NFOVUnbinned, ColorOff).Depth
	for b.Loop() {
		in.RayTable()
	}
}
