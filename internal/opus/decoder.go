package opus

// #include "binding.h"
import "C"

import (
	"fmt"

	"holocast/internal/loc"
)

// Check returns an error if b is not a packet of 10 ms with the given number of channels
// (docs/spec/sound.md).
func Check(b []byte, channels int) error {
	if len(b) > MaxPacket {
		return fmt.Errorf("opus: packet of %d bytes, want at most %d", len(b), MaxPacket)
	}
	n, err := loc.OpusSamples(b)
	switch {
	case err != nil:
		return err
	case n != PacketSamples:
		return fmt.Errorf("opus: packet of %d samples, want %d", n, PacketSamples)
	case int(b[0]>>2&1)+1 != channels:
		return fmt.Errorf("opus: packet of %d channels, want %d", b[0]>>2&1+1, channels)
	}
	return nil
}

// Decoder decodes a sequence of packets. It is not safe for concurrent use; Close frees it.
type Decoder struct {
	d        *C.OpusDecoder
	channels int
}

// NewDecoder starts a decoder for 1 or 2 channels.
func NewDecoder(channels int) (*Decoder, error) {
	if err := checkChannels(channels); err != nil {
		return nil, err
	}
	var code C.int
	d := C.opus_decoder_create(SampleRate, C.int(channels), &code)
	if d == nil {
		return nil, failure("decoder", code)
	}
	return &Decoder{d: d, channels: channels}, nil
}

// Decode decodes the next packet into out, PacketSamples samples per channel. It refuses packets that
// Check refuses.
func (d *Decoder) Decode(out []float32, packet []byte) error {
	if err := Check(packet, d.channels); err != nil {
		return err
	}
	return d.decode(out, packet, 0)
}

// Recover estimates a lost packet from the in-band error correction of the next one. It conceals the
// loss where next has none. Decode next afterwards.
func (d *Decoder) Recover(out []float32, next []byte) error {
	if err := Check(next, d.channels); err != nil {
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
	case len(out) < PacketSamples*d.channels:
		return fmt.Errorf("opus: room for %d samples, want %d", len(out), PacketSamples*d.channels)
	}
	var data *C.uchar
	if len(packet) > 0 {
		data = (*C.uchar)(&packet[0])
	}
	n := C.opus_decode_float(d.d, data, C.opus_int32(len(packet)), (*C.float)(&out[0]), PacketSamples, fec)
	if n < 0 {
		return failure("decode", n)
	}
	if n != PacketSamples {
		return fmt.Errorf("opus: libopus returned %d samples, want %d", n, PacketSamples)
	}
	return nil
}

// Reset forgets earlier packets, for sound after an interruption.
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
