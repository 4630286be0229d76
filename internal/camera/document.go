package camera

import (
	"encoding/json"
	"fmt"
)

// Document returns a factory document that Parse turns back into c for the same modes. It is meant
// for recordings of cameras without a factory calibration. c's image sizes must match the modes. The
// document puts the motion sensors at the depth camera.
func (c Calibration) Document(depth DepthMode, color ColorMode) ([]byte, error) {
	depthCrop, ok := depth.crop()
	if !ok {
		return nil, fmt.Errorf("calibration: unknown depth mode %q", string(depth))
	}
	colorCrop, ok := color.crop()
	if !ok {
		return nil, fmt.Errorf("calibration: unknown colour mode %q", string(color))
	}
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	for _, l := range []struct {
		name string
		in   *Intrinsics
		crop crop
	}{{"depth", &c.Depth, depthCrop}, {"color", &c.Color, colorCrop}} {
		if l.in.Width != int(l.crop.out[0]) || l.in.Height != int(l.crop.out[1]) {
			return nil, fmt.Errorf("calibration: %s is %d×%d, but its mode has %v×%v", l.name, l.in.Width, l.in.Height,
				l.crop.out[0], l.crop.out[1])
		}
	}
	type object = map[string]any
	lens := func(location, purpose string, in Intrinsics, cut crop, fromDepth Transform, width, height int) object {
		radius := in.MaxRadius
		if radius == 0 {
			radius = noMaxRadius
		}
		return object{
			"Intrinsics": object{
				"ModelParameterCount": 14,
				"ModelParameters": []float64{
					(in.Cx + cut.offset[0] + 0.5) / cut.scaled[0], (in.Cy + cut.offset[1] + 0.5) / cut.scaled[1],
					in.Fx / cut.scaled[0], in.Fy / cut.scaled[1],
					in.K[0], in.K[1], in.K[2], in.K[3], in.K[4], in.K[5], 0, 0, in.P[1], in.P[0],
				},
				"ModelType": brownConrady,
			},
			"Location": location, "Purpose": purpose, "MetricRadius": radius,
			"Rt": object{
				"Rotation":    fromDepth.R[:],
				"Translation": []float64{fromDepth.T[0] / 1000, fromDepth.T[1] / 1000, fromDepth.T[2] / 1000},
			},
			"SensorWidth": width, "SensorHeight": height, "Shutter": "CALIBRATION_ShutterTypeUndefined",
			"ThermalAdjustmentParams": object{"Params": make([]float64, 12)},
		}
	}
	motion := func(kind, id string) object {
		mix := make([]float64, 36)
		mix[0], mix[16], mix[32] = 1, 1, 1
		return object{
			"BiasTemperatureModel": make([]float64, 12), "BiasUncertainty": []float64{1e-4, 1e-4, 1e-4}, "Id": id,
			"MixingMatrixTemperatureModel": mix, "ModelTypeMask": 16, "Noise": make([]float64, 6),
			"Rt":                 object{"Rotation": Identity.R[:], "Translation": []float64{0, 0, 0}},
			"SecondOrderScaling": make([]float64, 9), "SensorType": kind,
			"TemperatureBounds": []float64{5, 60}, "TemperatureC": 0,
		}
	}
	const imu = "CALIBRATION_InertialSensorId_LSM6DSM"
	return json.Marshal(object{"CalibrationInformation": object{
		"Cameras": []object{
			lens(depthLocation, "CALIBRATION_CameraPurposeDepth", c.Depth, depthCrop, Identity, 1024, 1024),
			lens(colorLocation, "CALIBRATION_CameraPurposePhotoVideo", c.Color, colorCrop, c.DepthToColor, 4096, 3072),
		},
		"InertialSensors": []object{
			motion("CALIBRATION_InertialSensorType_Gyro", imu),
			motion("CALIBRATION_InertialSensorType_Accelerometer", imu),
		},
		"Metadata": object{"SerialId": c.Serial, "Version": object{"Major": 1, "Minor": 2}},
	}})
}

// noMaxRadius stands for an unlimited radius in a document, where 0 means unknown.
const noMaxRadius = 1000
