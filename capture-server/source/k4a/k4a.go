// Package k4a captures from an Azure Kinect, or from an Orbbec camera through Orbbec's K4A wrapper,
// which has the same ABI. It loads libk4a when a camera is opened, so that Holocast runs without
// it; errors explain how to install it.
package k4a

/*
#include "shim.h"
*/
import "C"

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"holocast/capture-server/source"
	"holocast/internal/camera"
)

// SyncMode is a camera's role in a chain of cameras with sync cables.
type SyncMode string

// Sync modes.
const (
	Standalone  SyncMode = "standalone"
	Master      SyncMode = "master"
	Subordinate SyncMode = "subordinate"
)

// Options selects and configures a camera.
type Options struct {
	// Library is the path of libk4a or its directory. "" uses LibraryEnv, then the system's loader.
	Library string
	// Serial selects a camera by serial number. If it is "", Index selects one by position, from 0.
	Serial string
	Index  int

	Depth  camera.DepthMode   // "" is NFOVUnbinned
	Color  camera.ColorMode   // ColorOff captures depth only
	Format camera.ColorFormat // "" means NV12 at 720P, MJPG otherwise; NV12 and YUY2 exist at 720P only
	FPS    int                // 5, 15 or 30; 0 means 30

	Sync SyncMode // "" is Standalone
	// SubordinateDelay is the delay of a subordinate's captures after the master's.
	SubordinateDelay time.Duration
	// DepthDelay is the delay of depth after colour. It may be negative and must be less than a
	// frame. Depth cameras that see the same scene interfere unless their exposures are at least
	// 160 µs apart.
	DepthDelay time.Duration

	Log *slog.Logger // nil is slog.Default
}

// Info describes an attached camera.
type Info struct {
	Index  int
	Serial string
	Err    error // why Serial is unknown
}

// List returns the attached cameras. path is Options.Library.
func List(path string) ([]Info, error) {
	l, err := load(path)
	if err != nil {
		return nil, fmt.Errorf("k4a: %w", err)
	}
	return l.list(), nil
}

func (l *library) list() []Info {
	infos := make([]Info, C.shim_count(l.api))
	for i := range infos {
		infos[i].Index = i
		h, err := l.open(i)
		if err != nil {
			infos[i].Err = err
			continue
		}
		infos[i].Serial, infos[i].Err = l.serial(h)
		C.shim_close(l.api, h)
	}
	return infos
}

func (l *library) open(index int) (C.k4a_handle, error) {
	messages() // discard earlier messages
	var h C.k4a_handle
	if C.shim_open(l.api, C.uint32_t(index), &h) != 0 {
		return nil, failure(fmt.Sprintf("opening camera %d", index))
	}
	return h, nil
}

func (l *library) serial(h C.k4a_handle) (string, error) {
	var buf [256]C.char
	n := C.size_t(len(buf))
	if C.shim_serial(l.api, h, &buf[0], &n) != 0 {
		return "", failure("reading the serial number")
	}
	return C.GoString(&buf[0]), nil
}

// Device is an open camera. It implements source.Source.
type Device struct {
	library *library
	handle  C.k4a_handle
	started bool
	serial  string
	options Options
	cal     camera.Calibration
	clock   deviceClock
	dropped atomic.Int64 // captures without depth
}

// captureTimeout bounds the wait for a capture, except on a subordinate. Starting a camera takes up
// to two seconds.
const captureTimeout = 10 * time.Second

// Open opens the camera and starts it.
func Open(options Options) (*Device, error) {
	options.Depth = cmp.Or(options.Depth, camera.NFOVUnbinned)
	if options.Format == "" && options.Color == camera.Color720P {
		options.Format = camera.NV12 // needs no decoding
	}
	options.Format = cmp.Or(options.Format, camera.MJPG)
	options.FPS = cmp.Or(options.FPS, 30)
	options.Sync = cmp.Or(options.Sync, Standalone)
	config, err := options.config()
	if err != nil {
		return nil, fmt.Errorf("k4a: %w", err)
	}
	l, err := load(options.Library)
	if err != nil {
		return nil, fmt.Errorf("k4a: %w", err)
	}
	d := &Device{library: l, options: options}
	if err := d.start(config); err != nil {
		return nil, errors.Join(fmt.Errorf("k4a: %w", err), d.Close())
	}
	return d, nil
}

// config converts the options to libk4a's. It returns an error for a setting that no camera
// supports.
func (o *Options) config() (C.struct_k4a_config, error) {
	var c C.struct_k4a_config
	depth := slices.Index([]camera.DepthMode{
		camera.NFOV2x2Binned, camera.NFOVUnbinned, camera.WFOV2x2Binned,
		camera.WFOVUnbinned,
	}, o.Depth)
	color := slices.Index(
		[]camera.ColorMode{
			camera.ColorOff,
			camera.Color720P,
			camera.Color1080P,
			camera.Color1440P,
			camera.Color1536P,
			camera.Color2160P,
			camera.Color3072P,
		},
		o.Color,
	)
	format := slices.Index([]camera.ColorFormat{camera.MJPG, camera.NV12, camera.YUY2, camera.BGRA}, o.Format)
	fps := slices.Index([]int{5, 15, 30}, o.FPS)
	sync := slices.Index([]SyncMode{Standalone, Master, Subordinate}, o.Sync)
	frame := time.Second / time.Duration(max(o.FPS, 1))
	switch {
	case depth < 0:
		return c, fmt.Errorf("depth mode %q: want NFOV_2X2BINNED, NFOV_UNBINNED, WFOV_2X2BINNED or WFOV_UNBINNED",
			string(o.Depth))
	case color < 0:
		return c, fmt.Errorf("colour mode %q: want 720P, 1080P, 1440P, 1536P, 2160P, 3072P or none", string(o.Color))
	case format < 0:
		return c, fmt.Errorf("colour format %q: want MJPG, NV12, YUY2 or BGRA", string(o.Format))
	case fps < 0:
		return c, fmt.Errorf("frame rate %d: want 5, 15 or 30", o.FPS)
	case sync < 0:
		return c, fmt.Errorf("sync mode %q: want standalone, master or subordinate", string(o.Sync))
	case o.FPS == 30 && o.Depth == camera.WFOVUnbinned:
		return c, errors.New("frame rate 30: depth mode WFOV_UNBINNED supports at most 15")
	case o.FPS == 30 && o.Color == camera.Color3072P:
		return c, errors.New("frame rate 30: colour mode 3072P supports at most 15")
	case (o.Format == camera.NV12 || o.Format == camera.YUY2) && o.Color != camera.ColorOff &&
		o.Color != camera.Color720P:
		return c, fmt.Errorf("colour format %s: cameras support it at 720P only, not at %s", o.Format, o.Color)
	case o.Sync == Master && o.Color == camera.ColorOff:
		return c, errors.New("sync mode master: the camera must capture colour")
	case o.DepthDelay <= -frame || o.DepthDelay >= frame:
		return c, fmt.Errorf("depth delay %v: must be less than a frame (%v) either way", o.DepthDelay, frame)
	case o.SubordinateDelay < 0 || o.SubordinateDelay >= frame:
		return c, fmt.Errorf("subordinate delay %v: must be between 0 and a frame (%v)", o.SubordinateDelay, frame)
	case o.SubordinateDelay != 0 && o.Sync != Subordinate:
		return c, fmt.Errorf("subordinate delay %v: requires sync mode subordinate, not %s", o.SubordinateDelay, o.Sync)
	}
	c.depth_mode = C.int(depth + 1)
	c.color_resolution = C.int(color)
	c.color_format = C.int(format)
	c.camera_fps = C.int(fps)
	c.wired_sync_mode = C.int(sync)
	c.depth_delay_off_color_usec = C.int32_t(o.DepthDelay / time.Microsecond)
	c.subordinate_delay_off_master_usec = C.uint32_t(o.SubordinateDelay / time.Microsecond)
	return c, nil
}

func (d *Device) start(config C.struct_k4a_config) error {
	l, count := d.library, int(C.shim_count(d.library.api))
	if count == 0 {
		return ErrNoDevice
	}
	index := d.options.Index
	if d.options.Serial != "" {
		infos := l.list()
		index = slices.IndexFunc(infos, func(i Info) bool { return i.Serial == d.options.Serial })
		if index < 0 {
			return fmt.Errorf("no camera has serial number %s; attached: %s", d.options.Serial, describe(infos))
		}
	} else if index < 0 || index >= count {
		return fmt.Errorf("no camera %d: %d attached, numbered from 0", index, count)
	}
	var err error
	if d.handle, err = l.open(index); err != nil {
		return err
	}
	if d.serial, err = l.serial(d.handle); err != nil {
		return err
	}
	log := cmp.Or(d.options.Log, slog.Default())
	d.clock = deviceClock{window: 5 * time.Second, log: log.With("name", d.serial)}
	doc, err := d.calibration()
	if err != nil {
		return err
	}
	if d.cal, err = camera.Parse(doc, d.options.Depth, d.options.Color); err != nil {
		return fmt.Errorf("camera %s: %w", d.serial, err)
	}
	if C.shim_start(l.api, d.handle, &config) != 0 {
		return fmt.Errorf("camera %s: %w", d.serial, failure("starting the camera"))
	}
	d.started = true
	return nil
}

func describe(infos []Info) string {
	s := ""
	for i, info := range infos {
		if i > 0 {
			s += ", "
		}
		if info.Err != nil {
			s += fmt.Sprintf("camera %d (%v)", info.Index, info.Err)
		} else {
			s += info.Serial
		}
	}
	return s
}

func (d *Device) calibration() ([]byte, error) {
	const tooSmall = 2
	var n C.size_t
	if C.shim_calibration(d.library.api, d.handle, nil, &n) != tooSmall || n == 0 || n > 1<<20 {
		return nil, failure("reading the calibration of camera " + d.serial)
	}
	doc := make([]byte, n)
	if C.shim_calibration(d.library.api, d.handle, (*C.uint8_t)(unsafe.Pointer(&doc[0])), &n) != 0 {
		return nil, failure("reading the calibration of camera " + d.serial)
	}
	return doc[:n], nil
}

// Name implements source.Source. It returns the camera's serial number.
func (d *Device) Name() string {
	return cmp.Or(d.serial, "kinect-"+strconv.Itoa(d.options.Index))
}

// Calibration implements source.Source.
func (d *Device) Calibration() camera.Calibration { return d.cal }

// FPS implements source.Source.
func (d *Device) FPS() float64 { return float64(d.options.FPS) }

// Dropped implements source.Source. It counts captures without depth.
func (d *Device) Dropped() int64 { return d.dropped.Load() }

// Close implements source.Source. It stops the camera.
func (d *Device) Close() error {
	if d.handle == nil {
		return nil
	}
	if d.started {
		C.shim_stop(d.library.api, d.handle)
	}
	C.shim_close(d.library.api, d.handle)
	d.handle = nil
	return nil
}

// Next implements source.Source. It returns ErrUnplugged if the camera is lost. A subordinate waits
// indefinitely for its master.
func (d *Device) Next(ctx context.Context, f *source.Frame) error {
	const (
		failed  = 1
		timeout = 2
	)
	began := time.Now()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		var held C.struct_shim_capture
		switch C.shim_capture(d.library.api, d.handle, 50, &held) {
		case failed:
			return fmt.Errorf("k4a: camera %s: %w", d.serial, ErrUnplugged)
		case timeout:
			if d.options.Sync != Subordinate && time.Since(began) > captureTimeout {
				return fmt.Errorf("k4a: camera %s delivered nothing for %v: %w", d.serial, captureTimeout, ErrUnplugged)
			}
			continue
		}
		if held.depth.image == nil {
			C.shim_release(d.library.api, &held)
			d.dropped.Add(1)
			continue
		}
		if err := d.frame(f, &held); err != nil {
			C.shim_release(d.library.api, &held)
			return err
		}
		f.Free = func() { C.shim_release(d.library.api, &held) }
		return nil
	}
}

// frame fills f with the images of a capture. f aliases them, except for a depth image with padded
// rows, which is copied.
func (d *Device) frame(f *source.Frame, held *C.struct_shim_capture) error {
	depth, color := &held.depth, &held.color
	width, height := d.cal.Depth.Width, d.cal.Depth.Height
	stride := int(depth.stride)
	if int(depth.width) != width || int(depth.height) != height || stride < 2*width ||
		int(depth.size) < stride*(height-1)+2*width {
		return fmt.Errorf("k4a: camera %s: depth image is %d×%d, %d bytes, rows of %d; want %d×%d",
			d.serial, depth.width, depth.height, depth.size, stride, width, height)
	}
	*f = source.Frame{DeviceTime: time.Duration(depth.device_us) * time.Microsecond}
	if stride == 2*width {
		f.Depth = unsafe.Slice((*uint16)(unsafe.Pointer(depth.data)), width*height)
	} else {
		f.Depth = make([]uint16, 0, width*height)
		for y := range height {
			row := unsafe.Add(unsafe.Pointer(depth.data), y*stride)
			f.Depth = append(f.Depth, unsafe.Slice((*uint16)(row), width)...)
		}
	}
	if color.image != nil && color.size > 0 {
		f.Color = unsafe.Slice((*byte)(unsafe.Pointer(color.data)), int(color.size))
		f.Format = d.options.Format
	}
	now := monotonic()
	arrival := time.Duration(depth.system_ns)
	// Azure Kinect stamps arrivals with the monotonic clock. A wrapper may use another clock or
	// none, so ignore arrivals that are not recent.
	if arrival > now || arrival < now-5*time.Second {
		arrival = now
	}
	f.CaptureTime = time.Now().Add(d.clock.at(f.DeviceTime, arrival) - now)
	return nil
}

func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0 // cannot fail: the clock exists and ts is ours
	}
	return time.Duration(ts.Nano())
}
