package depthmap

// #include "kernels.h"
import "C"

import (
	"fmt"

	"holocast/internal/srgb"
)

// Gain multiplies a camera's red, green and blue in linear light. The zero Gain is 1, 1, 1.
type Gain [3]float64

// maxGain and its inverse bound gains.
const maxGain = 4

// Validate returns an error for a channel outside 1/4 to 4.
func (g Gain) Validate() error {
	if g == (Gain{}) {
		return nil
	}
	for c, name := range []string{"red", "green", "blue"} {
		if !(g[c] >= 1.0/maxGain && g[c] <= maxGain) {
			return fmt.Errorf("gain of %s is %g, want 0.25 to 4", name, g[c])
		}
	}
	return nil
}

// levels maps sRGB levels, [channel][level].
type levels [3][256]byte

// levels returns the mapping of levels by the gain, or nil if it changes none.
func (g Gain) levels() *levels {
	if g == (Gain{}) || g == (Gain{1, 1, 1}) {
		return nil
	}
	var l levels
	for c := range l {
		for level := range l[c] {
			l[c][level] = byte(255*srgb.Encode(g[c]*srgb.Linear(float64(level)/255)) + 0.5)
		}
	}
	return &l
}

// Apply multiplies the colors of the pixels with depth; rgb holds three bytes for each.
func (g Gain) Apply(depth []uint16, rgb []byte) { g.levels().apply(depth, rgb) }

// apply maps the colours of the pixels with depth. A nil l changes none.
func (l *levels) apply(depth []uint16, rgb []byte) {
	if l != nil {
		C.recolor(u16(depth), u8(rgb), C.int32_t(len(depth)), u8(l[0][:]), u8(l[1][:]), u8(l[2][:]))
	}
}
