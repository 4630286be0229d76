package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Bitrate is a bit rate in bit/s, written with an optional k, M or G: "16M". "" is 0.
type Bitrate float64

// maxBitrate bounds Bitrate.
const maxBitrate = 10e9

// MarshalText implements encoding.TextMarshaler.
func (b Bitrate) MarshalText() ([]byte, error) {
	switch {
	case b < 0:
		return nil, fmt.Errorf("negative bit rate %g", float64(b))
	case b == 0:
		return nil, nil
	case b >= 1e6:
		return fmt.Appendf(nil, "%gM", float64(b)/1e6), nil
	default:
		return fmt.Appendf(nil, "%gk", float64(b)/1e3), nil
	}
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *Bitrate) UnmarshalText(text []byte) error {
	s, unit := string(text), 1.0
	if s == "" {
		*b = 0
		return nil
	}
	for suffix, u := range map[string]float64{"k": 1e3, "M": 1e6, "G": 1e9} {
		if rest, ok := strings.CutSuffix(s, suffix); ok {
			s, unit = rest, u
		}
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v*unit >= 1e5 && v*unit <= maxBitrate) {
		return fmt.Errorf("bit rate %q, want 100k to 10G bit/s, such as 16M", text)
	}
	*b = Bitrate(v * unit)
	return nil
}
