package spherical

import "encoding/binary"

// Ambisonics maps the channels of a sound track to components of the sound field, in ACN order and
// SN3D normalization (AmbiX). The zero value means no ambisonics.
type Ambisonics struct {
	Channels int  // of the track; 0 = no ambisonics
	W, Y     int  // channels of the omnidirectional and the left–right component
	Stereo   bool // Left and Right are channels that do not turn with the head
	Left     int
	Right    int
}

// Limits of a sound track.
const (
	maxOrder    = 7
	maxChannels = (maxOrder+1)*(maxOrder+1) + 2
)

// ACN returns the layout of an ambisonics track in ACN order. stereo adds two channels of
// head-locked stereo after the others.
func ACN(order int, stereo bool) Ambisonics {
	n := (order + 1) * (order + 1)
	a := Ambisonics{Channels: n, W: 0, Y: 1}
	if stereo {
		a.Channels, a.Stereo, a.Left, a.Right = n+2, true, n, n+1
	}
	return a
}

// Bytes of a sound sample entry before its child boxes, by version of the QuickTime format, and of
// an SA3D box before its channel map.
var soundHeader = map[uint16]int64{0: 28, 1: 44, 2: 64}

const sa3dHeader = 12

// soundEntry reads the SA3D box of a sound track (Google, Spatial Audio RFC).
func (p *parser) soundEntry(stsd box, depth int) (a Ambisonics) {
	first := true
	_ = p.boxes(min(stsd.start+stsdHeader, stsd.end), stsd.end, depth, func(entry box) error {
		if !first || entry.end-entry.start < soundHeader[0] {
			return nil
		}
		first = false
		head := box{kind: entry.kind, start: entry.start, end: entry.start + soundHeader[0]}
		h, err := p.read(head, maxLeaf)
		if err != nil {
			return err
		}
		skip, ok := soundHeader[binary.BigEndian.Uint16(h[8:])]
		if !ok || entry.start+skip > entry.end {
			return nil
		}
		return p.boxes(entry.start+skip, entry.end, depth+1, func(b box) error {
			if b.kind != "SA3D" {
				return nil
			}
			d, err := p.read(b, maxLeaf)
			if err == nil {
				a = parseSA3D(d)
			}
			return err
		})
	})
	return a
}

// parseSA3D parses the content of an SA3D box. The result is zero for unknown versions, orders and
// normalizations.
func parseSA3D(d []byte) Ambisonics {
	if len(d) < sa3dHeader || d[0] != 0 || d[1]&0x7F != 0 || d[6] != 0 || d[7] != 0 {
		return Ambisonics{}
	}
	order, channels := binary.BigEndian.Uint32(d[2:]), int64(binary.BigEndian.Uint32(d[8:]))
	d = d[sa3dHeader:]
	if order < 1 || order > maxOrder || channels < 4 || channels > maxChannels || int64(len(d)) < 4*channels {
		return Ambisonics{}
	}
	at := map[uint32]int{} // channel of each component
	for i := range int(channels) {
		at[binary.BigEndian.Uint32(d[4*i:])] = i
	}
	w, hasW := at[0]
	y, hasY := at[1]
	if !hasW || !hasY {
		return Ambisonics{}
	}
	a := Ambisonics{Channels: int(channels), W: w, Y: y}
	n := (order + 1) * (order + 1)
	left, hasLeft := at[n]
	right, hasRight := at[n+1]
	if hasLeft && hasRight {
		a.Stereo, a.Left, a.Right = true, left, right
	}
	return a
}
