package camera

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// maxDocument bounds a factory document in bytes; real documents have 4 to 10 kB.
const maxDocument = 1 << 20

// defaultMaxRadius is the Azure Kinect Sensor SDK's default for an unknown MetricRadius (0), about
// 120° field of view.
const defaultMaxRadius = 1.7

// factoryDocument is the part of calibration.json that describes geometry.
type factoryDocument struct {
	CalibrationInformation *struct {
		Cameras  []factoryCamera
		Metadata struct {
			SerialID string `json:"SerialId"`
		}
	}
}

type factoryCamera struct {
	Location   string
	Intrinsics *struct {
		ModelParameterCount int
		ModelParameters     []float64
		ModelType           string
	}
	Rt *struct {
		Rotation    []float64
		Translation []float64 // metres
	}
	MetricRadius float64
	SensorWidth  int
	SensorHeight int
}

const (
	depthLocation = "CALIBRATION_CameraLocationD0"
	colorLocation = "CALIBRATION_CameraLocationPV0"
	brownConrady  = "CALIBRATION_LensDistortionModelBrownConrady"
	rational6KT   = "CALIBRATION_LensDistortionModelRational6KT"
)

// Parse parses an Azure Kinect's factory document for one depth mode and one colour mode. The
// document is the calibration.json of a k4a recording, the result of k4a_device_get_raw_calibration
// or LiveScan3D's Intrinsics.json. As in the SDK, a byte order mark may precede the document and
// any text may follow it. Lenses of early devices (model Rational6KT) are converted. With ColorOff,
// Color is zero and DepthToColor is Identity. Errors name the field of the document.
//
// Crops and scales follow the Azure Kinect Sensor SDK 1.4 (mode_specific_calibration.c).
func Parse(doc []byte, depth DepthMode, color ColorMode) (Calibration, error) {
	cal, err := parse(doc, depth, color)
	if err != nil {
		return Calibration{}, fmt.Errorf("calibration: %w", err)
	}
	return cal, nil
}

func parse(doc []byte, depth DepthMode, color ColorMode) (Calibration, error) {
	if depth == PassiveIR {
		return Calibration{}, errors.New("depth mode PASSIVE_IR has no depth")
	}
	depthCrop, ok := depth.crop()
	if !ok {
		return Calibration{}, fmt.Errorf("unknown depth mode %q", string(depth))
	}
	colorCrop, ok := color.crop()
	if !ok && color != ColorOff {
		return Calibration{}, fmt.Errorf("unknown colour mode %q", string(color))
	}
	if len(doc) > maxDocument {
		return Calibration{}, fmt.Errorf("document has %d bytes, more than the limit of %d", len(doc), maxDocument)
	}
	body := bytes.TrimPrefix(doc, []byte("\xef\xbb\xbf"))
	var f factoryDocument
	decoder := json.NewDecoder(bytes.NewReader(body))
	if err := decoder.Decode(&f); err != nil {
		return Calibration{}, fmt.Errorf("not a factory document: %w", err)
	}
	body = body[:decoder.InputOffset()]
	if f.CalibrationInformation == nil {
		return Calibration{}, errors.New("CalibrationInformation is missing")
	}
	info := f.CalibrationInformation

	d, err := find(info.Cameras, depthLocation)
	if err != nil {
		return Calibration{}, err
	}
	if d.SensorWidth != 1024 || d.SensorHeight != 1024 {
		return Calibration{}, fmt.Errorf("%s: sensor is %d×%d, want 1024×1024", depthLocation, d.SensorWidth,
			d.SensorHeight)
	}
	cal := Calibration{
		Serial:       info.Metadata.SerialID,
		Depth:        d.lens.cut(depthCrop),
		DepthToColor: Identity,
		Raw:          bytes.Clone(body),
	}
	if color != ColorOff {
		c, err := find(info.Cameras, colorLocation)
		if err != nil {
			return Calibration{}, err
		}
		switch {
		case c.SensorWidth > 0 && c.SensorWidth*3/4 == c.SensorHeight:
		case c.SensorWidth > 0 && c.SensorWidth*9/16 == c.SensorHeight:
			// This lens was calibrated on a 16:9 image, the middle of the 4:3 sensor.
			c.lens = c.lens.widen()
		default:
			return Calibration{}, fmt.Errorf("%s: sensor is %d×%d, want an aspect ratio of 4:3 or 16:9", colorLocation,
				c.SensorWidth, c.SensorHeight)
		}
		cal.Color = c.lens.cut(colorCrop)
		cal.DepthToColor = c.fromWorld.Compose(d.fromWorld.Inverse())
	}
	if err := cal.Validate(); err != nil {
		return Calibration{}, err
	}
	return cal, nil
}

// calibrated is one camera of the document with checked fields.
type calibrated struct {
	SensorWidth, SensorHeight int
	lens                      unitLens
	fromWorld                 Transform
}

// unitLens is a lens in factory units: focal lengths and principal point are fractions of the
// image, with (0,0) at the corner of the top-left pixel.
type unitLens struct {
	fx, fy, cx, cy float64
	rest           Intrinsics // K, P and MaxRadius
}

func (l unitLens) cut(c crop) Intrinsics {
	in := l.rest
	in.Width, in.Height = int(c.out[0]), int(c.out[1])
	in.Fx, in.Fy = l.fx*c.scaled[0], l.fy*c.scaled[1]
	in.Cx = l.cx*c.scaled[0] - c.offset[0] - 0.5
	in.Cy = l.cy*c.scaled[1] - c.offset[1] - 0.5
	return in
}

// widen converts a lens calibrated on the sensor's 4096×2304 middle to the full 4096×3072.
func (l unitLens) widen() unitLens {
	l.cy = (l.cy*2304 + 384) / 3072
	l.fy = l.fy * 2304 / 3072
	return l
}

func find(cameras []factoryCamera, location string) (calibrated, error) {
	for i := range cameras {
		if cameras[i].Location != location {
			continue
		}
		c, err := cameras[i].check()
		if err != nil {
			return calibrated{}, fmt.Errorf("%s: %w", location, err)
		}
		return c, nil
	}
	return calibrated{}, fmt.Errorf("no camera %s among the document's %d cameras", location, len(cameras))
}

// check converts a camera's entry to geometry. ModelParameters are cx cy fx fy k1 k2 k3 k4 k5 k6
// codx cody p2 p1, in this order, and in some documents a metric radius, which the SDK ignores.
func (f *factoryCamera) check() (calibrated, error) {
	const least, most = 14, 15
	in := f.Intrinsics
	if in == nil {
		return calibrated{}, errors.New("field Intrinsics is missing")
	}
	if in.ModelType != brownConrady && in.ModelType != rational6KT {
		return calibrated{}, fmt.Errorf("lens model %q is not supported; only BrownConrady and Rational6KT are",
			strings.TrimPrefix(in.ModelType, "CALIBRATION_LensDistortionModel"))
	}
	p := in.ModelParameters
	if in.ModelParameterCount > most || len(p) < least || len(p) > in.ModelParameterCount {
		return calibrated{}, fmt.Errorf("ModelParameterCount is %d for %d ModelParameters; both must be %d or %d",
			in.ModelParameterCount, len(p), least, most)
	}
	if in.ModelType == brownConrady && (p[10] != 0 || p[11] != 0) {
		return calibrated{}, fmt.Errorf("centre of distortion (%g, %g) is not zero", p[10], p[11])
	}
	if f.Rt == nil {
		return calibrated{}, errors.New("field Rt is missing")
	}
	if len(f.Rt.Rotation) != 9 || len(f.Rt.Translation) != 3 {
		return calibrated{}, fmt.Errorf("field Rt has %d rotation and %d translation values, want 9 and 3",
			len(f.Rt.Rotation), len(f.Rt.Translation))
	}
	c := calibrated{SensorWidth: f.SensorWidth, SensorHeight: f.SensorHeight}
	copy(c.fromWorld.R[:], f.Rt.Rotation)
	for i, metres := range f.Rt.Translation {
		c.fromWorld.T[i] = 1000 * metres
	}
	if err := c.fromWorld.Validate(); err != nil {
		return calibrated{}, fmt.Errorf("field Rt: %w", err)
	}
	c.lens = unitLens{cx: p[0], cy: p[1], fx: p[2], fy: p[3]}
	copy(c.lens.rest.K[:], p[4:10])
	c.lens.rest.P = [2]float64{p[13], p[12]}
	c.lens.rest.MaxRadius = f.MetricRadius
	if f.MetricRadius <= 0.0001 {
		c.lens.rest.MaxRadius = defaultMaxRadius
	}
	if in.ModelType == rational6KT {
		return c, c.lens.fromRational6KT([2]float64(p[10:12]))
	}
	return c, nil
}
