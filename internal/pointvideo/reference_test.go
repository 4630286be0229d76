package pointvideo

import (
	"encoding/binary"
	"errors"

	"github.com/klauspost/compress/zstd"

	"holocast/internal/openh264"
	"holocast/internal/pointcloud"
)

// reference decodes objects as the specification words it, without error names.
type reference struct {
	previous     []byte
	depth, color *openh264.Decoder
}

var errReference = errors.New("refused by the reference")

func (r *reference) decode(b []byte) (g pointcloud.Grid, err error) {
	le := binary.LittleEndian
	g.Resize(int(le.Uint16(b[32:])), int(le.Uint16(b[34:])))
	n, rest := noise{le.Uint16(b[44:]), le.Uint16(b[46:]), b[48]}, b[headerLen:]
	parts := [2]int{int(le.Uint32(b[52:])), int(le.Uint32(b[56:]))}
	z, err := zstd.NewReader(nil)
	if err != nil {
		return g, err
	}
	defer z.Close()
	raw, err := z.DecodeAll(rest[:parts[0]], nil)
	if err != nil {
		return g, err
	}
	if le.Uint16(b[50:]) == 0 {
		r.previous = nil
	}
	m, ok := referenceMap(raw, r.previous, g.Width, g.Height)
	if !ok {
		return g, errReference
	}
	r.previous = m
	depth, err := r.depth.Decode(rest[parts[0]:][:parts[1]])
	if err != nil {
		return g, err
	}
	color, err := r.color.Decode(rest[parts[0]+parts[1]:])
	if err != nil {
		return g, err
	}
	restore(&g, m, depth, color, n.depths())
	return g, nil
}

// restore is the specification's reconstruction of depth and color.
func restore(g *pointcloud.Grid, m []byte, depth, color openh264.Picture, depthOf []uint16) {
	for i, value := range m {
		x, y := i%g.Width, i/g.Width
		g.Depth[i] = 0
		clear(g.Color[3*i : 3*i+3])
		if value == 0 {
			continue
		}
		h := int(value) - 1
		q := min(max(int(depth.Y[y*depth.YStride+x])-18, 0), 220)
		level := 220 * h
		if h%2 == 0 {
			level += q
		} else {
			level += 220 - q
		}
		g.Depth[i] = depthOf[level]
		luma := int(color.Y[y*color.YStride+x])
		cb, cr := int(color.Cb[y/2*color.CStride+x/2]), int(color.Cr[y/2*color.CStride+x/2])
		for c, v := range [3]int{
			(65536*luma + 103206*(cr-128) + 32768) >> 16,
			(65536*luma - 12276*(cb-128) - 30679*(cr-128) + 32768) >> 16,
			(65536*luma + 121609*(cb-128) + 32768) >> 16,
		} {
			g.Color[3*i+c] = byte(min(max(v, 0), 255))
		}
	}
}

// referenceMap reverses the map's planes. previous is nil in a key frame.
func referenceMap(raw, previous []byte, width, height int) ([]byte, bool) {
	wrong, symbols := make([]bool, width*height), raw
	for pos := 0; ; pos++ {
		for more := true; more; {
			if len(symbols) == 0 {
				return nil, false
			}
			b := symbols[0]
			symbols, pos, more = symbols[1:], pos+int(b), b == 255
			if pos > width*height {
				return nil, false
			}
		}
		if pos == width*height {
			break
		}
		wrong[pos] = true
	}
	m := make([]byte, width*height)
	at := func(m []byte, x, y int) byte {
		if x < 0 || y < 0 || m == nil {
			return 0
		}
		return m[y*width+x]
	}
	changed := func(x, y int) bool { return at(m, x, y) != at(previous, x, y) }
	for i := range m {
		x, y := i%width, i/width
		w, n, nw, p := at(m, x-1, y), at(m, x, y-1), at(m, x-1, y-1), at(previous, x, y)
		prediction := w
		if n != nw {
			prediction = n
		}
		if previous != nil && (!changed(x-1, y) || !changed(x, y-1)) {
			prediction = p
		}
		m[i] = prediction
		if !wrong[i] {
			continue
		}
		var candidates []byte
		for _, c := range []byte{0, w, n, p} {
			known := c == prediction
			for _, k := range candidates {
				known = known || k == c
			}
			if !known {
				candidates = append(candidates, c)
			}
		}
		if len(symbols) == 0 {
			return nil, false
		}
		s := int(symbols[0])
		symbols = symbols[1:]
		switch {
		case s >= 8:
			m[i] = byte(s - 8)
		case s < len(candidates):
			m[i] = candidates[s]
		default:
			return nil, false
		}
		if m[i] == prediction {
			return nil, false
		}
	}
	return m, len(symbols) == 0
}
