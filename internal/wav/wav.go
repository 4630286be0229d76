// Package wav reads WAV files: RIFF/WAVE with integer PCM of 8, 16, 24 or 32 bits, or IEEE float of
// 32 or 64 bits, mono or stereo (Multimedia Programming Interface and Data Specifications 1.0).
package wav

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// Limits of the sample rate in Hz.
const (
	MinRate = 8000
	MaxRate = 192000
)

// maxChunks bounds the chunks before the samples.
const maxChunks = 1000

// Format codes.
const (
	formatPCM        = 1
	formatFloat      = 3
	formatExtensible = 0xfffe // the code begins the subformat
)

// File is an open WAV file. Read may be called from several goroutines if the underlying reader
// permits that.
type File struct {
	Channels int   // 1 or 2
	Rate     int   // Hz
	Length   int64 // samples per channel

	r      io.ReaderAt
	at     int64 // offset of the samples
	bytes  int   // per sample
	format uint16
}

// New reads the headers of a file of size bytes. Samples beyond its end count as missing.
func New(r io.ReaderAt, size int64) (*File, error) {
	var h [12]byte
	if err := readAt(r, h[:], 0); err != nil || string(h[:4]) != "RIFF" || string(h[8:]) != "WAVE" {
		return nil, errors.New("wav: not a WAV file")
	}
	f := &File{r: r}
	at := int64(len(h))
	for range maxChunks {
		var c [8]byte
		if err := readAt(r, c[:], at); err != nil {
			return nil, errors.New("wav: the file has no samples")
		}
		at += int64(len(c))
		length := int64(binary.LittleEndian.Uint32(c[4:]))
		switch string(c[:4]) {
		case "fmt ":
			if err := f.readFormat(at, length); err != nil {
				return nil, err
			}
		case "data":
			if f.bytes == 0 {
				return nil, errors.New("wav: samples without a format")
			}
			f.at = at
			f.Length = max(0, min(length, size-at)) / int64(f.bytes*f.Channels)
			if f.Length == 0 {
				return nil, errors.New("wav: the file has no samples")
			}
			return f, nil
		}
		at += length + length%2
	}
	return nil, fmt.Errorf("wav: more than %d chunks before the samples", maxChunks)
}

func (f *File) readFormat(at, length int64) error {
	var b [26]byte
	h := b[:min(length, int64(len(b)))]
	if err := readAt(f.r, h, at); err != nil || len(h) < 16 {
		return errors.New("wav: truncated format")
	}
	f.format = binary.LittleEndian.Uint16(b[:])
	if f.format == formatExtensible && len(h) == len(b) {
		f.format = binary.LittleEndian.Uint16(b[24:])
	}
	channels, rate := binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:])
	align, bits := binary.LittleEndian.Uint16(b[12:]), binary.LittleEndian.Uint16(b[14:])
	switch {
	case channels != 1 && channels != 2:
		return fmt.Errorf("wav: %d channels, want 1 or 2", channels)
	case rate < MinRate || rate > MaxRate:
		return fmt.Errorf("wav: sample rate %d Hz, want %d to %d", rate, MinRate, MaxRate)
	case f.format == formatPCM && (bits == 8 || bits == 16 || bits == 24 || bits == 32):
	case f.format == formatFloat && (bits == 32 || bits == 64):
	default:
		return fmt.Errorf("wav: format %d with %d bits, want PCM of 8, 16, 24 or 32 or float of 32 or 64 bits", f.format, bits)
	}
	if align != channels*bits/8 {
		return fmt.Errorf("wav: block alignment is %d bytes, want %d", align, channels*bits/8)
	}
	f.Channels, f.Rate, f.bytes = int(channels), int(rate), int(bits/8)
	return nil
}

// Read fills dst with interleaved samples, starting at sample from; full scale is ±1. dst must not
// reach beyond the file's end.
func (f *File) Read(dst []float32, from int64) error {
	b := make([]byte, len(dst)*f.bytes)
	if err := readAt(f.r, b, f.at+from*int64(f.bytes*f.Channels)); err != nil {
		return fmt.Errorf("wav: %w", err)
	}
	for i := range dst {
		dst[i] = f.sample(b[i*f.bytes:])
	}
	return nil
}

func (f *File) sample(b []byte) float32 {
	switch {
	case f.format == formatFloat && f.bytes == 8:
		return finite(math.Float64frombits(binary.LittleEndian.Uint64(b)))
	case f.format == formatFloat:
		return finite(float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
	case f.bytes == 1: // unsigned
		return (float32(b[0]) - 128) / 128
	case f.bytes == 2:
		return float32(int16(binary.LittleEndian.Uint16(b))) / (1 << 15)
	case f.bytes == 3:
		return float32(int32(b[0])<<8|int32(b[1])<<16|int32(b[2])<<24) / (1 << 31)
	}
	return float32(int32(binary.LittleEndian.Uint32(b))) / (1 << 31)
}

// finite limits x to full scale; NaN becomes silence.
func finite(x float64) float32 {
	if math.IsNaN(x) {
		return 0
	}
	return float32(min(max(x, -1), 1))
}

func readAt(r io.ReaderAt, b []byte, at int64) error {
	n, err := r.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
