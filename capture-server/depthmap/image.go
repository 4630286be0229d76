package depthmap

// #include "kernels.h"
import "C"

import (
	"errors"
	"fmt"
	"image"
	"time"

	"holocast/capture-server/source"
	"holocast/internal/camera"
	"holocast/internal/mjpeg"
	"holocast/internal/pointcloud"
)

// colorImage is a frame's colour image in its original layout, or the decoded planes of its JPEG.
// Only pixels that become points are converted to RGB.
type colorImage struct {
	jpeg image.YCbCr

	bgra      []byte // set for BGRA, otherwise the planes below
	y, cb, cr []byte
	layout    C.struct_layout
}

// load reads f's image, which must have the calibrated size. It decodes a JPEG at 1/reduce of its
// size, and keeps it if the error is mjpeg.ErrIncomplete. It returns ErrNoColor if f has no image.
func (c *colorImage) load(d *mjpeg.Decoder, f *source.Frame, in camera.Intrinsics, reduce int) error {
	if len(f.Color) == 0 {
		return ErrNoColor
	}
	w, h := in.Width, in.Height
	c.bgra = nil
	c.layout = C.struct_layout{width: C.int32_t(w), height: C.int32_t(h), y_step: 1, c_step: 1, limited: 1}
	switch f.Format {
	case camera.MJPG:
		hdr, err := d.Header(f.Color)
		if err != nil {
			return err
		}
		if hdr.Width != w || hdr.Height != h {
			return fmt.Errorf("colour image is %d×%d, calibration has %d×%d", hdr.Width, hdr.Height, w, h)
		}
		err = d.DecodeYCbCr(&c.jpeg, f.Color, reduce)
		if err == nil || errors.Is(err, mjpeg.ErrIncomplete) {
			c.fromJPEG()
		}
		return err
	case camera.NV12:
		if err := wantBytes(f, in, w*h+2*((w+1)/2)*((h+1)/2)); err != nil {
			return err
		}
		c.y, c.cb, c.cr = f.Color, f.Color[w*h:], f.Color[w*h+1:]
		c.layout.y_stride, c.layout.c_stride, c.layout.c_step = C.int32_t(w), C.int32_t(2*((w+1)/2)), 2
		c.layout.shift_x, c.layout.shift_y = 1, 1
	case camera.YUY2:
		if w%2 != 0 {
			return fmt.Errorf("YUY2 image is %d pixels wide, want an even width", w)
		}
		if err := wantBytes(f, in, 2*w*h); err != nil {
			return err
		}
		c.y, c.cb, c.cr = f.Color, f.Color[1:], f.Color[3:]
		c.layout.y_stride, c.layout.y_step = C.int32_t(2*w), 2
		c.layout.c_stride, c.layout.c_step, c.layout.shift_x = C.int32_t(2*w), 4, 1
	case camera.BGRA:
		if err := wantBytes(f, in, 4*w*h); err != nil {
			return err
		}
		c.bgra = f.Color
	default:
		return fmt.Errorf("colour format %q, want MJPG, NV12, YUY2 or BGRA", f.Format)
	}
	return nil
}

func wantBytes(f *source.Frame, in camera.Intrinsics, n int) error {
	if len(f.Color) != n {
		return fmt.Errorf("%s colour image has %d bytes, calibration's %d×%d pixels have %d", f.Format, len(f.Color),
			in.Width, in.Height, n)
	}
	return nil
}

func (c *colorImage) fromJPEG() {
	c.y, c.cb, c.cr = c.jpeg.Y, c.jpeg.Cb, c.jpeg.Cr
	c.layout.limited, c.layout.padded = 0, 1 // padded by mjpeg.Slack
	c.layout.width, c.layout.height = C.int32_t(c.jpeg.Rect.Dx()), C.int32_t(c.jpeg.Rect.Dy())
	c.layout.y_stride, c.layout.c_stride = C.int32_t(c.jpeg.YStride), C.int32_t(c.jpeg.CStride)
	switch c.jpeg.SubsampleRatio {
	case image.YCbCrSubsampleRatio422:
		c.layout.shift_x = 1
	case image.YCbCrSubsampleRatio420:
		c.layout.shift_x, c.layout.shift_y = 1, 1
	case image.YCbCrSubsampleRatio440:
		c.layout.shift_y = 1
	case image.YCbCrSubsampleRatio411:
		c.layout.shift_x = 2
	}
}

// rgb converts f's entire image into dst. It returns the same errors as load.
func (c *colorImage) rgb(d *mjpeg.Decoder, f *source.Frame, in camera.Intrinsics, dst []byte) error {
	if f.Format == camera.MJPG && len(f.Color) > 0 {
		hdr, err := d.Header(f.Color)
		if err != nil {
			return err
		}
		if hdr.Width != in.Width || hdr.Height != in.Height {
			return fmt.Errorf("colour image is %d×%d, calibration has %d×%d", hdr.Width, hdr.Height, in.Width,
				in.Height)
		}
		_, _, _, err = d.DecodeRGB(dst, f.Color)
		return err
	}
	if err := c.load(d, f, in, 1); err != nil {
		return err
	}
	if c.bgra != nil {
		C.bgra_to_rgb(u8(c.bgra), C.int32_t(in.Width*in.Height), u8(dst))
	} else {
		C.planes_to_rgb(u8(c.y), u8(c.cb), u8(c.cr), &c.layout, u8(dst))
	}
	return nil
}

// maxReuse is the maximum age of a colour image reused for captures without one. In the dark an
// Azure Kinect captures colour at half the rate of depth.
const maxReuse = 250 * time.Millisecond

// lastColor holds the last colour image of a camera that drops some of its colour images.
type lastColor struct {
	image    []byte
	format   camera.ColorFormat
	captured time.Time
	drops    bool // the camera has dropped an image
}

// complete returns f if it has a colour image. Otherwise it returns ErrNoColor and a copy of f with
// the last image, if that is recent.
func (l *lastColor) complete(f *source.Frame) (*source.Frame, error) {
	if len(f.Color) > 0 {
		return f, nil
	}
	l.drops = true
	with := *f
	if age := f.CaptureTime.Sub(l.captured); len(l.image) > 0 && age >= 0 && age <= maxReuse {
		with.Color, with.Format = l.image, l.format
	}
	return &with, ErrNoColor
}

// keep copies f's image if the camera has dropped one before.
func (l *lastColor) keep(f *source.Frame) {
	if l.drops {
		l.image, l.format, l.captured = append(l.image[:0], f.Color...), f.Format, f.CaptureTime
	}
}

// maxIR is the infrared brightness shown as white, as in the Azure Kinect viewer.
const maxIR = 1000

// gray colours g with f's infrared image if g has the depth camera's pixels and f has such an
// image, otherwise in medium grey.
func (m *Mapper) gray(f *source.Frame, g *pointcloud.Grid) {
	if len(f.IR) != len(g.Depth) || m.cfg.Geometry != DepthGeometry {
		for i := range g.Color {
			g.Color[i] = 128
		}
		return
	}
	for i, v := range f.IR {
		level := byte(min(uint32(v)*255/maxIR, 255))
		g.Color[3*i], g.Color[3*i+1], g.Color[3*i+2] = level, level, level
	}
}
