package wan

import (
	"encoding/binary"
	"errors"

	"holocast/internal/mjpeg"
	"holocast/internal/pointcloud"
)

// rvlCoder codes depth with RVL (Wilson, "Fast Lossless Depth Image Compression", ISS 2017) and
// colour as JPEG.
type rvlCoder struct {
	encoder *mjpeg.Encoder
	decoder *mjpeg.Decoder
	rgb     []byte
}

const jpegQuality = 90

func newRVLCoder() (coder, error) {
	e, err := mjpeg.NewEncoder()
	if err != nil {
		return nil, err
	}
	d, err := mjpeg.NewDecoder()
	if err != nil {
		e.Close()
		return nil, err
	}
	return &rvlCoder{encoder: e, decoder: d}, nil
}

func (c *rvlCoder) encode(dst []byte, g *pointcloud.Grid) ([]byte, error) {
	start := len(dst)
	dst = appendRVL(append(dst, 0, 0, 0, 0), g.Depth)
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	jpeg, err := c.encoder.EncodeRGB(nil, g.Color, g.Width, g.Height, jpegQuality)
	return append(dst, jpeg...), err
}

func (c *rvlCoder) decode(g *pointcloud.Grid, object []byte) error {
	depth := int(binary.LittleEndian.Uint32(object))
	var width, height int
	var err error
	if c.rgb, width, height, err = c.decoder.DecodeRGB(c.rgb, object[4+depth:]); err != nil {
		return err
	}
	blank(g, width, height)
	copy(g.Color, c.rgb)
	return decodeRVL(g.Depth, object[4:4+depth])
}

func (c *rvlCoder) close() {
	c.encoder.Close()
	c.decoder.Close()
}

// appendRVL appends depth as alternating runs of zeros and of differences, in groups of three bits,
// eight groups in a word of 32 bits.
func appendRVL(dst []byte, depth []uint16) []byte {
	w := nibbleWriter{out: dst}
	previous := 0
	for i := 0; i < len(depth); {
		zeros := i
		for ; i < len(depth) && depth[i] == 0; i++ {
		}
		w.put(uint32(i - zeros))
		from := i
		for ; i < len(depth) && depth[i] != 0; i++ {
		}
		w.put(uint32(i - from))
		for _, d := range depth[from:i] {
			step := int32(d) - int32(previous)
			w.put(uint32(step<<1 ^ step>>31))
			previous = int(d)
		}
	}
	return w.finish()
}

var errRVL = errors.New("invalid RVL data")

// decodeRVL reverses appendRVL. depth has the image's size and holds zeros.
func decodeRVL(depth []uint16, data []byte) error {
	r := nibbleReader{in: data}
	previous := int32(0)
	for i := 0; i < len(depth); {
		zeros, values := int(r.get()), int(r.get())
		if zeros > len(depth)-i || values > len(depth)-i-zeros || zeros+values == 0 {
			return errRVL
		}
		i += zeros
		for range values {
			v := r.get()
			previous += int32(v>>1) ^ -int32(v&1)
			depth[i] = uint16(previous)
			i++
		}
	}
	if r.failed {
		return errRVL
	}
	return nil
}

type nibbleWriter struct {
	out  []byte
	word uint32
	n    int
}

func (w *nibbleWriter) put(v uint32) {
	for {
		nibble := v & 7
		if v >>= 3; v != 0 {
			nibble |= 8
		}
		w.word = w.word<<4 | nibble
		if w.n++; w.n == 8 {
			w.out = binary.LittleEndian.AppendUint32(w.out, w.word)
			w.word, w.n = 0, 0
		}
		if v == 0 {
			return
		}
	}
}

func (w *nibbleWriter) finish() []byte {
	if w.n > 0 {
		w.out = binary.LittleEndian.AppendUint32(w.out, w.word<<(4*(8-w.n)))
	}
	return w.out
}

type nibbleReader struct {
	in     []byte
	word   uint32
	n      int
	failed bool
}

func (r *nibbleReader) get() (v uint32) {
	for shift := 0; shift < 32; shift += 3 {
		if r.n == 0 {
			if len(r.in) < 4 {
				r.failed = true
				return 0
			}
			r.word, r.n, r.in = binary.LittleEndian.Uint32(r.in), 8, r.in[4:]
		}
		nibble := r.word >> 28
		r.word <<= 4
		r.n--
		v |= nibble & 7 << shift
		if nibble&8 == 0 {
			return v
		}
	}
	r.failed = true
	return 0
}
