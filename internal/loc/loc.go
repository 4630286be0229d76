// Package loc implements the Low Overhead Media Container (draft-ietf-moq-loc-04): the properties
// of media objects, and the codec configurations of H.264, AAC and Opus. It does no I/O.
package loc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"holocast/internal/moqt/wire"
)

// Property types (§2.3).
const (
	PropertyTimescale   = 0x08 // units of Timestamp per second; absent: UNIX µs
	PropertyVideoConfig = 0x0d
	PropertyTimestamp   = 0x10
	// PropertyTimestamp03 is the timestamp up to LOC-03, as in earlier recordings. Parse reads it if
	// there is no PropertyTimestamp.
	PropertyTimestamp03 = 0x0a
)

// PropertyPrevious repeats the previous packet of a microphone's track (docs/spec/sound.md). Its type
// is odd, because the value is bytes, and outside the mandatory range.
const PropertyPrevious = 0x6863_6175

// Properties are the properties of our media objects.
type Properties struct {
	// Timestamp is the capture time on the relay's clock.
	Timestamp time.Time
	// VideoConfig is avcC, set on the first object of a group.
	VideoConfig []byte
	// Previous is the track's previous packet of sound, or nil.
	Previous []byte
}

// Append appends the properties in wire format.
func (p Properties) Append(b []byte) []byte {
	kvs := []wire.KeyValue{{Type: PropertyTimestamp, Int: uint64(max(0, p.Timestamp.UnixMicro()))}}
	if p.VideoConfig != nil {
		kvs = append(kvs, wire.KeyValue{Type: PropertyVideoConfig, Bytes: p.VideoConfig})
	}
	if p.Previous != nil {
		kvs = append(kvs, wire.KeyValue{Type: PropertyPrevious, Bytes: p.Previous})
	}
	return wire.AppendKeyValues(b, kvs...)
}

// ErrNoTimestamp is returned for an object without a wall-clock Timestamp.
var ErrNoTimestamp = errors.New("loc: the object has no timestamp in UNIX time")

// maxTimestamp is the end of the year 9999.
const maxTimestamp = 253402300799_000_000

// Parse reads an object's properties and skips unknown ones.
func Parse(b wire.Properties) (p Properties, err error) {
	var stamp uint64
	found := false
	for kv := range b.All() {
		switch kv.Type {
		case PropertyTimescale:
			return p, fmt.Errorf("%w: it is in %d units per second", ErrNoTimestamp, kv.Int)
		case PropertyTimestamp, PropertyTimestamp03: // in ascending order
			stamp, found = kv.Int, true
		case PropertyVideoConfig:
			p.VideoConfig = kv.Bytes
		case PropertyPrevious:
			p.Previous = kv.Bytes
		}
	}
	if !found {
		return p, ErrNoTimestamp
	}
	if stamp > maxTimestamp {
		return p, fmt.Errorf("loc: timestamp %d µs is beyond the year 9999", stamp)
	}
	p.Timestamp = time.UnixMicro(int64(stamp))
	return p, nil
}

// AVCConfig returns avcC (ISO/IEC 14496-15 §5.3.3.1, NAL lengths of four bytes) for one sequence
// and one picture parameter set, both without start code or length.
func AVCConfig(sps, pps []byte) ([]byte, error) {
	if len(sps) < 4 || sps[0]&0x1f != 7 || len(pps) == 0 || pps[0]&0x1f != 8 || len(sps) > 0xffff || len(pps) > 0xffff {
		return nil, errors.New("loc: not an H.264 sequence and picture parameter set")
	}
	b := []byte{1, sps[1], sps[2], sps[3], 0xff, 0xe1}
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(sps))), sps...)
	b = append(b, 1)
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(pps))), pps...)
	if sps[1] == 100 || sps[1] == 110 || sps[1] == 122 || sps[1] == 144 {
		b = append(b, 0xfd, 0xf8, 0xf8, 0) // 4:2:0, 8 bits, no extension
	}
	return b, nil
}

// ParameterSets returns the parameter sets of avcC, in order.
func ParameterSets(avcC []byte) (sets [][]byte, err error) {
	bad := errors.New("loc: avcC is truncated or has an unknown version")
	if len(avcC) < 7 || avcC[0] != 1 {
		return nil, bad
	}
	if avcC[4]&3 != 3 {
		return nil, fmt.Errorf("loc: avcC has NAL lengths of %d bytes; only 4 bytes are supported", avcC[4]&3+1)
	}
	b := avcC[5:]
	for _, mask := range []byte{0x1f, 0xff} {
		if len(b) == 0 {
			return nil, bad
		}
		n := b[0] & mask
		b = b[1:]
		for range n {
			if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
				return nil, bad
			}
			size := 2 + int(binary.BigEndian.Uint16(b))
			sets, b = append(sets, b[2:size:size]), b[size:]
		}
	}
	if len(sets) == 0 {
		return nil, errors.New("loc: avcC has no parameter sets")
	}
	return sets, nil
}

// AVCCodec returns the codec string of avcC (RFC 6381), such as avc1.42c01e.
func AVCCodec(avcC []byte) (string, error) {
	if len(avcC) < 4 || avcC[0] != 1 {
		return "", errors.New("loc: avcC is truncated or not version 1")
	}
	return fmt.Sprintf("avc1.%02x%02x%02x", avcC[1], avcC[2], avcC[3]), nil
}

// AppendAnnexB converts NAL units with four-byte lengths to a byte stream with start codes (ITU-T
// H.264 Annex B) and appends it.
func AppendAnnexB(dst, payload []byte) ([]byte, error) {
	for len(payload) > 0 {
		if len(payload) < 4 || uint64(len(payload)-4) < uint64(binary.BigEndian.Uint32(payload)) {
			return dst, errors.New("loc: a NAL unit is longer than its object")
		}
		n := 4 + int(binary.BigEndian.Uint32(payload))
		dst = append(append(dst, 0, 0, 0, 1), payload[4:n]...)
		payload = payload[n:]
	}
	return dst, nil
}

// AppendAnnexBConfig appends the parameter sets of avcC in Annex B format.
func AppendAnnexBConfig(dst, avcC []byte) ([]byte, error) {
	sets, err := ParameterSets(avcC)
	for _, s := range sets {
		dst = append(append(dst, 0, 0, 0, 1), s...)
	}
	return dst, err
}
