package audio

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gen2brain/malgo"
)

// backends lists the audio backends in order of preference. It omits miniaudio's Null backend,
// which would deliver silence if there is no device.
var backends = []malgo.Backend{
	malgo.BackendWasapi, malgo.BackendCoreaudio, malgo.BackendPulseaudio, malgo.BackendAlsa, malgo.BackendSndio,
	malgo.BackendAudio4, malgo.BackendOss,
}

// Info describes an attached microphone.
type Info struct {
	Name     string
	Channels int // 1 or 2
	Default  bool
}

// ErrNoDevice reports that no microphone is attached.
var ErrNoDevice = errors.New("no microphone is attached")

// system is a connection to the operating system's audio.
type system struct{ *malgo.AllocatedContext }

func connect() (system, error) {
	c, err := malgo.InitContext(backends, malgo.ContextConfig{}, nil)
	if err != nil {
		return system{}, fmt.Errorf("%w: could not open the system's audio: %w", ErrNoDevice, err)
	}
	return system{c}, nil
}

func (s system) close() {
	_ = s.Uninit()
	s.Free()
}

// devices returns the attached microphones.
func (s system) devices() ([]malgo.DeviceInfo, error) {
	list, err := s.Devices(malgo.Capture)
	if err != nil {
		return nil, fmt.Errorf("could not list the microphones: %w", err)
	}
	if len(list) == 0 {
		return nil, ErrNoDevice
	}
	return list, nil
}

// find returns the microphone with the given name, or the default one for "".
func (s system) find(name string) (malgo.DeviceInfo, error) {
	list, err := s.devices()
	if err != nil {
		return malgo.DeviceInfo{}, err
	}
	var names []string
	for _, d := range list {
		if name == "" && d.IsDefault != 0 || name != "" && d.Name() == name {
			return d, nil
		}
		names = append(names, fmt.Sprintf("%q", d.Name()))
	}
	if name == "" {
		return list[0], nil
	}
	return malgo.DeviceInfo{}, fmt.Errorf("no microphone %q, only %s", name, strings.Join(names, ", "))
}

// channels returns the number of channels to capture from a microphone.
func (s system) channels(d malgo.DeviceInfo) int {
	full, err := s.DeviceInfo(malgo.Capture, d.ID, malgo.Shared)
	if err != nil {
		return 1
	}
	n := 1
	for _, f := range full.Formats {
		n = max(n, int(min(f.Channels, 2)))
	}
	return n
}

// List returns the attached microphones.
func List() ([]Info, error) {
	s, err := connect()
	if err != nil {
		return nil, err
	}
	defer s.close()
	list, err := s.devices()
	if err != nil {
		return nil, err
	}
	infos := make([]Info, len(list))
	for i, d := range list {
		infos[i] = Info{Name: d.Name(), Channels: s.channels(d), Default: d.IsDefault != 0}
	}
	return infos, nil
}

// device is a system microphone. Next opens it, and reopens it after an interruption.
type device struct {
	wanted   string // "" for the default microphone
	name     string
	channels int
	log      *slog.Logger
	drift    atomic.Uint64

	open       *capture // nil while unplugged or busy
	delivering bool
	clock      sampleClock
	lost       bool
	failed     string // last reported reason for not delivering
	samples    []float32
}

// OpenDevice finds a microphone by name; "" selects the default one. Next opens it, waiting while
// it is busy or unplugged.
func OpenDevice(name string, log *slog.Logger) (Input, error) {
	s, err := connect()
	if err != nil {
		return nil, err
	}
	defer s.close()
	d, err := s.find(name)
	if err != nil {
		return nil, err
	}
	return &device{wanted: name, name: d.Name(), channels: s.channels(d), log: log}, nil
}

func (d *device) Name() string   { return d.name }
func (d *device) Channels() int  { return d.channels }
func (d *device) Drift() float64 { return math.Float64frombits(d.drift.Load()) }

func (d *device) Close() error {
	if d.open != nil {
		d.open.close()
		d.open = nil
	}
	return nil
}

const (
	// retryTime is the time between attempts to open a microphone.
	retryTime = time.Second
	// settleTime is the time needed to measure the minimum delay of samples. Earlier samples are
	// dropped.
	settleTime = 500 * time.Millisecond
	// silentTime is the time without data after which a microphone counts as unplugged.
	silentTime = 2 * time.Second
)

func (d *device) Next(ctx context.Context, b *Block) error {
	for {
		if d.open == nil {
			if err := d.reopen(ctx); err != nil {
				return err
			}
		}
		silent := time.NewTimer(silentTime)
		select {
		case c := <-d.open.chunks:
			silent.Stop()
			d.delivers()
			if d.take(c, b) {
				return nil
			}
		case <-d.open.stopped:
			d.interrupted("the system has stopped it")
		case <-silent.C:
			d.interrupted("it delivers nothing")
		case <-ctx.Done():
			return ctx.Err()
		}
		silent.Stop()
	}
}

// delivers logs that a microphone delivers for the first time, or again.
func (d *device) delivers() {
	if d.delivering {
		return
	}
	message := "microphone opened"
	if d.lost {
		message = "microphone is back"
	}
	d.log.Info(message, "name", d.name, "rate", d.open.rate, "channels", d.channels)
	d.delivering, d.failed = true, ""
}

// interrupted closes the microphone. It logs nothing for one that has not delivered since the last
// report: systems open a microphone that another program has, and keep it silent.
func (d *device) interrupted(reason string) {
	if d.delivering || d.failed == "" {
		d.failed = reason
		d.log.Warn("microphone gone, perhaps unplugged or used by another program; trying to open it again",
			"name", d.name, "reason", reason)
	}
	d.open.close()
	d.open, d.delivering, d.lost, d.clock = nil, false, true, sampleClock{}
}

// reopen tries to open the microphone until it succeeds. It logs each new reason for a failure.
func (d *device) reopen(ctx context.Context) error {
	for {
		c, err := openCapture(d.wanted, d.channels)
		if err == nil {
			d.open = c
			return nil
		}
		if text := err.Error(); text != d.failed {
			d.failed = text
			d.log.Warn("microphone not available; trying again every second", "name", d.name, "err", err)
		}
		select {
		case <-time.After(retryTime):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take fills b with a chunk, timed by the microphone's own clock. It reports false while the clock
// settles.
func (d *device) take(c chunk, b *Block) bool {
	d.samples = d.samples[:0]
	for i := 0; i+4 <= len(c.data); i += 4 {
		d.samples = append(d.samples, finite(math.Float32frombits(binary.NativeEndian.Uint32(c.data[i:]))))
	}
	n := len(d.samples) / d.channels
	rate := time.Duration(d.open.rate)
	end := time.Duration(c.end/int64(rate))*time.Second + time.Duration(c.end%int64(rate))*time.Second/rate
	lost := d.clock.observe(end, c.arrived.Sub(d.open.opened))
	d.drift.Store(math.Float64bits(-d.clock.drift))
	if end < settleTime {
		return false
	}
	*b = Block{
		Samples: d.samples, Rate: d.open.rate,
		Time: d.open.opened.Add(d.clock.local(end) - time.Duration(n)*time.Second/rate),
		Lost: d.lost || lost || c.lost,
	}
	d.lost = false
	return true
}

// finite limits x to full scale; NaN becomes silence.
func finite(x float32) float32 {
	if x != x {
		return 0
	}
	return min(max(x, -1), 1)
}

// chunk is data captured in one callback.
type chunk struct {
	data    []byte // float32
	end     int64  // samples per channel since the start, up to the chunk's end
	arrived time.Time
	lost    bool // the chunk before was dropped
}

// capture is an open microphone.
type capture struct {
	system  system
	device  *malgo.Device
	rate    int
	opened  time.Time
	chunks  chan chunk
	stopped chan struct{} // closed when the microphone stops
	stop    sync.Once

	// Used by the callback only.
	size int // bytes of a sample of all channels
	at   int64
	lost bool
}

const (
	period = 10 // ms of sound per callback
	// queued limits the chunks waiting for Next, to one second of sound.
	queued = 100
)

func openCapture(name string, channels int) (*capture, error) {
	s, err := connect()
	if err != nil {
		return nil, err
	}
	c := &capture{
		system: s, size: 4 * channels, chunks: make(chan chunk, queued), stopped: make(chan struct{}),
	}
	if err := c.start(name, channels); err != nil {
		s.close()
		return nil, err
	}
	return c, nil
}

func (c *capture) start(name string, channels int) error {
	cfg := malgo.DefaultDeviceConfig(malgo.Capture)
	cfg.Capture.Format, cfg.Capture.Channels, cfg.PeriodSizeInMilliseconds = malgo.FormatF32, uint32(channels), period
	if name != "" {
		d, err := c.system.find(name)
		if err != nil {
			return err
		}
		var pinner runtime.Pinner
		defer pinner.Unpin()
		pinner.Pin(&d.ID)
		cfg.Capture.DeviceID = unsafe.Pointer(&d.ID)
	} else if _, err := c.system.devices(); err != nil {
		return err
	}
	d, err := malgo.InitDevice(c.system.Context, cfg, malgo.DeviceCallbacks{Data: c.receive, Stop: c.end})
	if err != nil {
		return fmt.Errorf("could not open it, perhaps because another program is using it: %w", err)
	}
	c.device, c.rate, c.opened = d, int(d.SampleRate()), time.Now()
	if err := d.Start(); err != nil {
		d.Uninit()
		return fmt.Errorf("could not start it: %w", err)
	}
	return nil
}

// receive queues captured data. The system calls it on its own thread, which it must not block.
func (c *capture) receive(_, data []byte, _ uint32) {
	c.at += int64(len(data) / c.size)
	select {
	case c.chunks <- chunk{data: append([]byte(nil), data...), end: c.at, arrived: time.Now(), lost: c.lost}:
		c.lost = false
	default:
		c.lost = true
	}
}

func (c *capture) end() { c.stop.Do(func() { close(c.stopped) }) }

func (c *capture) close() {
	_ = c.device.Stop() // Uninit would wait for data that a lost source of PulseAudio never delivers
	c.device.Uninit()
	c.system.close()
}
