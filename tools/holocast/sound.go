package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"holocast/tools/holocast/player/sound"
	"holocast/tools/holocast/soundcard"
)

func addSoundFlags(f *pflag.FlagSet, o *playOptions) {
	f.StringVar(&o.audio, "audio", "", "play the sound; --audio=NAME selects a device by part of its name")
	f.Lookup("audio").NoOptDefVal = "default"
	f.StringVar(&o.wav, "wav", "", "write the sound to this WAV file, in real time")
}

// soundOutput plays the sound on a device or writes it to a file.
type soundOutput struct {
	mixer  *sound.Mixer // nil without an output
	device *soundcard.Device
	wav    *sound.WAV
	stop   context.CancelFunc
	done   sync.WaitGroup
	ctx    context.Context

	mu    sync.Mutex
	began time.Time // of the file
	err   error
}

// wavReport describes the file of --wav.
type wavReport struct {
	BeganUS int64 `json:"began_us"` // local time of the first sample, UNIX µs
}

// openSound opens the outputs that the flags select.
func (o playOptions) openSound() (out *soundOutput, err error) {
	out = &soundOutput{}
	out.ctx, out.stop = context.WithCancel(context.Background())
	switch {
	case o.audio != "" && o.wav != "":
		return nil, errors.New("--audio and --wav cannot be combined; use one of them")
	case o.wav != "":
		if out.wav, err = sound.NewWAV(o.wav); err != nil {
			return nil, fmt.Errorf("--wav: %w", err)
		}
		out.mixer = sound.New(sound.WAVLead, slog.Default())
	case o.audio != "":
		if out.device, err = soundcard.Open(o.audio, slog.Default()); err != nil {
			return nil, err
		}
		out.mixer = sound.New(out.device.Latency, slog.Default())
		if err := out.device.Play(out.mixer); err != nil {
			out.device.Close()
			return nil, err
		}
	}
	return out, nil
}

// start begins writing the file.
func (out *soundOutput) start() {
	if out.wav == nil {
		return
	}
	out.done.Go(func() {
		err := out.wav.Record(out.ctx, out.mixer, func(at time.Time) {
			out.mu.Lock()
			defer out.mu.Unlock()
			out.began = at
		})
		out.mu.Lock()
		defer out.mu.Unlock()
		out.err = err
	})
}

// close stops the sound and completes the file.
func (out *soundOutput) close(r *played) error {
	out.stop()
	out.done.Wait()
	if out.device != nil {
		out.device.Close()
	}
	err := out.err
	if out.wav != nil {
		r.WAV = &wavReport{out.began.UnixMicro()}
		if e := out.wav.Close(); e != nil {
			err = errors.Join(err, fmt.Errorf("--wav: %w", e))
		}
	}
	if out.mixer != nil {
		out.mixer.Close()
	}
	return err
}
