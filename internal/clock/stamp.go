// Package clock synchronizes the clocks of a session. The relay's clock is the reference: the relay
// sends its time ten times per second as datagram objects of the track .relay/clock, and every
// other endpoint estimates the offset of its own clock with an [Estimator]. Capture times and frame
// delays use the relay's clock.
//
// The estimator is a one-way minimum filter like NTP's clock filter (RFC 5905 §10): a stamp that is
// not queued arrives half a minimum RTT after it was sent, and queueing can only delay it.
package clock

import (
	"encoding/binary"
	"fmt"
	"time"

	"holocast/internal/moqt/wire"
)

// Namespace and Track name the relay's clock track.
const (
	Namespace = ".relay"
	Track     = "clock"
)

// TrackName is the full name of the relay's clock track.
func TrackName() wire.TrackName {
	return wire.TrackName{Namespace: wire.Namespace{Namespace}, Name: Track}
}

// Interval is the interval between stamps.
const Interval = 100 * time.Millisecond

// StampSize is the length of a Stamp on the wire, in bytes.
const StampSize = 16

const stampVersion = 1

// Stamp is the payload of a clock object: the relay's clock when the object was sent. On the wire,
// little-endian: version u8 = 1, three bytes 0, sequence u32, time u64 (µs since 1970). Later
// versions may append fields.
type Stamp struct {
	Sequence uint32    // increases by one per stamp while the relay runs
	Time     time.Time // microsecond precision
}

// Append appends the encoding of s to b.
func (s Stamp) Append(b []byte) []byte {
	b = append(b, stampVersion, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, s.Sequence)
	return binary.LittleEndian.AppendUint64(b, uint64(s.Time.UnixMicro()))
}

// maxTime is 2200-01-01 in µs since 1970; later times are invalid.
const maxTime = 7258118400 * 1e6

// ParseStamp parses an encoded stamp.
func ParseStamp(b []byte) (Stamp, error) {
	if len(b) < StampSize {
		return Stamp{}, fmt.Errorf("clock stamp: %d bytes, needs %d", len(b), StampSize)
	}
	if b[0] != stampVersion {
		return Stamp{}, fmt.Errorf("clock stamp: version %d; only %d is known", b[0], stampVersion)
	}
	us := binary.LittleEndian.Uint64(b[8:])
	if us > maxTime {
		return Stamp{}, fmt.Errorf("clock stamp: time %d µs is after the year 2200", us)
	}
	return Stamp{Sequence: binary.LittleEndian.Uint32(b[4:]), Time: time.UnixMicro(int64(us))}, nil
}
