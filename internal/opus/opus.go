// Package opus encodes and decodes sound with libopus (https://opus-codec.org, RFC 6716), in packets
// of 10 ms at 48 kHz. Samples are interleaved float32, full scale ±1.
package opus

// #cgo CFLAGS: -O2
// #cgo pkg-config: opus
// #include "binding.h"
import "C"

import (
	"errors"
	"fmt"
)

const (
	// SampleRate is the rate of all samples in Hz.
	SampleRate = 48000
	// PacketSamples is the length of a packet in samples per channel.
	PacketSamples = SampleRate / 100
	// MaxPacket is the maximum size of a packet in bytes (RFC 6716 §3.2.1).
	MaxPacket = 1275
	// MaxChannels is the maximum number of channels: stereo.
	MaxChannels = 2
)

var errClosed = errors.New("opus: use after Close")

func checkChannels(n int) error {
	if n < 1 || n > MaxChannels {
		return fmt.Errorf("opus: %d channels, want 1 or 2", n)
	}
	return nil
}

func failure(doing string, code C.int) error {
	return fmt.Errorf("opus: %s: %s", doing, C.GoString(C.opus_strerror(code)))
}
