package loc

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// AudioFormat is the audio configuration that a player needs.
type AudioFormat struct {
	Codec      string // RFC 6381: opus, mp4a.40.2
	SampleRate int    // Hz
	Channels   int
	Config     []byte // AudioSpecificConfig for AAC; nil for Opus
	PreSkip    int    // samples to skip at the start
}

// Packet is one packet of encoded audio.
type Packet struct {
	Data    []byte
	Samples int // at the format's rate
}

// maxPacket bounds a packet in bytes. A 120 ms Opus packet has at most 7662, an ADTS frame 8191.
const maxPacket = 1 << 14

// OpusReader reads Opus from an Ogg stream (RFC 3533, RFC 7845).
type OpusReader struct {
	r       *bufio.Reader
	packets [][]byte
	partial []byte
}

// NewOpusReader reads the stream's headers.
func NewOpusReader(r io.Reader) (*OpusReader, AudioFormat, error) {
	o := &OpusReader{r: bufio.NewReader(r)}
	head, err := o.packet()
	if err != nil {
		return nil, AudioFormat{}, err
	}
	if len(head) < 19 || string(head[:8]) != "OpusHead" || head[8]>>4 != 0 || head[9] < 1 || head[9] > 2 || head[18] != 0 {
		return nil, AudioFormat{}, errors.New("loc: not a stream of mono or stereo Opus")
	}
	if tags, err := o.packet(); err != nil {
		return nil, AudioFormat{}, err
	} else if !bytes.HasPrefix(tags, []byte("OpusTags")) {
		return nil, AudioFormat{}, errors.New("loc: the Opus stream has no comment header")
	}
	return o, AudioFormat{
		Codec:      "opus",
		SampleRate: 48000,
		Channels:   int(head[9]),
		PreSkip:    int(binary.LittleEndian.Uint16(head[10:])),
	}, nil
}

// Next returns the next packet, or io.EOF at the end.
func (o *OpusReader) Next() (Packet, error) {
	b, err := o.packet()
	if err != nil {
		return Packet{}, err
	}
	n, err := OpusSamples(b)
	return Packet{b, n}, err
}

func (o *OpusReader) packet() ([]byte, error) {
	for len(o.packets) == 0 {
		if err := o.page(); err != nil {
			return nil, err
		}
	}
	p := o.packets[0]
	o.packets = o.packets[1:]
	return p, nil
}

func (o *OpusReader) page() error {
	var h [27]byte
	if _, err := io.ReadFull(o.r, h[:]); err != nil {
		return err
	}
	if string(h[:4]) != "OggS" || h[4] != 0 {
		return errors.New("loc: not an Ogg page")
	}
	table := make([]byte, h[26])
	if _, err := io.ReadFull(o.r, table); err != nil {
		return noEOF(err)
	}
	if h[5]&1 == 0 {
		o.partial = nil
	}
	for _, n := range table {
		at := len(o.partial)
		if at+int(n) > maxPacket {
			return fmt.Errorf("loc: an Opus packet exceeds %d bytes", maxPacket)
		}
		o.partial = append(o.partial, make([]byte, n)...)
		if _, err := io.ReadFull(o.r, o.partial[at:]); err != nil {
			return noEOF(err)
		}
		if n < 255 {
			if len(o.partial) > 0 {
				o.packets = append(o.packets, o.partial)
			}
			o.partial = nil
		}
	}
	return nil
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// OpusSamples returns an Opus packet's length in samples at 48 kHz (RFC 6716 §3.1).
func OpusSamples(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, errors.New("loc: empty Opus packet")
	}
	config := int(b[0] >> 3)
	var frame int
	switch {
	case config < 12:
		frame = []int{480, 960, 1920, 2880}[config%4]
	case config < 16:
		frame = []int{480, 960}[config%2]
	default:
		frame = []int{120, 240, 480, 960}[config%4]
	}
	frames := 2
	switch b[0] & 3 {
	case 0:
		frames = 1
	case 3:
		if len(b) < 2 {
			return 0, errors.New("loc: truncated Opus packet")
		}
		frames = int(b[1] & 0x3f)
	}
	if n := frame * frames; n >= 120 && n <= 5760 {
		return n, nil
	}
	return 0, fmt.Errorf("loc: an Opus packet has %d samples, want 120 to 5760", frame*frames)
}

// AACReader reads AAC from an ADTS stream (ISO/IEC 13818-7 §6.2).
type AACReader struct {
	r     *bufio.Reader
	first *Packet
}

var aacRates = [...]int{96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350}

// NewAACReader reads the stream's first frame.
func NewAACReader(r io.Reader) (*AACReader, AudioFormat, error) {
	a := &AACReader{r: bufio.NewReader(r)}
	h, err := a.r.Peek(7)
	if err != nil {
		return nil, AudioFormat{}, noEOF(err)
	}
	profile, rate, channels := h[2]>>6, h[2]>>2&0xf, h[2]<<2&4|h[3]>>6
	p, err := a.Next()
	if err != nil {
		return nil, AudioFormat{}, err
	}
	if int(rate) >= len(aacRates) || channels < 1 || channels > 2 {
		return nil, AudioFormat{}, errors.New("loc: the AAC stream has an unknown sample rate, or is neither mono nor stereo")
	}
	a.first = &p
	object := profile + 1
	config := []byte{object<<3 | rate>>1, rate<<7 | channels<<3}
	return a, AudioFormat{
		Codec:      fmt.Sprintf("mp4a.40.%d", object),
		SampleRate: aacRates[rate],
		Channels:   int(channels),
		Config:     config,
	}, nil
}

// Next returns the next frame, or io.EOF at the end.
func (a *AACReader) Next() (Packet, error) {
	if p := a.first; p != nil {
		a.first = nil
		return *p, nil
	}
	var h [7]byte
	if _, err := io.ReadFull(a.r, h[:]); err != nil {
		return Packet{}, err
	}
	if h[0] != 0xff || h[1]&0xf6 != 0xf0 {
		return Packet{}, errors.New("loc: not an ADTS frame")
	}
	n := int(h[3]&3)<<11 | int(h[4])<<3 | int(h[5]>>5)
	header := 7
	if h[1]&1 == 0 { // with a checksum
		header = 9
	}
	if n <= header {
		return Packet{}, fmt.Errorf("loc: an ADTS frame has invalid length %d", n)
	}
	b := make([]byte, n-7)
	if _, err := io.ReadFull(a.r, b); err != nil {
		return Packet{}, noEOF(err)
	}
	return Packet{b[header-7:], 1024 * (1 + int(h[6]&3))}, nil
}
