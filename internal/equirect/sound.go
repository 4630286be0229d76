package equirect

import (
	"fmt"
	"strconv"
	"strings"

	"holocast/internal/ffmpeg"
	"holocast/internal/spherical"
)

// ambisonicsOf returns the layout of a sound track from FFmpeg's name for it, such as "ambisonic 1"
// or "ambisonic 1+stereo" (Opus mapping family 2), or else from the file's metadata.
func ambisonicsOf(a *ffmpeg.Audio, file spherical.Ambisonics) spherical.Ambisonics {
	if a == nil {
		return spherical.Ambisonics{}
	}
	if name, ok := strings.CutPrefix(a.Layout, "ambisonic "); ok {
		digits, fixed, _ := strings.Cut(name, "+")
		if order, err := strconv.Atoi(digits); err == nil && order >= 1 {
			return spherical.ACN(order, fixed == "stereo")
		}
	}
	if file.Channels == a.Channels {
		return file
	}
	return spherical.Ambisonics{}
}

// downmix returns the FFmpeg filters that turn ambisonics into stereo, each ending with a comma. They
// decode to two cardioids, left and right of the sphere's front. FFmpeg cannot mix ambisonics; it
// would treat four channels as loudspeakers. It mixes other sound itself, and downmix returns "".
func downmix(a spherical.Ambisonics) string {
	if a.Channels == 0 {
		return ""
	}
	left, right := "", ""
	if a.Stereo {
		left, right = fmt.Sprintf("+c%d", a.Left), fmt.Sprintf("+c%d", a.Right)
	}
	return fmt.Sprintf("pan=stereo|c0=0.5*c%[1]d+0.5*c%[2]d%[3]s|c1=0.5*c%[1]d-0.5*c%[2]d%[4]s,", a.W, a.Y, left, right)
}
