package wav

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// headerLen is the length of the headers that Writer writes, in bytes.
const headerLen = 44

// Writer writes a file of 16-bit PCM. Before Close, the file's lengths are the largest possible, so
// that an interrupted file is readable.
type Writer struct {
	file     io.WriteSeeker
	w        *bufio.Writer
	channels int
	rate     int
	bytes    int64 // of samples
}

// NewWriter writes the headers of a file of 1 or 2 channels at a rate in Hz.
func NewWriter(file io.WriteSeeker, channels, rate int) (*Writer, error) {
	w := &Writer{file: file, w: bufio.NewWriter(file), channels: channels, rate: rate}
	return w, w.header(math.MaxUint32 - headerLen)
}

// header writes the headers for the given number of bytes of samples.
func (w *Writer) header(bytes uint32) error {
	le := binary.LittleEndian
	frame := uint16(2 * w.channels)
	b := le.AppendUint32([]byte("RIFF"), bytes+headerLen-8)
	b = le.AppendUint32(append(b, "WAVEfmt "...), 16)
	b = le.AppendUint16(b, formatPCM)
	b = le.AppendUint16(b, uint16(w.channels))
	b = le.AppendUint32(b, uint32(w.rate))
	b = le.AppendUint32(b, uint32(w.rate)*uint32(frame))
	b = le.AppendUint16(b, frame)
	b = le.AppendUint16(b, 16)
	_, err := w.w.Write(le.AppendUint32(append(b, "data"...), bytes))
	return err
}

// Write appends interleaved samples, clipped to full scale ±1.
func (w *Writer) Write(samples []float32) error {
	if w.bytes += 2 * int64(len(samples)); w.bytes > math.MaxUint32-headerLen {
		return fmt.Errorf("wav: a file has at most 4 GiB, %d minutes", math.MaxUint32/(2*w.channels*w.rate*60))
	}
	b := w.w.AvailableBuffer()
	for _, v := range samples {
		b = binary.LittleEndian.AppendUint16(b, uint16(int16(math.Round(float64(min(max(v, -1), 1))*math.MaxInt16))))
	}
	_, err := w.w.Write(b)
	return err
}

// Close writes the lengths. It does not close the underlying file.
func (w *Writer) Close() error {
	if err := w.w.Flush(); err != nil {
		return err
	}
	if _, err := w.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	err := w.header(uint32(w.bytes))
	return errors.Join(err, w.w.Flush())
}
