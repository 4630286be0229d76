//go:build !cgo

package pointcloud

import (
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

type encoderEngine struct {
	zstd *zstd.Encoder
	raw  []byte
}

func (e *encoderEngine) open(level int) (err error) {
	e.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(max(level, 1))))
	return err
}

func (e *encoderEngine) close() { _ = e.zstd.Close() } // no underlying writer, cannot fail

func (e *encoderEngine) encode(dst []byte, f *Frame, ph phase) (body, error) {
	raw, points := layouts[f.Layout].planes(e.raw[:0], f, ph)
	e.raw = raw
	return body{e.zstd.EncodeAll(raw, append(dst, make([]byte, HeaderLen)...)), points, len(raw)}, nil
}

type decoderEngine struct {
	zstd *zstd.Decoder
	raw  []byte
}

func (d *decoderEngine) open() (err error) {
	d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	return err
}

func (d *decoderEngine) close() { d.zstd.Close() }

// decompress returns the planes, whose length must equal the header's RawLength.
func (d *decoderEngine) decompress(h *Header, src []byte) ([]byte, error) {
	if len(src) == 0 {
		return nil, zstdError("there is no frame")
	}
	if err := d.zstd.Reset(bytes.NewReader(src)); err != nil {
		return nil, zstdError(err.Error())
	}
	d.raw = resize(d.raw, int(h.RawLength)+1)
	for n := 0; ; {
		k, err := d.zstd.Read(d.raw[n:])
		n += k
		switch {
		case n > int(h.RawLength), errors.Is(err, io.EOF) && n < int(h.RawLength):
			return nil, rawLengthError(h)
		case errors.Is(err, io.EOF):
			return d.raw[:n], nil
		case err != nil:
			return nil, zstdError(err.Error())
		}
	}
}

func (d *decoderEngine) decode(f *Frame, h *Header, src []byte) error {
	raw, err := d.decompress(h, src)
	if err != nil {
		return err
	}
	if !layouts[f.Layout].undo(raw, int(h.Points), f, h.target()) {
		return planesError(h)
	}
	return nil
}
