// Package soundcard plays sound on a device, through ALSA, PulseAudio, WASAPI or Core Audio.
package soundcard

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
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

const (
	// retryTime is the minimum time between attempts to open a device.
	retryTime = time.Second
	// silentTime is how long a device may ask for no samples until it counts as gone: PulseAudio does not
	// report a sink's disappearance.
	silentTime = 3 * time.Second
)

// Device plays sound. When its hardware disappears, it plays on the default device.
type Device struct {
	// Latency is the time from a request for samples to their sound, as requested from the system.
	Latency time.Duration

	name     string
	log      *slog.Logger
	backends []malgo.Backend
	out      *output // owned by keep once Play has started it
	closing  chan struct{}
	done     sync.WaitGroup
}

// output is a connection to the system's sound, and one of its devices.
type output struct {
	ctx    *malgo.AllocatedContext
	id     *malgo.DeviceID // nil for the default device
	device *malgo.Device
	ended  chan struct{} // closed when the device stops
	once   sync.Once
	asked  atomic.Bool // for samples
}

// Open finds the first device whose name contains name; "default" selects the system's default
// device. The caller must Close the result.
func Open(name string, log *slog.Logger) (*Device, error) {
	d := &Device{
		name: name, log: log, Latency: period, // PulseAudio buffers one period, others all
		backends: []malgo.Backend{malgo.BackendPulseaudio}, closing: make(chan struct{}),
	}
	var err error
	if d.out, err = connect(d.backends); err != nil {
		d.Latency, d.backends = periods*period, nil
		d.out, err = connect(d.backends)
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
		d.out.id = &id
	}
	return d, nil
}

// Play starts to play a mixer's sound. Call it once.
func (d *Device) Play(m *sound.Mixer) error {
	if err := d.out.play(m, d.Latency); err != nil {
		return fmt.Errorf("--audio=%s: could not play: %w", d.name, err)
	}
	d.done.Go(func() { d.keep(m) })
	return nil
}

// keep replaces the device whenever it stops, until Close.
func (d *Device) keep(m *sound.Mixer) {
	tried := time.Now()
	for {
		if !d.out.wait(d.closing) {
			return
		}
		d.log.Warn("the sound device stopped; playing on the default device when there is one", "device", d.name)
		d.out.close()
		d.out = nil
		for d.out == nil {
			select {
			case <-time.After(time.Until(tried.Add(retryTime))):
			case <-d.closing:
				return
			}
			tried = time.Now()
			d.out = d.replacement(m)
		}
		d.name = d.out.name()
		d.log.Info("playing sound again", "device", d.name)
	}
}

// wait blocks until the device is gone. It reports false if closing is closed first.
func (o *output) wait(closing <-chan struct{}) bool {
	tick := time.NewTicker(silentTime)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !o.asked.Swap(false) {
				return true
			}
		case <-o.ended:
			return true
		case <-closing:
			return false
		}
	}
}

// replacement plays on the default device. It returns nil if there is none.
func (d *Device) replacement(m *sound.Mixer) *output {
	out, err := connect(d.backends)
	if err != nil {
		return nil
	}
	if err := out.play(m, d.Latency); err != nil {
		out.close()
		return nil
	}
	return out
}

// find returns the first device whose name contains d.name, and completes d.name.
func (d *Device) find() (malgo.DeviceID, error) {
	list, err := d.out.ctx.Devices(malgo.Playback)
	if err != nil {
		return malgo.DeviceID{}, fmt.Errorf("--audio: could not list the devices: %w", err)
	}
	var names []string
	for i := range list {
		if strings.Contains(strings.ToLower(list[i].Name()), strings.ToLower(d.name)) {
			d.name = list[i].Name()
			return list[i].ID, nil
		}
		names = append(names, list[i].Name())
	}
	return malgo.DeviceID{}, fmt.Errorf("--audio=%s: no such device, only %q", d.name, names)
}

// Close stops the sound.
func (d *Device) Close() {
	close(d.closing)
	d.done.Wait()
	if d.out != nil {
		d.out.close()
	}
}

func connect(backends []malgo.Backend) (*output, error) {
	ctx, err := malgo.InitContext(backends, malgo.ContextConfig{}, nil)
	if err != nil {
		return nil, err
	}
	return &output{ctx: ctx, ended: make(chan struct{})}, nil
}

// play starts to play a mixer's sound. latency is the time until a requested sample is heard.
func (o *output) play(m *sound.Mixer, latency time.Duration) error {
	cfg := malgo.DefaultDeviceConfig(malgo.Playback)
	cfg.Playback.Format, cfg.Playback.Channels, cfg.SampleRate = malgo.FormatF32, sound.Channels, sound.SampleRate
	cfg.PeriodSizeInMilliseconds, cfg.Periods = uint32(period.Milliseconds()), periods
	if o.id != nil {
		cfg.Playback.DeviceID = o.id.Pointer()
	}
	var pace pacer
	device, err := malgo.InitDevice(o.ctx.Context, cfg, malgo.DeviceCallbacks{
		Data: func(out, _ []byte, frames uint32) {
			if frames > 0 {
				o.asked.Store(true)
				block := unsafe.Slice((*float32)(unsafe.Pointer(&out[0])), int(frames)*sound.Channels)
				m.Read(block, pace.next(time.Now().Add(latency), int(frames)))
			}
		},
		Stop: func() { o.once.Do(func() { close(o.ended) }) },
	})
	if err != nil {
		return err
	}
	o.device = device
	return device.Start()
}

// name returns the default device's name.
func (o *output) name() string {
	list, _ := o.ctx.Devices(malgo.Playback) // a name for the log only
	for i := range list {
		if list[i].IsDefault != 0 {
			return list[i].Name()
		}
	}
	return "default"
}

func (o *output) close() {
	if o.device != nil {
		_ = o.device.Stop() // Uninit would wait for a lost sink of PulseAudio
		o.device.Uninit()
	}
	_ = o.ctx.Uninit() // nothing to do about it
	o.ctx.Free()
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
