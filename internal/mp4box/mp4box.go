// Package mp4box writes and splits the boxes of MP4 files (ISO/IEC 14496-12 §4.2) in memory.
//
// It and its users, cmaf and spherical, do not use github.com/Eyevinn/mp4ff, which has no spherical
// boxes (st3d, sv3d), cannot parse a truncated file, does not limit the number and nesting of
// boxes, writes 4 bytes more per sample, and adds 0.9 MB to a program.
package mp4box

import (
	"encoding/binary"
	"fmt"
)

// Append appends a box: its 8-byte header, then parts.
func Append(dst []byte, kind string, parts ...[]byte) []byte {
	n := 8
	for _, p := range parts {
		n += len(p)
	}
	dst = append(binary.BigEndian.AppendUint32(dst, uint32(n)), kind...)
	for _, p := range parts {
		dst = append(dst, p...)
	}
	return dst
}

// Next splits the first box off b. It does not support 64-bit sizes.
func Next(b []byte) (kind string, body, rest []byte, err error) {
	if len(b) < 8 {
		return "", nil, nil, fmt.Errorf("box header cut off after %d bytes", len(b))
	}
	n := uint64(binary.BigEndian.Uint32(b))
	if n < 8 || n > uint64(len(b)) {
		return "", nil, nil, fmt.Errorf("box %q has %d bytes, want 8 to %d", b[4:8], n, len(b))
	}
	return string(b[4:8]), b[8:n], b[n:], nil
}
