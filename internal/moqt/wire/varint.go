package wire

import (
	"io"
	"math/bits"
)

// AppendVarint appends v in the draft's variable-length encoding (§1.4.1): the leading one bits of
// the first byte count the bytes after it.
func AppendVarint(b []byte, v uint64) []byte {
	n := VarintLen(v)
	if n == 9 {
		b = append(b, 0xff)
		n = 8
	} else {
		// n-1 leading ones, a zero, and the value in the remaining bits.
		v |= uint64(0xff) << (9 - n) & 0xff << (8 * (n - 1))
	}
	for i := n - 1; i >= 0; i-- {
		b = append(b, byte(v>>(8*i)))
	}
	return b
}

// VarintLen returns the encoded length of v, 1 to 9 bytes.
func VarintLen(v uint64) int {
	if v >= 1<<56 {
		return 9
	}
	return max(1, (bits.Len64(v)+6)/7)
}

// varintSize returns the length of an encoding from its first byte.
func varintSize(first byte) int { return bits.LeadingZeros8(^first) + 1 }

// ParseVarint parses an integer at the start of b and returns it with its length. It returns
// io.ErrUnexpectedEOF if b is too short.
func ParseVarint(b []byte) (v uint64, n int, err error) {
	if len(b) == 0 {
		return 0, 0, io.ErrUnexpectedEOF
	}
	n = varintSize(b[0])
	if len(b) < n {
		return 0, 0, io.ErrUnexpectedEOF
	}
	if n < 8 {
		v = uint64(b[0]) & (0x7f >> (n - 1))
	}
	for _, c := range b[1:n] {
		v = v<<8 | uint64(c)
	}
	return v, n, nil
}

// ReadVarint reads one integer. It returns io.EOF only if the stream ends before the first byte.
func ReadVarint(r io.ByteReader) (uint64, error) {
	first, err := r.ReadByte()
	if err != nil {
		return 0, err
	}
	n := varintSize(first)
	var v uint64
	if n < 8 {
		v = uint64(first) & (0x7f >> (n - 1))
	}
	for range n - 1 {
		c, err := r.ReadByte()
		if err != nil {
			return 0, unexpected(err)
		}
		v = v<<8 | uint64(c)
	}
	return v, nil
}
