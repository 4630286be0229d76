package ffmpeg

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Input is a file, device or URL.
type Input struct {
	name string
	file string // path of a regular file, or ""
	args []string
	live bool
}

// liveSchemes are URL schemes of live inputs.
var liveSchemes = map[string]bool{
	"rtmp":  true,
	"rtmps": true,
	"rtsp":  true,
	"rtsps": true,
	"srt":   true,
	"udp":   true,
	"rtp":   true,
	"tcp":   true,
}

// fileSchemes are URL schemes of files.
var fileSchemes = map[string]bool{"http": true, "https": true}

// ParseInput accepts FILE, /dev/videoN and URLs. It prevents FFmpeg from interpreting a file's name
// as a URL, and files from making FFmpeg open other files.
func ParseInput(s string) (Input, error) {
	scheme, _, isURL := strings.Cut(s, "://")
	switch {
	case s == "":
		return Input{}, errors.New("no input: give a file, a URL or /dev/videoN")
	case strings.HasPrefix(s, "/dev/video"):
		return Input{name: s, live: true, args: []string{"-f", "v4l2", "-i", s}}, nil
	case isURL && liveSchemes[scheme]:
		return Input{
			name: s,
			live: true,
			args: []string{"-fflags", "nobuffer", "-analyzeduration", "2000000", "-i", s},
		}, nil
	case isURL && fileSchemes[scheme]:
		return Input{name: s, args: []string{"-protocol_whitelist", "http,https,tcp,tls,crypto", "-i", s}}, nil
	case isURL:
		return Input{}, fmt.Errorf(
			"input %q: %s:// is not supported; want rtmp, rtmps, rtsp, rtsps, srt, udp, rtp, tcp, http, https",
			s,
			scheme,
		)
	}
	path, err := filepath.Abs(s)
	if err != nil {
		return Input{}, err
	}
	args := []string{"-protocol_whitelist", "file", "-i", "file:" + path}
	if strings.Contains(path, "%") && image[strings.ToLower(filepath.Ext(path))] {
		args = append([]string{"-f", "image2", "-pattern_type", "none"}, args...)
	}
	return Input{name: s, file: path, args: args}, nil
}

// image lists the extensions of image files, whose names FFmpeg interprets as patterns for a sequence
// of images.
var image = map[string]bool{
	".jpg": true, ".jpeg": true, ".png": true, ".tif": true, ".tiff": true, ".bmp": true, ".webp": true,
	".exr": true, ".jp2": true, ".tga": true, ".dng": true,
}

func (i Input) String() string { return i.name }

// File returns the path of an input that is a file, or "" for other inputs.
func (i Input) File() string { return i.file }

// Live reports whether the input delivers at its own pace.
func (i Input) Live() bool { return i.live }

// Args returns ffmpeg's arguments for the input, including -i.
func (i Input) Args() []string { return i.args }

// Info describes an input.
type Info struct {
	Video    *Video
	Audio    *Audio        // nil without decodable sound
	Duration time.Duration // 0 if unknown
	// Undecodable lists the codecs of the sound streams before Audio, which this FFmpeg cannot decode.
	Undecodable []string
}

// Audio is an input's first sound stream that FFmpeg can decode.
type Audio struct {
	Stream   int // index in the input
	Codec    string
	Channels int
	Layout   string // FFmpeg's name for the channel layout, such as stereo; "" if unknown
}

// Video is an input's first video stream, other than cover art.
type Video struct {
	Stream         int // index in the input
	Codec          string
	Width, Height  int     // pixels, with any display matrix applied
	PixelAspect    float64 // pixel width divided by height
	FPSNum, FPSDen int
	Projection     string // equirectangular or cubemap; "" if unknown
	Stereo         string // FFmpeg's name: 2D, top and bottom, side by side, …; "" if unknown
	Inverted       bool   // the right eye comes first
	SphericalV1    string // XML of the Matroska tag SPHERICAL-VIDEO; "" if absent
	Yaw            float64
	Pitch          float64
	Roll           float64
	PixelFormat    string // FFmpeg's name, such as yuv420p
	// FFmpeg's names; "" if the stream has none.
	ColorPrimaries, ColorTransfer, ColorSpace string
	ColorRange                                string // tv, pc
	MaxCLL                                    int    // maximum content light level (CTA-861.3), cd/m²; 0 if unknown
}

// FPS returns the frame rate.
func (v *Video) FPS() float64 { return float64(v.FPSNum) / float64(v.FPSDen) }

// ErrNoVideo is returned for an input without a video stream.
var ErrNoVideo = errors.New("it has no video stream")

// Probe describes an input, using ffprobe.
func Probe(ctx context.Context, in Input) (Info, error) {
	path, err := Find("ffprobe")
	if err != nil {
		return Info{}, err
	}
	out, err := probe(ctx, path, in, "-show_format", "-show_streams")
	if err != nil {
		return Info{}, err
	}
	info, err := parseProbe(out.stdout, func(codec string) bool { return has(ctx, "decoder", "Decoder", codec) })
	if err == nil && info.Video.Projection == "" && strings.Contains(out.warnings, "Unknown spherical metadata type 3") {
		info.Video.Projection = "mesh" // FFmpeg has no name for Matroska's ProjectionType 3
	}
	if err == nil && info.Video.ColorTransfer == "smpte2084" && info.Video.MaxCLL == 0 && !in.Live() {
		info.Video.MaxCLL = maxCLL(ctx, path, in)
	}
	return info, err
}

// maxCLL returns the light level in the first picture's metadata, or 0 if it has none.
func maxCLL(ctx context.Context, path string, in Input) int {
	out, err := probe(ctx, path, in, "-select_streams", "v:0", "-show_frames", "-read_intervals", "%+#1")
	var doc struct {
		Frames []struct {
			SideData []sideData `json:"side_data_list"`
		} `json:"frames"`
	}
	if err != nil || json.Unmarshal(out.stdout, &doc) != nil {
		return 0
	}
	var v Video
	for _, f := range doc.Frames {
		for _, d := range f.SideData {
			v.apply(&d)
		}
	}
	return v.MaxCLL
}

type probed struct {
	stdout   []byte
	warnings string
}

// probe returns ffprobe's description of an input as JSON, and its warnings.
func probe(ctx context.Context, path string, in Input, show ...string) (probed, error) {
	args := slices.Concat([]string{"-v", "warning", "-print_format", "json"}, show, in.args)
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // arguments come from this program
	var stdout bytes.Buffer
	var stderr tail
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := run(cmd); err != nil {
		if ctx.Err() != nil {
			return probed{}, ctx.Err()
		}
		return probed{}, stderr.explain(err)
	}
	return probed{stdout.Bytes(), string(stderr.b)}, nil
}

// parseProbe parses ffprobe's output. decodes reports whether FFmpeg decodes a codec.
func parseProbe(b []byte, decodes func(codec string) bool) (Info, error) {
	var doc struct {
		Streams []struct {
			Index       int    `json:"index"`
			Channels    int    `json:"channels"`
			Layout      string `json:"channel_layout"`
			Type        string `json:"codec_type"`
			Codec       string `json:"codec_name"`
			Tag         string `json:"codec_tag_string"`
			Width       int    `json:"width"`
			Height      int    `json:"height"`
			Aspect      string `json:"sample_aspect_ratio"`
			PixelFormat string `json:"pix_fmt"`
			Primaries   string `json:"color_primaries"`
			Transfer    string `json:"color_transfer"`
			Space       string `json:"color_space"`
			Range       string `json:"color_range"`
			Rate        string `json:"r_frame_rate"`
			Average     string `json:"avg_frame_rate"`
			Disposition struct {
				Picture int `json:"attached_pic"`
			} `json:"disposition"`
			SideData []sideData `json:"side_data_list"`
			Tags     tags       `json:"tags"`
		} `json:"streams"`
		Format struct {
			Duration string `json:"duration"`
			Tags     tags   `json:"tags"`
		} `json:"format"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return Info{}, fmt.Errorf("ffprobe: %w", err)
	}
	var info Info
	if s, err := strconv.ParseFloat(doc.Format.Duration, 64); err == nil && s > 0 && s < 1e9 {
		info.Duration = time.Duration(s * float64(time.Second))
	}
	for i := range doc.Streams {
		s := &doc.Streams[i]
		if s.Type == "audio" && info.Audio == nil {
			if known(s.Codec) == "" || s.Codec == "none" {
				info.Undecodable = append(info.Undecodable, s.Tag)
			} else if !decodes(s.Codec) {
				info.Undecodable = append(info.Undecodable, s.Codec)
			} else {
				info.Audio = &Audio{Stream: s.Index, Codec: s.Codec, Channels: s.Channels, Layout: known(s.Layout)}
			}
		}
		if s.Type != "video" || s.Disposition.Picture != 0 || info.Video != nil {
			continue
		}
		v := &Video{
			Stream: s.Index, Codec: s.Codec, Width: s.Width, Height: s.Height, PixelAspect: 1, PixelFormat: s.PixelFormat,
			ColorPrimaries: known(s.Primaries), ColorTransfer: known(s.Transfer), ColorSpace: known(s.Space),
			ColorRange: known(s.Range),
		}
		if s.Codec == "" || s.Codec == "unknown" || s.Codec == "none" {
			return info, &CodecError{Codec: "video of type " + s.Tag}
		}
		if n, d, ok := ratio(s.Aspect, ":"); ok {
			v.PixelAspect = float64(n) / float64(d)
		}
		var ok bool
		if v.FPSNum, v.FPSDen, ok = ratio(s.Average, "/"); !ok {
			if v.FPSNum, v.FPSDen, ok = ratio(s.Rate, "/"); !ok {
				v.FPSNum, v.FPSDen = 30, 1
			}
		}
		for _, d := range s.SideData {
			v.apply(&d)
		}
		v.SphericalV1 = cmp.Or(s.Tags.get("spherical-video"), doc.Format.Tags.get("spherical-video"))
		info.Video = v
	}
	if info.Video == nil {
		return info, ErrNoVideo
	}
	if info.Video.Width < 1 || info.Video.Height < 1 {
		return info, fmt.Errorf("its pictures have an invalid size, %d×%d", info.Video.Width, info.Video.Height)
	}
	return info, nil
}

// tags are the tags of a stream or file. Their names are case-insensitive.
type tags map[string]string

func (t tags) get(name string) string {
	for k, v := range t {
		if strings.EqualFold(k, name) {
			return v
		}
	}
	return ""
}

// sideData is an entry of ffprobe's side_data_list.
type sideData struct {
	Kind       string  `json:"side_data_type"`
	Type       string  `json:"type"` // of Stereo 3D
	Inverted   int     `json:"inverted"`
	Projection string  `json:"projection"`
	Yaw        float64 `json:"yaw"`
	Pitch      float64 `json:"pitch"`
	Roll       float64 `json:"roll"`
	Rotation   float64 `json:"rotation"` // of Display Matrix, degrees
	MaxContent int     `json:"max_content"`
	Dolby      int     `json:"dv_profile"`
}

func (v *Video) apply(d *sideData) {
	switch {
	case d.Projection != "":
		v.Projection, v.Yaw, v.Pitch, v.Roll = d.Projection, d.Yaw, d.Pitch, d.Roll
	case d.Kind == "Stereo 3D":
		v.Stereo, v.Inverted = known(d.Type), d.Inverted != 0
	case math.Abs(math.Abs(math.Remainder(d.Rotation, 360))-90) < 1: // FFmpeg turns the picture
		v.Width, v.Height, v.PixelAspect = v.Height, v.Width, 1/v.PixelAspect
	case d.MaxContent > 0:
		v.MaxCLL = d.MaxContent
	case d.Dolby == 5: // its base layer is not ordinary HDR
		v.ColorSpace = "Dolby Vision profile 5"
	}
}

// known returns s, or "" if s is FFmpeg's name for an unknown value.
func known(s string) string {
	if s == "unknown" || s == "unspecified" || s == "reserved" {
		return ""
	}
	return s
}

func ratio(s, by string) (num, den int, ok bool) {
	a, b, _ := strings.Cut(s, by)
	n, err := strconv.Atoi(a)
	d, err2 := strconv.Atoi(b)
	if err != nil || err2 != nil || n < 1 || d < 1 {
		return 0, 0, false
	}
	return n, d, true
}

// HasEncoder reports whether this FFmpeg has an encoder.
func HasEncoder(ctx context.Context, name string) bool { return has(ctx, "encoder", "Encoder", name) }

// HasFilter reports whether this FFmpeg has a filter.
func HasFilter(ctx context.Context, name string) bool { return has(ctx, "filter", "Filter", name) }

func has(ctx context.Context, kind, title, name string) bool {
	path, err := Find("ffmpeg")
	if err != nil {
		return false
	}
	//nolint:gosec // arguments come from this program
	out, err := exec.CommandContext(ctx, path, "-hide_banner", "-v", "error", "-h", kind+"="+name).CombinedOutput()
	return err == nil && strings.Contains(string(out), title+" "+name)
}
