package equirect

import (
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holocast/internal/catalog"
	"holocast/internal/ffmpeg"
)

func TestColors(t *testing.T) {
	if !ffmpeg.HasFilter(t.Context(), "zscale") {
		t.Skip("FFmpeg with the filter zscale is not installed")
	}
	bt709 := catalog.Color{Primaries: "bt709", Transfer: "bt709", Matrix: "bt709"}
	bt601 := catalog.Color{Primaries: "smpte170m", Transfer: "smpte170m", Matrix: "smpte170m"}
	full := bt601
	full.FullRange = true
	pal := catalog.Color{Primaries: "bt470bg", Transfer: "smpte170m", Matrix: "bt470bg"}
	mixed := catalog.Color{Primaries: "bt709", Transfer: "iec61966-2-1", Matrix: "smpte170m"}
	// "primaries transfer matrix" as FFmpeg names them; ? for unknown.
	video := func(width int, format, names, colorRange string) ffmpeg.Video {
		f := strings.Fields(names)
		for i := range f {
			f[i] = strings.Trim(f[i], "?")
		}
		return ffmpeg.Video{
			Width: width, Height: width / 2, PixelFormat: format, ColorRange: colorRange,
			ColorPrimaries: f[0], ColorTransfer: f[1], ColorSpace: f[2],
		}
	}
	for _, tt := range []struct {
		name   string
		video  ffmpeg.Video
		to     *catalog.Color
		want   catalog.Color
		filter string // "" for none
		note   string
		err    string
	}{
		{name: "large, no metadata", video: video(1920, "yuv420p", "? ? ?", ""), want: bt709},
		{name: "small, no metadata", video: video(640, "yuv420p", "? ? ?", ""), want: bt601},
		{name: "large, BT.601", video: video(1920, "yuv420p", "? ? smpte170m", "tv"), want: bt601},
		{name: "small, BT.709", video: video(640, "yuv420p", "? ? bt709", ""), want: bt709},
		{name: "PAL", video: video(720, "yuv420p", "? gamma28 bt470bg", ""), want: pal},
		{name: "mixed", video: video(1920, "yuv420p", "bt709 iec61966-2-1 smpte170m", ""), want: mixed},
		{name: "full range", video: video(640, "yuv420p", "? ? ?", "pc"), want: full},
		{name: "a camera's JPEG", video: video(640, "yuvj422p", "? ? ?", ""), want: full},
		{
			name: "RGB", video: video(640, "gbrp", "? ? gbr", "pc"), want: bt709,
			filter: ":out_color_matrix=bt709:out_range=tv",
		},
		{
			name: "SMPTE 240M", video: video(1920, "yuv420p", "smpte240m smpte240m smpte240m", ""), want: bt709,
			filter: ":out_color_matrix=bt709:out_range=tv", note: "from smpte240m to BT.709",
		},
		{
			name: "PQ", video: video(1920, "yuv420p10le", "bt2020 smpte2084 bt2020nc", "tv"), want: bt709,
			filter: "zscale=min=bt2020nc:tin=smpte2084:pin=bt2020:npl=100:p=bt709:m=bt709:t=bt709:r=tv,format=yuv420p",
			note:   "from HDR (PQ) to BT.709",
		},
		{
			name: "PQ without the rest", video: video(640, "yuv420p10le", "? smpte2084 ?", ""), want: bt709,
			filter: "zscale=min=bt2020nc:tin=smpte2084:pin=bt2020:", note: "HDR (PQ)",
		},
		{
			name: "HLG", video: video(1920, "yuv420p10le", "bt2020 arib-std-b67 bt2020nc", ""), want: bt709,
			filter: "tin=arib-std-b67:", note: "from HDR (HLG) to BT.709",
		},
		{
			name: "BT.2020", video: video(1920, "yuv420p10le", "bt2020 bt2020-10 bt2020nc", ""), want: bt709,
			filter: "min=bt2020nc:tin=bt2020-10:pin=bt2020:", note: "from bt2020, bt2020-10, bt2020nc to BT.709",
		},
		{
			name: "BT.2020's primaries alone", video: video(1920, "yuv420p", "bt2020 ? ?", ""), want: bt709,
			filter: "min=bt2020nc:tin=bt709:pin=bt2020:", note: "BT.709",
		},
		{
			name: "Display P3", video: video(1920, "yuv420p", "smpte432 bt709 bt709", ""), want: bt709,
			filter: "min=bt709:tin=bt709:pin=smpte432:", note: "from smpte432, bt709 to BT.709",
		},
		{
			name: "RGB in HDR", video: video(1920, "gbrp10le", "bt2020 smpte2084 gbr", "pc"), want: bt709,
			filter: "min=gbr:tin=smpte2084:", note: "HDR (PQ)",
		},
		{
			name: "linear", video: video(1920, "gbrpf32le", "bt709 linear gbr", "pc"), want: bt709,
			filter: "min=gbr:tin=linear:", note: "linear",
		},
		{
			name: "Dolby Vision", video: ffmpeg.Video{Width: 1920, Height: 960, ColorSpace: "Dolby Vision profile 5"},
			err: "(bt709, Dolby Vision profile 5) are not supported",
		},
		{
			name: "as published before", video: video(1920, "yuv420p", "? ? bt709", ""), to: &bt709, want: bt709,
		},
		{
			name: "other colours than before", video: video(1920, "yuv420p", "? ? ?", ""), to: &full, want: full,
			filter: "zscale=min=bt709:tin=bt709:pin=bt709:npl=100:p=smpte170m:m=smpte170m:t=smpte170m:r=pc",
			note:   "to BT.601",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := convert(t.Context(), &tt.video, tt.to)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := c.scale + c.filter
			if c.to != tt.want || !strings.Contains(got, tt.filter) || tt.filter == "" && got != "" ||
				!strings.Contains(c.note, tt.note) || tt.note == "" && c.note != "" {
				t.Errorf("%+v, by %q, note %q", c.to, got, c.note)
			}
		})
	}
}

func TestNoZscale(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	s := ffmpeg.Video{Width: 1920, Height: 960, ColorTransfer: "arib-std-b67"}
	if _, err := convert(t.Context(), &s, nil); err == nil ||
		!strings.Contains(err.Error(), "HDR (HLG); converting them needs an FFmpeg with the filter zscale") {
		t.Error(err)
	}
}

// TestHDR compares conversions with zscale's own, and with tonemap's for a film that declares its
// brightness.
func TestHDR(t *testing.T) {
	if !ffmpeg.HasFilter(t.Context(), "zscale") || !ffmpeg.HasEncoder(t.Context(), "libx265") {
		t.Skip("FFmpeg with the filter zscale and libx265 is not installed")
	}
	const size = "256x128"
	for _, tt := range []struct{ name, zscale, tags, x265, reference string }{
		{"PQ", "t=smpte2084:p=2020:m=2020_ncl", "smpte2084 bt2020 bt2020nc", "", ""},
		{"HLG", "t=arib-std-b67:p=2020:m=2020_ncl", "arib-std-b67 bt2020 bt2020nc", "", ""},
		{"BT.2020", "t=2020_10:p=2020:m=2020_ncl", "bt2020-10 bt2020 bt2020nc", "", ""},
		{"Display P3", "t=709:p=smpte432:m=709", "bt709 smpte432 bt709", "", ""},
		{
			"PQ of 1000 cd/m²", "t=smpte2084:p=2020:m=2020_ncl", "smpte2084 bt2020 bt2020nc", ":max-cll=1000,400",
			"zscale=t=linear:npl=100:p=709,format=gbrpf32le,tonemap=mobius:desat=0:peak=10,zscale=t=709:m=709:r=tv",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tags := strings.Fields(tt.tags)
			path := film(t, "hdr.mp4", size, "-vf",
				"zscale=min=709:tin=709:pin=709:rin=tv:"+tt.zscale+",format=yuv420p10le", "-frames:v", "2", "-c:v", "libx265",
				"-x265-params", "log-level=none:crf=1"+tt.x265, "-color_trc", tags[0],
				"-color_primaries", tags[1], "-colorspace", tags[2])
			reference := tt.reference
			if reference == "" {
				reference = "zscale=p=709:t=709:m=709:r=tv"
			}
			want, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-i", path, "-vf",
				reference+",format=yuv420p", "-f", "rawvideo", "-").Output()
			if err != nil {
				t.Fatal(err)
			}
			v, err := Open(t.Context(), path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			got := decode(t, v)
			if d := psnr(got, want); d < 45 {
				t.Errorf("PSNR %.1f dB to %s, want 45", d, filepath.Base(reference))
			}
		})
	}
}

// psnr returns the peak signal-to-noise ratio of samples in dB, or 0 if the slices differ in
// length.
func psnr(a, b []byte) float64 {
	if len(a) != len(b) {
		return 0
	}
	sum := 1e-9
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		sum += d * d
	}
	return 10 * math.Log10(255*255*float64(len(a))/sum)
}
