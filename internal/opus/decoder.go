package opus

// #include "binding.h"
import "C"

import (
	"fmt"

	"holocast/internal/loc"
)

// Check returns an error unless b is a packet of 10 ms with the given number of channels
// (docs/spec/sound.md).
func Check(b []byte, channels int) error { return check(b, channels, PacketSamples) }

func check(b []byte, channels, samples int) error {
	if len(b) > MaxPacket {
		return fmt.Errorf("opus: packet has %d bytes, want at most %d", len(b), MaxPacket)
	}
	n, err := loc.OpusSamples(b)
	switch {
	case err != nil:
		return err
	case n != samples:
		return fmt.Errorf("opus: packet has %d samples, want %d", n, samples)
	case int(b[0]>>2&1)+1 != channels:
		return fmt.Errorf("opus: packet has %d channels, want %d", b[0]>>2&1+1, channels)
	}
	return nil
}

// Decoder decodes a sequence of packets. It is not safe for concurrent use; Close frees it.
type Decoder struct {
	d        *C.OpusDecoder
	channels int
	samples  int // per packet and channel
}

// NewDecoder starts a decoder for packets of 10 ms with 1 or 2 channels.
func NewDecoder(channels int) (*Decoder, error) { return NewPacketDecoder(channels, PacketSamples) }

// NewPacketDecoder starts a decoder for packets with the given number of samples per channel.
func NewPacketDecoder(channels, samples int) (*Decoder, error) {
	if err := checkChannels(channels); err != nil {
		return nil, err
	}
	var code C.int
	d := C.opus_decoder_create(SampleRate, C.int(channels), &code)
	if d == nil {
		return nil, failure("decoder", code)
	}
	return &Decoder{d: d, channels: channels, samples: samples}, nil
}

// Decode decodes the next packet into out. It refuses packets that
// Check refuses.
func (d *Decoder) Decode(out []float32, packet []byte) error {
	if err := check(packet, d.channels, d.samples); err != nil {
		return err
	}
	return d.decode(out, packet, 0)
}

// Recover reconstructs a lost packet from the in-band error correction data in the next packet, or
// conceals the loss if there is none. Decode next afterwards.
func (d *Decoder) Recover(out []float32, next []byte) error {
	if err := check(next, d.channels, d.samples); err != nil {
		return err
	}
	return d.decode(out, next, 1)
}

// Conceal extrapolates a lost packet.
func (d *Decoder) Conceal(out []float32) error { return d.decode(out, nil, 0) }

func (d *Decoder) decode(out []float32, packet []byte, fec C.int) error {
	switch {
	case d.d == nil:
		return errClosed
	case len(out) < d.samples*d.channels:
		return fmt.Errorf("opus: room for %d samples, want %d", len(out), d.samples*d.channels)
	}
	var data *C.uchar
	if len(packet) > 0 {
		data = (*C.uchar)(&packet[0])
	}
	n := C.opus_decode_float(d.d, data, C.opus_int32(len(packet)), (*C.float)(&out[0]), C.int(d.samples), fec)
	if n < 0 {
		return failure("decode", n)
	}
	if int(n) != d.samples {
		return fmt.Errorf("opus: libopus returned %d samples, want %d", n, d.samples)
	}
	return nil
}

// Reset discards the state left by earlier packets. Call it after an interruption of the sound.
func (d *Decoder) Reset() {
	if d.d != nil {
		C.decoder_reset(d.d)
	}
}

// Close frees the decoder.
func (d *Decoder) Close() {
	if d.d != nil {
		C.opus_decoder_destroy(d.d)
		d.d = nil
	}
}
