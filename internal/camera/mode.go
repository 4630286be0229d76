package camera

import (
	"fmt"
	"strings"
)

// DepthMode is a depth camera mode, named as in k4a recordings.
type DepthMode string

// Depth modes of an Azure Kinect. PassiveIR delivers no depth.
const (
	NFOV2x2Binned DepthMode = "NFOV_2X2BINNED" // 320×288
	NFOVUnbinned  DepthMode = "NFOV_UNBINNED"  // 640×576
	WFOV2x2Binned DepthMode = "WFOV_2X2BINNED" // 512×512
	WFOVUnbinned  DepthMode = "WFOV_UNBINNED"  // 1024×1024, at most 15 fps
	PassiveIR     DepthMode = "PASSIVE_IR"     // 1024×1024, infrared only
)

// ColorMode is a colour resolution, named as in k4a recordings.
type ColorMode string

// Colour resolutions of an Azure Kinect; ColorOff means that the camera records no colour.
const (
	ColorOff   ColorMode = ""
	Color720P  ColorMode = "720P"  // 1280×720
	Color1080P ColorMode = "1080P" // 1920×1080
	Color1440P ColorMode = "1440P" // 2560×1440
	Color1536P ColorMode = "1536P" // 2048×1536
	Color2160P ColorMode = "2160P" // 3840×2160
	Color3072P ColorMode = "3072P" // 4096×3072, at most 15 fps
)

// ColorFormat is the format of colour images, named by its FOURCC in k4a recordings.
type ColorFormat string

// Colour formats of an Azure Kinect. NV12 and YUY2 exist at 720P only.
const (
	MJPG ColorFormat = "MJPG" // JPEG
	NV12 ColorFormat = "NV12" // 4:2:0: a Y plane, then a plane of interleaved U and V
	YUY2 ColorFormat = "YUY2" // 4:2:2, packed
	BGRA ColorFormat = "BGRA" // 4 bytes a pixel
)

// crop defines a mode's image: the calibrated image is resized to scaled pixels and then cropped to
// out pixels at offset.
type crop struct {
	scaled, offset, out [2]float64
}

func (m DepthMode) crop() (crop, bool) {
	switch m {
	case NFOV2x2Binned:
		return crop{scaled: [2]float64{512, 512}, offset: [2]float64{96, 90}, out: [2]float64{320, 288}}, true
	case NFOVUnbinned:
		return crop{scaled: [2]float64{1024, 1024}, offset: [2]float64{192, 180}, out: [2]float64{640, 576}}, true
	case WFOV2x2Binned:
		return crop{scaled: [2]float64{512, 512}, out: [2]float64{512, 512}}, true
	case WFOVUnbinned, PassiveIR:
		return crop{scaled: [2]float64{1024, 1024}, out: [2]float64{1024, 1024}}, true
	}
	return crop{}, false
}

func (m ColorMode) crop() (crop, bool) {
	switch m {
	case Color720P:
		return crop{scaled: [2]float64{1280, 960}, offset: [2]float64{0, 120}, out: [2]float64{1280, 720}}, true
	case Color1080P:
		return crop{scaled: [2]float64{1920, 1440}, offset: [2]float64{0, 180}, out: [2]float64{1920, 1080}}, true
	case Color1440P:
		return crop{scaled: [2]float64{2560, 1920}, offset: [2]float64{0, 240}, out: [2]float64{2560, 1440}}, true
	case Color1536P:
		return crop{scaled: [2]float64{2048, 1536}, out: [2]float64{2048, 1536}}, true
	case Color2160P:
		return crop{scaled: [2]float64{3840, 2880}, offset: [2]float64{0, 360}, out: [2]float64{3840, 2160}}, true
	case Color3072P:
		return crop{scaled: [2]float64{4096, 3072}, out: [2]float64{4096, 3072}}, true
	}
	return crop{}, false
}

// Size returns the mode's image size in pixels, or 0×0 for an unknown mode.
func (m DepthMode) Size() (width, height int) {
	c, _ := m.crop()
	return int(c.out[0]), int(c.out[1])
}

// Size returns the mode's image size in pixels, or 0×0 for ColorOff and unknown modes.
func (m ColorMode) Size() (width, height int) {
	c, _ := m.crop()
	return int(c.out[0]), int(c.out[1])
}

// ParseDepthMode parses a depth mode's name, ignoring case.
func ParseDepthMode(s string) (DepthMode, error) {
	m := DepthMode(strings.ToUpper(s))
	if _, ok := m.crop(); !ok {
		return "",
			fmt.Errorf("unknown depth mode %q: want NFOV_2X2BINNED, NFOV_UNBINNED, WFOV_2X2BINNED, WFOV_UNBINNED or "+
				"PASSIVE_IR", s)
	}
	return m, nil
}

// ParseColorFormat parses a colour format's name, ignoring case.
func ParseColorFormat(s string) (ColorFormat, error) {
	switch f := ColorFormat(strings.ToUpper(s)); f {
	case MJPG, NV12, YUY2, BGRA:
		return f, nil
	}
	return "", fmt.Errorf("unknown colour format %q: want MJPG, NV12, YUY2 or BGRA", s)
}

// ParseColorMode parses a colour mode's name, ignoring case. "off" and "" mean ColorOff.
func ParseColorMode(s string) (ColorMode, error) {
	if s == "" || strings.EqualFold(s, "off") {
		return ColorOff, nil
	}
	m := ColorMode(strings.ToUpper(s))
	if _, ok := m.crop(); !ok {
		return "", fmt.Errorf("unknown colour mode %q: want 720p, 1080p, 1440p, 1536p, 2160p, 3072p or off", s)
	}
	return m, nil
}

// DepthModeOf returns the depth mode with the given image size in pixels.
func DepthModeOf(width, height int) (DepthMode, error) {
	for _, m := range []DepthMode{NFOVUnbinned, NFOV2x2Binned, WFOV2x2Binned, WFOVUnbinned} {
		if w, h := m.Size(); w == width && h == height {
			return m, nil
		}
	}
	return "", fmt.Errorf("depth image is %d×%d, which is not the size of any Azure Kinect mode", width, height)
}

// ColorModeOf returns the colour mode with the given image size in pixels.
func ColorModeOf(width, height int) (ColorMode, error) {
	for _, m := range []ColorMode{Color720P, Color1080P, Color1440P, Color1536P, Color2160P, Color3072P} {
		if w, h := m.Size(); w == width && h == height {
			return m, nil
		}
	}
	return ColorOff, fmt.Errorf("colour image is %d×%d, which is not the size of any Azure Kinect mode", width, height)
}
