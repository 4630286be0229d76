package main

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"holocast/capture-server/audio"
	"holocast/capture-server/points"
	"holocast/capture-server/publish"
	"holocast/capture-server/source/livescanfiles"
	"holocast/capture-server/source/synthetic"
	"holocast/internal/catalog"
)

// audioForms lists the forms of an entry of audio, for help and error messages.
const audioForms = "default, a microphone's NAME (see capture-server list), FILE.wav, synthetic or none, " +
	"with ,position=X/Y/Z in millimetres"

// maxMicrophones bounds a session's microphones.
const maxMicrophones = 16

// audioSpec is a parsed entry of the setting audio.
type audioSpec struct {
	kind     string // "default", "synthetic", "none", "file", "name" or "take"
	arg      string // path or name
	position []float64

	take *livescanfiles.Sound // of kind "take"
}

func parseAudio(s string) (audioSpec, error) {
	name, place, placed := strings.Cut(s, ",position=")
	spec := audioSpec{kind: name}
	if placed {
		for field := range strings.SplitSeq(place, "/") {
			mm, err := strconv.ParseFloat(field, 64)
			if err != nil || !(mm >= -1e6 && mm <= 1e6) {
				return spec, fmt.Errorf("audio %q: position is %q, want X/Y/Z in millimetres", s, place)
			}
			spec.position = append(spec.position, mm)
		}
		if len(spec.position) != 3 {
			return spec, fmt.Errorf("audio %q: position is %q, want X/Y/Z in millimetres", s, place)
		}
	}
	switch {
	case name == "":
		return spec, fmt.Errorf("audio %q names no microphone: want %s", s, audioForms)
	case name == "default" || name == "synthetic" || name == "none":
	case strings.EqualFold(filepath.Ext(name), ".wav"):
		spec.kind, spec.arg = "file", name
	default:
		spec.kind, spec.arg = "name", name
	}
	return spec, nil
}

// microphones returns the parsed setting audio.
func (c *Config) microphones() (specs []audioSpec, err error) {
	for _, s := range c.Audio {
		spec, err := parseAudio(s)
		if err != nil {
			return nil, err
		}
		if spec.kind != "none" {
			specs = append(specs, spec)
		}
	}
	switch n := len(specs); {
	case n > 0 && n < len(c.Audio):
		return nil, fmt.Errorf("audio: \"none\" cannot be combined with microphones (%d given)", n)
	case n > maxMicrophones:
		return nil, fmt.Errorf("audio has %d microphones, want at most %d", n, maxMicrophones)
	}
	return specs, nil
}

// addSound adds the microphones to the session. The synthetic microphone is synchronized with the
// cameras.
func addSound(p *publish.Publisher, cfg *Config, cameras []points.Camera) error {
	specs, err := cfg.microphones()
	if err != nil {
		return err
	}
	if len(cfg.Audio) == 0 {
		specs = soundsOfTakes(cameras)
	}
	if len(specs) == 0 {
		return nil
	}
	var inputs []audio.Microphone
	fail := func(err error) error {
		for _, i := range inputs {
			_ = i.Close()
		}
		return err
	}
	names := map[string]int{}
	for _, s := range specs {
		input, err := cfg.openAudio(s, cameras, p.Log())
		if err != nil {
			return fail(err)
		}
		m := audio.Microphone{Input: input, Position: s.position}
		if s.kind == "synthetic" && m.Position == nil {
			m.Position = synthetic.SoundPosition[:]
		}
		if names[input.Name()]++; names[input.Name()] > 1 {
			m.Input = renamedSound{input, fmt.Sprintf("%s-%d", input.Name(), names[input.Name()])}
		}
		p.Log().Info("sound", "number", len(inputs), "name", m.Name(), "channels", m.Channels())
		inputs = append(inputs, m)
	}
	m, err := audio.New(p, cfg.AudioDelivery, inputs)
	if err != nil {
		return fail(err)
	}
	return p.Add(m)
}

// soundsOfTakes returns the sounds that the cameras' takes contain.
func soundsOfTakes(cameras []points.Camera) (specs []audioSpec) {
	for _, c := range cameras {
		take := livescanfiles.SoundOf(c.Source)
		if take != nil && !slices.ContainsFunc(specs, func(s audioSpec) bool { return s.take == take }) {
			specs = append(specs, audioSpec{kind: "take", take: take})
		}
	}
	return specs
}

func (c *Config) openAudio(s audioSpec, cameras []points.Camera, log *slog.Logger) (audio.Input, error) {
	switch s.kind {
	case "file":
		input, err := audio.OpenRecording(s.arg, c.Loop)
		if err != nil {
			return nil, fmt.Errorf("audio: %w", err)
		}
		return input, nil
	case "take":
		input, err := audio.OpenLoop(s.take.Path, s.take.Start, s.take.Period)
		if err != nil {
			return nil, fmt.Errorf("the take's sound (--audio none disables it): %w", err)
		}
		return input, nil
	case "synthetic":
		for _, c := range cameras {
			if sound := synthetic.SoundOf(c.Source); sound != nil {
				return &audio.Generated{Label: synthetic.SoundName, Start: sound.Start, Fill: sound.Fill}, nil
			}
		}
		return nil, errors.New("audio synthetic requires the source synthetic")
	}
	input, err := audio.OpenDevice(s.arg, log)
	if err != nil {
		return nil, fmt.Errorf("audio: %w", err)
	}
	return input, nil
}

// renamedSound is an input with a different name, to make names unique.
type renamedSound struct {
	audio.Input
	name string
}

func (r renamedSound) Name() string { return r.name }

// checkDelivery returns an error if value is not a delivery mode.
func checkDelivery(setting, value string) error {
	if !catalog.CheckDelivery(value) {
		return fmt.Errorf("%s is %q, want %s or %s", setting, value, catalog.DeliveryStream, catalog.DeliveryDatagram)
	}
	return nil
}
