package k4amkv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"holocast/internal/camera"
)

// Limits of a header; k4arecorder writes 4 tracks and 20 tags.
const (
	maxTracks      = 64
	maxTags        = 4096
	maxCalibration = 1 << 20
	maxIndex       = 1 << 22
	maxCodec       = 64 << 10
)

// track is one TrackEntry.
type track struct {
	number, uid   uint64
	name, codec   string
	private       []byte
	duration      uint64 // nanoseconds per frame
	width, height uint64
	encoded       bool
	start         int64
}

type tag struct {
	value      string
	attachment uint64
}

type attachment struct {
	name string
	uid  uint64
	data element
}

// indexEntry locates a cluster with a block at a given time.
type indexEntry struct {
	time   int64 // nanoseconds since the recording's start
	offset int64
}

// header holds a recording's elements outside the clusters.
type header struct {
	segment      element
	firstCluster int64
	scale        int64 // nanoseconds per tick
	duration     float64
	tracks       []track
	tags         map[string]tag
	attachments  []attachment
	index        []indexEntry // from Cues, or nil
}

// readHeader reads the elements before the first cluster and those that SeekHead references.
func (f *file) readHeader() (*header, error) {
	root, err := f.header(0, f.size)
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty")
	}
	if err != nil || root.id != idEBML || root.end > f.size {
		return nil, errors.New("not a Matroska file")
	}
	var docType string
	if err := f.children(root, func(e element) (err error) {
		if e.id == idDocType {
			docType, err = f.string(e)
		}
		return err
	}); err != nil {
		return nil, err
	}
	if docType != "matroska" {
		return nil, fmt.Errorf("not a Matroska file: DocType is %q", docType)
	}
	segment, err := f.header(root.end, f.size)
	if err != nil || segment.id != idSegment {
		return nil, &DamageError{root.end, "Segment", errors.New("not found after the EBML header")}
	}
	// The size is too large, or unknown, in a truncated recording.
	segment.end = min(segment.end, f.size)

	// Recorders write Info when they close a recording. Default to k4arecorder's scale.
	h := &header{segment: segment, scale: 1000, tags: map[string]tag{}}
	done := map[int64]bool{}
	var seek []int64
	for at := segment.data; ; {
		e, err := f.sectionHeader(h, at)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if e.id == idCluster {
			h.firstCluster = e.start
			break
		}
		if e.end > h.segment.end {
			return nil, e.damage("%d bytes long, but only %d are left%s", e.end-e.data, h.segment.end-e.data,
				f.truncated(h.segment.end))
		}
		if e.id == idSeekHead {
			if seek, err = f.seekHead(e, segment.data, seek); err != nil {
				return nil, err
			}
		}
		if err := f.headerElement(h, e); err != nil {
			return nil, err
		}
		done[e.start] = true
		at = e.end
	}
	if h.firstCluster == 0 {
		return nil, &DamageError{h.segment.end, "Cluster", errors.New("the recording ends before its first frame")}
	}
	for _, at := range seek {
		if at <= h.firstCluster || done[at] {
			continue
		}
		done[at] = true
		// Cues follow the clusters, so a truncated recording has none. SeekTo then scans the
		// clusters.
		if e, err := f.child(at, f.size); err == nil && e.id == idCues {
			if f.headerElement(h, e) != nil {
				h.index = nil
			}
		} else if err == nil {
			if err := f.headerElement(h, e); err != nil {
				return nil, err
			}
		}
	}
	return h, nil
}

// sectionHeader reads the header of Segment's child at offset. A recorder writes Segment's size
// when it closes the file. If a child lies beyond that size, the size is wrong and Segment extends
// to the end of the file.
func (f *file) sectionHeader(h *header, offset int64) (element, error) {
	e, err := f.header(offset, f.size)
	end := &h.segment.end
	beyond := offset >= *end || !e.unknown && e.end > *end && e.end <= f.size
	if err == nil && beyond && (topLevel(e.id) || e.id == idVoid) {
		*end = f.size
	}
	if offset >= *end {
		return element{}, io.EOF
	}
	if e.unknown {
		e.end = *end
	}
	return e, err
}

// seekHead appends the file offsets in a SeekHead of the Segment whose content begins at segment.
func (f *file) seekHead(e element, segment int64, offsets []int64) ([]int64, error) {
	err := f.children(e, func(s element) error {
		if s.id != idSeek {
			return nil
		}
		return f.children(s, func(p element) error {
			if p.id != idSeekPosition || len(offsets) >= maxTracks {
				return nil
			}
			v, err := f.uint(p)
			if v < uint64(f.size-segment) {
				offsets = append(offsets, segment+int64(v))
			}
			return err
		})
	})
	return offsets, err
}

func (f *file) headerElement(h *header, e element) error {
	switch e.id {
	case idInfo:
		return f.info(h, e)
	case idTracks:
		return f.children(e, func(e element) error {
			if e.id != idTrackEntry {
				return nil
			}
			if len(h.tracks) == maxTracks {
				return e.damage("more than %d tracks", maxTracks)
			}
			t, err := f.trackEntry(e)
			if err == nil && t.number == 0 {
				err = e.damage("track %q has no number", t.name)
			}
			h.tracks = append(h.tracks, t)
			return err
		})
	case idTags:
		return f.children(e, func(e element) error {
			if e.id != idTag {
				return nil
			}
			return f.tag(h, e)
		})
	case idAttachments:
		return f.children(e, func(e element) error {
			if e.id != idAttachedFile {
				return nil
			}
			if len(h.attachments) == maxTags {
				return e.damage("more than %d attachments", maxTags)
			}
			a, err := f.attachedFile(e)
			h.attachments = append(h.attachments, a)
			return err
		})
	case idCues:
		return f.cues(h, e)
	}
	return nil
}

func (f *file) info(h *header, e element) error {
	h.scale = 1_000_000 // Matroska's default
	return f.children(e, func(e element) error {
		switch e.id {
		case idTimestampScale:
			v, err := f.uint(e)
			if err == nil && (v == 0 || v > 1e9) {
				return e.damage("invalid time scale of %d nanoseconds", v)
			}
			h.scale = int64(v)
			return err
		case idDuration:
			v, err := f.float(e)
			h.duration = v
			return err
		}
		return nil
	})
}

func (f *file) trackEntry(e element) (track, error) {
	t := track{start: e.start}
	err := f.children(e, func(e element) (err error) {
		switch e.id {
		case idTrackNumber:
			t.number, err = f.uint(e)
		case idTrackUID:
			t.uid, err = f.uint(e)
		case idTrackName:
			t.name, err = f.string(e)
		case idCodecID:
			t.codec, err = f.string(e)
		case idCodecPrivate:
			t.private, err = f.bytes(e, maxCodec)
		case idDefaultDur:
			t.duration, err = f.uint(e)
		case idEncodings:
			t.encoded = true
		case idVideo:
			return f.children(e, func(e element) (err error) {
				switch e.id {
				case idPixelWidth:
					t.width, err = f.uint(e)
				case idPixelHeight:
					t.height, err = f.uint(e)
				}
				return err
			})
		}
		return err
	})
	return t, err
}

func (f *file) tag(h *header, e element) error {
	var attachment uint64
	var simple []element
	if err := f.children(e, func(e element) error {
		switch e.id {
		case idTargets:
			return f.children(e, func(e element) (err error) {
				if e.id == idTagAttachment {
					attachment, err = f.uint(e)
				}
				return err
			})
		case idSimpleTag:
			if len(h.tags)+len(simple) == maxTags {
				return e.damage("more than %d tags", maxTags)
			}
			simple = append(simple, e)
		}
		return nil
	}); err != nil {
		return err
	}
	for _, e := range simple {
		t := tag{attachment: attachment}
		var name string
		if err := f.children(e, func(e element) (err error) {
			switch e.id {
			case idTagName:
				name, err = f.string(e)
			case idTagString:
				t.value, err = f.string(e)
			}
			return err
		}); err != nil {
			return err
		}
		if _, ok := h.tags[name]; !ok { // the first tag with a name counts, as in libk4arecord
			h.tags[name] = t
		}
	}
	return nil
}

func (f *file) attachedFile(e element) (attachment, error) {
	var a attachment
	err := f.children(e, func(e element) (err error) {
		switch e.id {
		case idFileName:
			a.name, err = f.string(e)
		case idFileUID:
			a.uid, err = f.uint(e)
		case idFileData:
			a.data = e
		}
		return err
	})
	return a, err
}

func (f *file) cues(h *header, e element) error {
	return f.children(e, func(e element) error {
		if e.id != idCuePoint || len(h.index) == maxIndex {
			return nil
		}
		var tick, position uint64
		if err := f.children(e, func(e element) (err error) {
			switch e.id {
			case idCueTime:
				tick, err = f.uint(e)
			case idCuePositions:
				return f.children(e, func(e element) (err error) {
					if e.id == idCueCluster {
						position, err = f.uint(e)
					}
					return err
				})
			}
			return err
		}); err != nil {
			return err
		}
		t, ok := h.nanoseconds(tick)
		if !ok || position >= uint64(h.segment.end-h.segment.data) {
			return e.damage("points outside the recording")
		}
		entry := indexEntry{t, h.segment.data + int64(position)}
		if n := len(h.index); n == 0 || h.index[n-1].offset < entry.offset && h.index[n-1].time <= entry.time {
			h.index = append(h.index, entry)
		}
		return nil
	})
}

// nanoseconds converts a timestamp from ticks. It returns false on overflow.
func (h *header) nanoseconds(tick uint64) (int64, bool) {
	if tick > uint64(math.MaxInt64/4/h.scale) {
		return 0, false
	}
	return int64(tick) * h.scale, true
}

// find returns the track whose UID the tag tagName contains, or else the track with the given name.
func (h *header) find(name, tagName string) *track {
	uid, err := strconv.ParseUint(h.tags[tagName].value, 10, 64)
	var named *track
	for i := range h.tracks {
		t := &h.tracks[i]
		if err == nil && uid != 0 && t.uid == uid {
			return t
		}
		if t.name == name && named == nil {
			named = t
		}
	}
	return named
}

// fourCC parses a video track's BITMAPINFOHEADER and checks that it matches the track's size.
func (t *track) fourCC() (string, error) {
	damage := func(format string, args ...any) error {
		return &DamageError{t.start, "TrackEntry " + t.name, fmt.Errorf(format, args...)}
	}
	switch {
	case t.encoded:
		return "", damage("frames are compressed by Matroska ContentEncodings, which k4a recordings never are")
	case t.codec == "V_MJPEG": // FFmpeg renames MJPG
		return string(camera.MJPG), nil
	case t.codec != "V_MS/VFW/FOURCC":
		return "", damage("codec %q is not V_MS/VFW/FOURCC", t.codec)
	case len(t.private) != 40:
		return "", damage("BITMAPINFOHEADER of %d bytes, want 40", len(t.private))
	}
	w, h := binary.LittleEndian.Uint32(t.private[4:]), int32(binary.LittleEndian.Uint32(t.private[8:]))
	h = max(h, -h) // negative: rows from top to bottom
	if uint64(w) != t.width || uint64(h) != t.height {
		return "", damage("BITMAPINFOHEADER says %d×%d, but the track is %d×%d", w, h, t.width, t.height)
	}
	return string(t.private[16:20]), nil
}

// config interprets the header. It also returns the tracks COLOR, DEPTH, IR and IMU, which are nil
// if missing.
func (h *header) config(f *file) (c Config, tracks [trackCount]*track, littleEndian bool, err error) {
	fail := func(err error) (Config, [trackCount]*track, bool, error) {
		return Config{}, tracks, false, err
	}
	tracks = [trackCount]*track{
		trackColor: h.find("COLOR", "K4A_COLOR_TRACK"),
		trackDepth: h.find("DEPTH", "K4A_DEPTH_TRACK"),
		trackIR:    h.find("IR", "K4A_IR_TRACK"),
		trackIMU:   h.find("IMU", "K4A_IMU_TRACK"),
	}
	if tracks[trackIR] == nil {
		tracks[trackIR] = h.find("DEPTH_IR", "") // name used by early recorders
	}
	color, depth, ir := tracks[trackColor], tracks[trackDepth], tracks[trackIR]
	if color == nil && depth == nil && ir == nil {
		return fail(fmt.Errorf("no COLOR, DEPTH or IR track among the recording's %d tracks", len(h.tracks)))
	}
	c = Config{
		Depth:  depth != nil,
		IR:     ir != nil,
		IMU:    tracks[trackIMU] != nil,
		Serial: h.tags["K4A_DEVICE_SERIAL_NUMBER"].value,
	}

	if color != nil {
		fourCC, err := color.fourCC()
		if err != nil {
			return fail(err)
		}
		switch c.ColorFormat = camera.ColorFormat(fourCC); c.ColorFormat {
		case camera.MJPG, camera.NV12, camera.YUY2, camera.BGRA:
		default:
			return fail(
				&DamageError{
					color.start,
					"TrackEntry COLOR",
					fmt.Errorf("colour format %q is none of MJPG, NV12, YUY2, BGRA", fourCC),
				},
			)
		}
		for _, m := range []camera.ColorMode{
			camera.Color720P, camera.Color1080P, camera.Color1440P, camera.Color1536P,
			camera.Color2160P, camera.Color3072P,
		} {
			if w, h := m.Size(); uint64(w) == color.width && uint64(h) == color.height {
				c.ColorMode = m
			}
		}
		if c.ColorMode == camera.ColorOff {
			return fail(
				&DamageError{
					color.start,
					"TrackEntry COLOR",
					fmt.Errorf("%d×%d is not a colour resolution of an Azure Kinect", color.width, color.height),
				},
			)
		}
	}
	if depth != nil || ir != nil {
		name, ok := h.tags["K4A_DEPTH_MODE"]
		if !ok {
			return fail(errors.New("tag K4A_DEPTH_MODE is missing"))
		}
		if c.DepthMode, err = camera.ParseDepthMode(name.value); err != nil {
			return fail(fmt.Errorf("tag K4A_DEPTH_MODE: %w", err))
		}
		w, h := c.DepthMode.Size()
		for _, t := range []*track{depth, ir} {
			if t == nil {
				continue
			}
			fourCC, err := t.fourCC()
			if err != nil {
				return fail(err)
			}
			if t.width != uint64(w) || t.height != uint64(h) {
				return fail(
					&DamageError{
						t.start,
						"TrackEntry " + t.name,
						fmt.Errorf("%d×%d, but depth mode %s is %d×%d", t.width, t.height, c.DepthMode, w, h),
					},
				)
			}
			switch fourCC {
			case "b16g", "\x00\x00\x00\x00": // FFmpeg writes 0
			case "YUY2": // early recorders wrote 16-bit little-endian under this name
				littleEndian = true
			default:
				return fail(&DamageError{t.start, "TrackEntry " + t.name, fmt.Errorf("format %q is not b16g", fourCC)})
			}
		}
	}
	c.FPS = 30
	for _, t := range []*track{ir, depth, color} {
		if t != nil && t.duration > 0 {
			c.FPS = int(math.Round(1e9 / float64(t.duration)))
		}
	}
	if c.FPS < 1 || c.FPS > 1000 {
		return fail(fmt.Errorf("frame rate %d is not in 1…1000", c.FPS))
	}
	if c.StartOffset, err = h.durationTag("K4A_START_OFFSET_NS"); err != nil {
		return fail(err)
	}
	if c.DepthDelay, err = h.durationTag("K4A_DEPTH_DELAY_NS"); err != nil {
		return fail(err)
	}
	if c.Calibration, err = h.calibration(f); err != nil {
		return fail(err)
	}
	return c, tracks, littleEndian, nil
}

// durationTag parses a tag in nanoseconds. It returns 0 if the tag is missing.
func (h *header) durationTag(name string) (time.Duration, error) {
	t, ok := h.tags[name]
	if !ok {
		return 0, nil
	}
	v, err := strconv.ParseInt(strings.TrimSpace(t.value), 10, 64)
	if err != nil || v > math.MaxInt64/2 || v < -math.MaxInt64/2 {
		return 0, fmt.Errorf("tag %s is %q, want nanoseconds", name, t.value)
	}
	return time.Duration(v), nil
}

func (h *header) calibration(f *file) ([]byte, error) {
	uid := h.tags["K4A_CALIBRATION_FILE"].attachment
	for pass := range 2 {
		for _, a := range h.attachments {
			if pass == 0 && uid != 0 && a.uid == uid || pass == 1 && a.name == "calibration.json" {
				return f.bytes(a.data, maxCalibration)
			}
		}
	}
	return nil, nil
}
