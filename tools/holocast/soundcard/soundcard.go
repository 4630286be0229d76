// Package soundcard plays sound on a device, through ALSA, PulseAudio, WASAPI or Core Audio.
package soundcard

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gen2brain/malgo"

	"holocast/tools/holocast/player/sound"
)

const (
	period  = 10 * time.Millisecond
	periods = 3
)

// Device plays sound.
type Device struct {
	Name string
	// Latency is the time from a request for samples to their sound, as requested from the system.
	Latency time.Duration

	log    *slog.Logger
	ctx    *malgo.AllocatedContext
	id     *malgo.DeviceID // nil for the default device
	device *malgo.Device
	gone   atomic.Bool
	closed atomic.Bool
}

// Open finds the first device whose name contains name; "default" selects the system's default
// device. The caller must Close the result.
func Open(name string, log *slog.Logger) (*Device, error) {
	d := &Device{Name: name, log: log, Latency: period} // PulseAudio buffers one period, others all
	var err error
	if d.ctx, err = malgo.InitContext([]malgo.Backend{malgo.BackendPulseaudio}, malgo.ContextConfig{}, nil); err != nil {
		d.Latency = periods * period
		d.ctx, err = malgo.InitContext(nil, malgo.ContextConfig{}, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("--audio: the system has no sound: %w", err)
	}
	if name != "default" {
		id, err := d.find()
		if err != nil {
			d.Close()
			return nil, err
		}
		d.id = &id
	}
	return d, nil
}

// Play starts to play a mixer's sound.
func (d *Device) Play(m *sound.Mixer) error {
	cfg := malgo.DefaultDeviceConfig(malgo.Playback)
	cfg.Playback.Format, cfg.Playback.Channels, cfg.SampleRate = malgo.FormatF32, sound.Channels, sound.SampleRate
	cfg.PeriodSizeInMilliseconds, cfg.Periods = uint32(period.Milliseconds()), periods
	if d.id != nil {
		cfg.Playback.DeviceID = d.id.Pointer()
	}
	var pace pacer
	device, err := malgo.InitDevice(d.ctx.Context, cfg, malgo.DeviceCallbacks{
		Data: func(out, _ []byte, frames uint32) {
			if frames > 0 {
				block := unsafe.Slice((*float32)(unsafe.Pointer(&out[0])), int(frames)*sound.Channels)
				m.Read(block, pace.next(time.Now().Add(d.Latency), int(frames)))
				clip(block)
			}
		},
		Stop: func() {
			if !d.closed.Load() && !d.gone.Swap(true) {
				d.log.Warn("the sound device stopped; continuing without sound", "device", d.Name)
			}
		},
	})
	if err == nil {
		d.device = device
		err = device.Start()
	}
	if err != nil {
		return fmt.Errorf("--audio=%s: could not play: %w", d.Name, err)
	}
	return nil
}

// find returns the first device whose name contains d.Name, and completes d.Name.
func (d *Device) find() (malgo.DeviceID, error) {
	list, err := d.ctx.Devices(malgo.Playback)
	if err != nil {
		return malgo.DeviceID{}, fmt.Errorf("--audio: could not list the devices: %w", err)
	}
	var names []string
	for i := range list {
		if strings.Contains(strings.ToLower(list[i].Name()), strings.ToLower(d.Name)) {
			d.Name = list[i].Name()
			return list[i].ID, nil
		}
		names = append(names, list[i].Name())
	}
	return malgo.DeviceID{}, fmt.Errorf("--audio=%s: no such device, only %q", d.Name, names)
}

// Close stops the sound.
func (d *Device) Close() {
	d.closed.Store(true)
	if d.device != nil {
		d.device.Uninit()
	}
	_ = d.ctx.Uninit() // nothing to do about it
	d.ctx.Free()
}

func clip(block []float32) {
	for i, v := range block {
		block[i] = min(max(v, -1), 1)
	}
}

// pacer smooths the times at which a device asks for samples, and so follows the device's clock.
type pacer struct{ at time.Time }

const (
	paceJump   = 100 * time.Millisecond // error from which the time is set
	paceWeight = 32
)

// next returns the time at which the next samples are played; measured is the same time with
// jitter.
func (p *pacer) next(measured time.Time, samples int) time.Time {
	off := measured.Sub(p.at)
	if p.at.IsZero() || math.Abs(float64(off)) > float64(paceJump) {
		p.at, off = measured, 0
	}
	at := p.at.Add(off / paceWeight)
	p.at = at.Add(time.Duration(samples) * time.Second / sound.SampleRate)
	return at
}
