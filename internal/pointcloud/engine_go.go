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

func (e *encoderEngine) close() { _ = e.zstd.Close() } // it has no writer that could fail

func (e *encoderEngine) finish(dst, raw []byte, points int) (body, error) {
	e.raw = raw
	return body{e.zstd.EncodeAll(raw, dst), points, len(raw)}, nil
}

func (e *encoderEngine) grid(dst []byte, g *Grid, ph phase) (body, error) {
	raw, points := gridPlanes(e.raw[:0], g, ph)
	return e.finish(dst, raw, points)
}

func (e *encoderEngine) points(dst []byte, p *Points, interleaved bool, ph phase) (body, error) {
	planes := pointPlanes
	if interleaved {
		planes = interleave
	}
	raw, points := planes(e.raw[:0], p, ph)
	return e.finish(dst, raw, points)
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

// decompress gives the planes, exactly as many bytes as the header says.
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

func (d *decoderEngine) grid(g *Grid, h *Header, src []byte) error {
	raw, err := d.decompress(h, src)
	if err != nil {
		return err
	}
	if !planesToGrid(raw, int(h.Points), g, phaseOf(h.Description, h.Descriptions)) {
		return planesError(h)
	}
	return nil
}

func (d *decoderEngine) points(p *Points, h *Header, src []byte) error {
	raw, err := d.decompress(h, src)
	if err != nil {
		return err
	}
	if h.Layout == LayoutInterleaved {
		deinterleave(raw, p)
	} else if !planesToPoints(raw, p) {
		return planesError(h)
	}
	return nil
}
