package livescan

import (
	"encoding/binary"
	"io"
	"slices"

	"holocast/internal/pointcloud"
)

// RequestFrame is a viewer's request for a frame. The answer is the number of points as int32, then
// x y z of all points as int16 in millimetres, then red green blue of all points.
const RequestFrame byte = 0

// AppendAnswer appends the answer to a request to dst.
func AppendAnswer(dst []byte, p *pointcloud.Points) []byte {
	n := len(p.XYZ) / 3
	dst = slices.Grow(dst, 4+bytesPerPoint*n)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(n)) //nolint:gosec // at most MaxPoints
	for _, v := range p.XYZ {
		dst = binary.LittleEndian.AppendUint16(dst, uint16(v)) //nolint:gosec // two's complement
	}
	return append(dst, p.RGB...)
}

// Answers reads the answers to a viewer's requests.
type Answers struct {
	r   io.Reader
	buf []byte
}

// NewAnswers reads answers from r.
func NewAnswers(r io.Reader) *Answers { return &Answers{r: r} }

// Next reads an answer into p, reusing its slices. If p is nil, it discards the answer. It returns
// the number of points, io.EOF if the connection ended between answers, and a *ProtocolError for an
// invalid number of points.
func (a *Answers) Next(p *pointcloud.Points) (points int, err error) {
	var head [4]byte
	if _, err := io.ReadFull(a.r, head[:]); err != nil {
		return 0, err
	}
	n := int(int32(binary.LittleEndian.Uint32(head[:]))) //nolint:gosec // two's complement
	if n < 0 || n > MaxPoints {
		return 0, protocolError("an answer announces %d points, want 0 to %d", n, MaxPoints)
	}
	if p == nil {
		k, err := io.CopyN(io.Discard, a.r, int64(bytesPerPoint*n))
		if err == io.EOF && k < int64(bytesPerPoint*n) {
			err = io.ErrUnexpectedEOF
		}
		return n, err
	}
	if a.buf, err = readN(a.r, a.buf, bytesPerPoint*n); err != nil {
		return 0, err
	}
	p.XYZ = slices.Grow(p.XYZ[:0], 3*n)[:3*n]
	for i := range p.XYZ {
		p.XYZ[i] = int16(binary.LittleEndian.Uint16(a.buf[2*i:])) //nolint:gosec // two's complement
	}
	p.RGB = append(p.RGB[:0], a.buf[6*n:]...)
	return n, nil
}
