package equirect

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"holocast/internal/catalog"
	"holocast/internal/ffmpeg"
)

// FFmpeg's names for code points of ITU-T H.273, mapped to zscale's.
var (
	zscaleMatrices = names("gbr", "bt709", "fcc", "bt470bg", "smpte170m", "smpte240m=7", "ycgco", "bt2020nc", "bt2020c",
		"chroma-derived-nc", "chroma-derived-c", "ictcp")
	zscaleTransfers = names("bt709", "gamma22=bt470m", "gamma28=bt470bg", "smpte170m", "smpte240m=smpte170m", "linear",
		"log100", "log316", "iec61966-2-4", "bt1361e=bt709", "iec61966-2-1", "bt2020-10", "bt2020-12", "smpte2084",
		"arib-std-b67")
	zscalePrimaries = names("bt709", "bt470m", "bt470bg", "smpte170m", "smpte240m", "film", "bt2020", "smpte428",
		"smpte431", "smpte432", "ebu3213=22", "jedec-p22=22")
)

func names(list ...string) map[string]string {
	m := map[string]string{}
	for _, s := range list {
		from, to, ok := strings.Cut(s, "=")
		if !ok {
			to = from
		}
		m[from] = to
	}
	return m
}

// hdr names the transfer functions of high dynamic range.
var hdr = map[string]string{"smpte2084": "HDR (PQ)", "arib-std-b67": "HDR (HLG)"}

// unlikeSDR lists the transfer functions whose pictures look wrong when shown as BT.709.
var unlikeSDR = []string{"smpte2084", "arib-std-b67", "linear", "log100", "log316", "smpte428"}

// sdrWhite is the luminance in cd/m² that becomes white when HDR is converted. It is zscale's
// default.
const sdrWhite = 100

// conversion converts an input's pictures to a colour space that viewers support.
type conversion struct {
	to     catalog.Color
	scale  string // arguments of FFmpeg's filter scale
	filter string // FFmpeg filters after scale; "" for none
	note   string // for the user
}

// convert determines the colour space to publish. Viewers support BT.709 and BT.601; other colour
// spaces are converted to BT.709. to is the colour space already published, or nil.
func convert(ctx context.Context, s *ffmpeg.Video, to *catalog.Color) (c conversion, err error) {
	matrix, transfer, primaries := s.ColorSpace, s.ColorTransfer, s.ColorPrimaries
	rgb := strings.Contains(s.PixelFormat, "rgb") || strings.Contains(s.PixelFormat, "bgr") ||
		strings.HasPrefix(s.PixelFormat, "gbr") || strings.HasPrefix(s.PixelFormat, "pal8")
	// Without metadata, assume what players assume: BT.601 at standard definition, otherwise BT.709.
	switch {
	case rgb:
		matrix = "gbr"
	case matrix != "":
	case primaries == "bt2020" || hdr[transfer] != "":
		matrix = "bt2020nc"
	case s.Width <= 1024 && s.Height <= 576:
		matrix = "smpte170m"
	default:
		matrix = "bt709"
	}
	if primaries == "" && (hdr[transfer] != "" || strings.HasPrefix(matrix, "bt2020") || matrix == "ictcp") {
		primaries = "bt2020"
	}
	known := func(got, otherwise string, of ...string) string {
		if slices.Contains(of, got) {
			return got
		}
		return otherwise
	}
	c.to.Matrix = known(matrix, "bt709", "bt709", "bt470bg", "smpte170m")
	c.to.Primaries = known(primaries, c.to.Matrix, "bt709", "bt470bg", "smpte170m")
	c.to.Transfer = known(transfer, known(c.to.Matrix, "smpte170m", "bt709"), "bt709", "smpte170m", "iec61966-2-1")
	c.to.FullRange = c.to.Matrix == matrix && (s.ColorRange == "pc" || strings.HasPrefix(s.PixelFormat, "yuvj"))
	narrow := primaries == "" || primaries == c.to.Primaries || primaries == "smpte240m"
	if narrow && !slices.Contains(unlikeSDR, transfer) && (to == nil || *to == c.to) {
		switch matrix {
		case c.to.Matrix:
			return c, nil
		case "gbr", "fcc", "smpte240m":
			c.scale = ":out_color_matrix=bt709:out_range=tv"
			if !rgb {
				c.note = fmt.Sprintf("colours converted from %s to BT.709", matrix)
			}
			return c, nil
		}
	}
	from := c.to
	c.to = catalog.Color{Primaries: "bt709", Transfer: "bt709", Matrix: "bt709"}
	if to != nil {
		c.to = *to
	}
	if primaries == "" {
		primaries = from.Primaries
	}
	if transfer == "" {
		transfer = from.Transfer
	}
	what := hdr[transfer]
	if what == "" {
		what = fmt.Sprintf("%.60s", strings.Join(slices.Compact([]string{primaries, transfer, matrix}), ", "))
	}
	zm, zt, zp := zscaleMatrices[matrix], zscaleTransfers[transfer], zscalePrimaries[primaries]
	if zm == "" || zt == "" || zp == "" {
		return c, fmt.Errorf("its colours (%s) are not supported; convert them to BT.709", what)
	}
	if !ffmpeg.HasFilter(ctx, "zscale") {
		return c, fmt.Errorf("its colours are %s; converting them needs an FFmpeg with the filter zscale (libzimg)", what)
	}
	target, levels := "BT.601", "tv"
	if c.to.Matrix == "bt709" {
		target = "BT.709"
	}
	if c.to.FullRange {
		levels = "pc"
	}
	c.note = fmt.Sprintf("colours converted from %s to %s", what, target)
	in := fmt.Sprintf("zscale=min=%s:tin=%s:pin=%s:npl=%d:p=%s", zm, zt, zp, sdrWhite, c.to.Primaries)
	if hdr[transfer] != "" && s.MaxCLL > sdrWhite {
		in += fmt.Sprintf(":t=linear,format=gbrpf32le,tonemap=mobius:desat=0:peak=%.4g,zscale=npl=%d",
			float64(s.MaxCLL)/sdrWhite, sdrWhite)
	}
	c.filter = fmt.Sprintf("%s:m=%s:t=%s:r=%s,format=yuv420p", in, c.to.Matrix, c.to.Transfer, levels)
	return c, nil
}
