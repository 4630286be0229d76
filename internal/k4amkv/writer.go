package k4amkv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/at-wat/ebml-go"

	"holocast/internal/camera"
)

const (
	// tick is the recording's time unit, as in k4arecorder.
	tick = time.Microsecond
	// clusterLength bounds the time between a cluster's blocks, whose times are int16 ticks
	// relative to the cluster's.
	clusterLength = 32 * time.Millisecond
	// hold limits how long blocks are buffered to be sorted with blocks of other tracks.
	hold = 500 * time.Millisecond
	// cueGap is the minimum time between index entries.
	cueGap = time.Second
	// seekHeadSize is reserved for SeekHead, written on Close.
	seekHeadSize = 160
)

// Writer writes recordings for libk4arecord and Reader. Clusters are written half a second after
// their captures, complete and with a checksum, so a truncated recording plays to its last complete
// cluster.
type Writer struct {
	config  Config
	path    string
	file    *os.File
	regular bool
	err     error // error that stopped the recording; later calls return it

	numbers [trackCount]uint64
	sizes   [trackIMU]int

	pending []pendingBlock
	newest  int64 // latest device time seen, ns
	flushed int64 // device time up to which everything is written, ns

	offset     int64 // end of the last complete cluster
	segment    int64 // offset of Segment's content
	durationAt int64 // offset of Duration's value
	seeks      []seekEntry
	start      int64 // device time of the recording's start, ns
	last       int64 // device time of the last block written, ns
	clusters   int
	cues       []cuePoint
	buf        []byte
}

type pendingBlock struct {
	time  int64 // device, ns
	track int
	data  []byte
}

// Create creates a recording, replacing an existing file. It ignores config.StartOffset.
// config.Calibration, if any, becomes the attachment calibration.json.
func Create(path string, config Config) (*Writer, error) {
	w := &Writer{config: config, path: path, newest: math.MinInt64, flushed: math.MinInt64}
	if err := w.configure(); err != nil {
		return nil, fmt.Errorf("recording %s: %w", path, err)
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	w.file, w.regular = f, st.Mode().IsRegular()
	return w, nil
}

func (w *Writer) configure() error {
	c := &w.config
	if c.FPS != 5 && c.FPS != 15 && c.FPS != 30 {
		return fmt.Errorf("FPS is %d, want 5, 15 or 30", c.FPS)
	}
	if len(c.Calibration) > maxCalibration {
		return fmt.Errorf("calibration has %d bytes, more than the limit of %d", len(c.Calibration), maxCalibration)
	}
	next := uint64(1)
	add := func(track int) {
		w.numbers[track] = next
		next++
	}
	if c.ColorMode != camera.ColorOff {
		width, height := c.ColorMode.Size()
		if width == 0 {
			return fmt.Errorf("unknown colour mode %q", string(c.ColorMode))
		}
		switch c.ColorFormat {
		case camera.MJPG:
		case camera.NV12:
			w.sizes[trackColor] = width * height * 3 / 2
		case camera.YUY2:
			w.sizes[trackColor] = 2 * width * height
		case camera.BGRA:
			w.sizes[trackColor] = 4 * width * height
		default:
			return fmt.Errorf("unknown colour format %q", string(c.ColorFormat))
		}
		add(trackColor)
	}
	if c.Depth || c.IR {
		width, height := c.DepthMode.Size()
		if width == 0 {
			return fmt.Errorf("unknown depth mode %q", string(c.DepthMode))
		}
		if c.Depth && c.DepthMode == camera.PassiveIR {
			return errors.New("depth mode PASSIVE_IR has no depth")
		}
		w.sizes[trackDepth], w.sizes[trackIR] = width*height, width*height
		if c.Depth {
			add(trackDepth)
		}
		if c.IR {
			add(trackIR)
		}
	}
	if next == 1 {
		return errors.New("neither colour, depth nor IR is recorded")
	}
	if c.IMU {
		add(trackIMU)
	}
	return nil
}

// WriteCapture records copies of c's images and IMU samples. Captures may be slightly out of order,
// but a capture more than half a second older than the newest is an error. After a disk error every
// call returns that error; Close then reports what the file contains.
func (w *Writer) WriteCapture(c *Capture) error {
	if w.err != nil {
		return w.err
	}
	if c.Color == nil && c.Depth == nil && c.IR == nil {
		return errors.New("recording: the capture has no image")
	}
	if err := w.check(c); err != nil {
		return fmt.Errorf("recording: %w", err)
	}
	if c.Color != nil {
		w.add(trackColor, c.ColorTime, bytes.Clone(c.Color))
	}
	if c.Depth != nil {
		w.add(trackDepth, c.DepthTime, bigEndian(c.Depth))
	}
	if c.IR != nil {
		w.add(trackIR, c.IRTime, bigEndian(c.IR))
	}
	for _, s := range c.IMU {
		w.add(trackIMU, s.AccelTime, s.bytes())
	}
	return w.flush(w.newest - int64(hold))
}

// check returns an error if a capture does not fit the recording.
func (w *Writer) check(c *Capture) error {
	for _, image := range []struct {
		name    string
		article string
		track   int
		present bool
		size    int
		time    time.Duration
	}{
		{"colour", "a", trackColor, c.Color != nil, len(c.Color), c.ColorTime},
		{"depth", "a", trackDepth, c.Depth != nil, len(c.Depth), c.DepthTime},
		{"IR", "an", trackIR, c.IR != nil, len(c.IR), c.IRTime},
	} {
		want := w.sizes[image.track]
		switch {
		case !image.present:
		case w.numbers[image.track] == 0:
			return fmt.Errorf("the capture has %s %s image, but the recording has no such track", image.article,
				image.name)
		case want == 0 && (image.size == 0 || image.size > maxColor):
			return fmt.Errorf("%s image has %d bytes, want 1 to %d", image.name, image.size, maxColor)
		case want != 0 && image.size != want:
			return fmt.Errorf("%s image has %d values, want %d", image.name, image.size, want)
		case int64(image.time) < w.flushed:
			return fmt.Errorf("%s image of %v is too late: the recording has reached %v", image.name, image.time,
				time.Duration(w.newest))
		}
	}
	for _, s := range c.IMU {
		if w.numbers[trackIMU] == 0 {
			return errors.New("the capture has IMU samples, but the recording has no such track")
		}
		if int64(s.AccelTime) < w.flushed {
			return fmt.Errorf("IMU sample of %v is too late: the recording has reached %v", s.AccelTime,
				time.Duration(w.newest))
		}
	}
	return nil
}

func (w *Writer) add(track int, t time.Duration, data []byte) {
	w.pending = append(w.pending, pendingBlock{int64(t), track, data})
	w.newest = max(w.newest, int64(t))
}

func bigEndian(image []uint16) []byte {
	b := make([]byte, 2*len(image))
	for i, v := range image {
		binary.BigEndian.PutUint16(b[2*i:], v)
	}
	return b
}

func (s *IMUSample) bytes() []byte {
	b := make([]byte, 0, imuSize)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.AccelTime))
	for _, v := range s.Accel {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(s.GyroTime))
	for _, v := range s.Gyro {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// flush writes the clusters that end before the device time horizon. It sets w.err.
func (w *Writer) flush(horizon int64) error {
	if w.err != nil {
		return w.err
	}
	slices.SortStableFunc(w.pending, func(a, b pendingBlock) int {
		return int(min(1, max(-1, a.time-b.time)))
	})
	for len(w.pending) > 0 {
		end := w.pending[0].time + int64(clusterLength)
		if end > horizon {
			return nil
		}
		n := slices.IndexFunc(w.pending, func(b pendingBlock) bool { return b.time >= end })
		if n < 0 {
			n = len(w.pending)
		}
		if err := w.writeCluster(w.pending[:n]); err != nil {
			w.err = fmt.Errorf("recording %s stopped: %w", w.path, err)
			return w.err
		}
		w.pending = slices.Delete(w.pending, 0, n)
		w.flushed = end
	}
	return nil
}

func (w *Writer) writeCluster(blocks []pendingBlock) error {
	if w.offset == 0 {
		if err := w.writeHeader(blocks[0].time); err != nil {
			return err
		}
	}
	start := (blocks[0].time - w.start) / int64(tick)
	// Leave room for the cluster's header and checksum.
	const head = 4 + 8 + 2 + 4
	b := append(w.buf[:0], make([]byte, head)...)
	b = append(b, idTimestamp, 0x88)
	b = binary.BigEndian.AppendUint64(b, uint64(start))
	for _, block := range blocks {
		b = append(b, idSimpleBlock)
		b = appendSize(b, int64(4+len(block.data)))
		b = append(b, 0x80|byte(w.numbers[block.track]))
		b = binary.BigEndian.AppendUint16(b, uint16((block.time-w.start)/int64(tick)-start))
		b = append(b, 0x80) // key frame, no lacing
		b = append(b, block.data...)
	}
	binary.BigEndian.PutUint32(b, idCluster)
	binary.BigEndian.PutUint64(b[4:], 1<<56|uint64(len(b)-12))
	b[12], b[13] = idCRC32, 0x84
	binary.LittleEndian.PutUint32(b[14:], crc32.ChecksumIEEE(b[head:]))
	w.buf = b

	at := w.offset
	if err := w.write(b); err != nil {
		return err
	}
	if n := len(w.cues); n == 0 || start*int64(tick)-int64(w.cues[n-1].CueTime)*int64(tick) >= int64(cueGap) {
		w.cues = append(w.cues, cuePoint{
			uint64(start),
			cuePositions{w.numbers[blocks[0].track], uint64(at - w.segment)},
		})
	}
	w.last = blocks[len(blocks)-1].time
	w.clusters++
	return nil
}

// appendSize appends an EBML size in 4 bytes, or in 8 if necessary.
func appendSize(b []byte, n int64) []byte {
	if n < 1<<28-1 {
		return binary.BigEndian.AppendUint32(b, 1<<28|uint32(n))
	}
	return binary.BigEndian.AppendUint64(b, 1<<56|uint64(n))
}

// write appends b to the file. offset advances only if all of b is written.
func (w *Writer) write(b []byte) error {
	if _, err := w.file.WriteAt(b, w.offset); err != nil {
		return err
	}
	w.offset += int64(len(b))
	return nil
}

// Structures marshalled by ebml-go; field names are Matroska's.
type (
	ebmlHead struct {
		EBMLVersion            uint64
		EBMLReadVersion        uint64
		EBMLMaxIDLength        uint64
		EBMLMaxSizeLength      uint64
		EBMLDocType            string
		EBMLDocTypeVersion     uint64
		EBMLDocTypeReadVersion uint64
	}
	segmentInfo struct {
		TimecodeScale uint64
		MuxingApp     string
		WritingApp    string
		DateUTC       time.Time
		Title         string
		Duration      float64
	}
	trackEntry struct {
		TrackNumber     uint64
		TrackUID        uint64
		TrackType       uint64
		Name            string
		CodecID         string
		CodecPrivate    []byte `ebml:",omitempty"`
		DefaultDuration uint64 `ebml:",omitempty"`
		Video           *video
	}
	video struct {
		PixelWidth  uint64
		PixelHeight uint64
	}
	attachedFile struct {
		FileName     string
		FileMimeType string
		FileData     []byte
		FileUID      uint64
	}
	fileTag struct {
		Targets   targets
		SimpleTag simpleTag
	}
	targets struct {
		TargetType       string `ebml:",omitempty"`
		TagTrackUID      uint64 `ebml:",omitempty"`
		TagAttachmentUID uint64 `ebml:",omitempty"`
	}
	simpleTag struct {
		TagName   string
		TagString string
	}
	seekEntry struct {
		SeekID       []byte
		SeekPosition uint64
	}
	cuePoint struct {
		CueTime           uint64
		CueTrackPositions cuePositions
	}
	cuePositions struct {
		CueTrack           uint64
		CueClusterPosition uint64
	}
)

// trackUID returns a track's UID for tags, unique and not 0.
func (w *Writer) trackUID(track int) uint64 { return 0x486F6C6F00000000 | w.numbers[track] }

const calibrationUID = 0x486F6C6F000000FF

// writeHeader writes everything before the first cluster; first is the device time of the first
// block. Info must not be Segment's first child, as libk4arecord takes offset 0 for "not found".
func (w *Writer) writeHeader(first int64) error {
	w.start = first - first%int64(tick)
	var b bytes.Buffer
	marshal := func(v any) error { return ebml.Marshal(v, &b) }
	if err := marshal(&struct{ EBML ebmlHead }{ebmlHead{1, 1, 4, 8, "matroska", 2, 2}}); err != nil {
		return err
	}
	b.Write([]byte{0x18, 0x53, 0x80, 0x67, 0x01, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}) // Segment of unknown size
	w.segment = int64(b.Len())
	b.Write(void(seekHeadSize))

	section := func(id uint32, v any) error {
		w.seeks = append(w.seeks, seekEntry{binary.BigEndian.AppendUint32(nil, id), uint64(int64(b.Len()) - w.segment)})
		return marshal(v)
	}
	if err := section(idInfo, &struct{ Info segmentInfo }{segmentInfo{
		TimecodeScale: uint64(tick), MuxingApp: "holocast", WritingApp: "holocast", DateUTC: time.Now(),
		Title: "Azure Kinect",
	}}); err != nil {
		return err
	}
	w.durationAt = int64(b.Len()) - 8
	if err := section(idTracks, &struct {
		Tracks struct{ TrackEntry []trackEntry }
	}{struct{ TrackEntry []trackEntry }{w.trackEntries()}}); err != nil {
		return err
	}
	if w.config.Calibration != nil {
		if err := section(idAttachments, &struct {
			Attachments struct{ AttachedFile attachedFile }
		}{struct{ AttachedFile attachedFile }{
			attachedFile{"calibration.json", "application/octet-stream", w.config.Calibration, calibrationUID},
		}}); err != nil {
			return err
		}
	}
	if err := section(idTags, &struct{ Tags struct{ Tag []fileTag } }{struct{ Tag []fileTag }{w.tags()}}); err != nil {
		return err
	}
	return w.write(b.Bytes())
}

func void(size int) []byte {
	b := make([]byte, size)
	b[0] = idVoid
	binary.BigEndian.PutUint64(b[1:], 1<<56|uint64(size-9))
	return b
}

func (w *Writer) trackEntries() []trackEntry {
	var entries []trackEntry
	add := func(track int, name string, e trackEntry) {
		if w.numbers[track] == 0 {
			return
		}
		e.TrackNumber, e.TrackUID, e.Name = w.numbers[track], w.trackUID(track), name
		entries = append(entries, e)
	}
	image := func(width, height int, fourCC string, bitCount uint16, size int) trackEntry {
		h := binary.LittleEndian.AppendUint32(nil, 40)
		h = binary.LittleEndian.AppendUint32(h, uint32(width))
		h = binary.LittleEndian.AppendUint32(h, uint32(height))
		h = binary.LittleEndian.AppendUint16(h, 1)
		h = binary.LittleEndian.AppendUint16(h, bitCount)
		h = append(h, fourCC...)
		h = binary.LittleEndian.AppendUint32(h, uint32(size))
		h = append(h, make([]byte, 16)...)
		return trackEntry{
			TrackType: 1, CodecID: "V_MS/VFW/FOURCC", CodecPrivate: h,
			DefaultDuration: uint64(w.config.period()), Video: &video{uint64(width), uint64(height)},
		}
	}
	bitCount := map[camera.ColorFormat]uint16{
		camera.MJPG: 24, camera.NV12: 12, camera.YUY2: 16,
		camera.BGRA: 32,
	}[w.config.ColorFormat]
	width, height := w.config.ColorMode.Size()
	add(trackColor, "COLOR", image(width, height, string(w.config.ColorFormat), bitCount, w.sizes[trackColor]))
	width, height = w.config.DepthMode.Size()
	add(trackDepth, "DEPTH", image(width, height, "b16g", 16, 2*width*height))
	add(trackIR, "IR", image(width, height, "b16g", 16, 2*width*height))
	add(trackIMU, "IMU", trackEntry{TrackType: 17, CodecID: "S_K4A/IMU"})
	return entries
}

func (w *Writer) tags() []fileTag {
	var tags []fileTag
	plain := func(name, value string) {
		tags = append(tags, fileTag{SimpleTag: simpleTag{name, value}})
	}
	ofTrack := func(track int, name, value string) {
		if w.numbers[track] != 0 {
			tags = append(tags, fileTag{
				targets{TargetType: "TRACK", TagTrackUID: w.trackUID(track)},
				simpleTag{name, value},
			})
		}
	}
	uid := func(track int) string { return strconv.FormatUint(w.trackUID(track), 10) }
	_, colorHeight := w.config.ColorMode.Size()
	ofTrack(trackColor, "K4A_COLOR_TRACK", uid(trackColor))
	ofTrack(trackColor, "K4A_COLOR_MODE", fmt.Sprintf("%s_%dP", w.config.ColorFormat, colorHeight))
	ofTrack(trackDepth, "K4A_DEPTH_TRACK", uid(trackDepth))
	ofTrack(trackIR, "K4A_IR_TRACK", uid(trackIR))
	irMode := "ACTIVE"
	if w.config.DepthMode == camera.PassiveIR {
		irMode = "PASSIVE"
	}
	ofTrack(trackIR, "K4A_IR_MODE", irMode)
	ofTrack(trackIMU, "K4A_IMU_TRACK", uid(trackIMU))
	ofTrack(trackIMU, "K4A_IMU_MODE", "ON")
	if w.config.Depth || w.config.IR {
		plain("K4A_DEPTH_MODE", string(w.config.DepthMode))
		if w.config.ColorMode != camera.ColorOff {
			plain("K4A_DEPTH_DELAY_NS", strconv.FormatInt(int64(w.config.DepthDelay), 10))
		}
	}
	plain("K4A_WIRED_SYNC_MODE", "STANDALONE")
	if w.config.Serial != "" {
		plain("K4A_DEVICE_SERIAL_NUMBER", w.config.Serial)
	}
	if w.config.Calibration != nil {
		tags = append(tags, fileTag{
			targets{TargetType: "ATTACHMENT", TagAttachmentUID: calibrationUID},
			simpleTag{"K4A_CALIBRATION_FILE", "calibration.json"},
		})
	}
	plain("K4A_START_OFFSET_NS", strconv.FormatInt(w.start, 10))
	return tags
}

// Close writes pending blocks and the index, and closes the file. If data could not be written, the
// error describes the file's contents: on a full disk the recording is truncated to its last
// complete cluster and remains readable. A recording without frames is removed.
func (w *Writer) Close() error {
	err := w.flush(math.MaxInt64)
	if w.clusters == 0 {
		if err == nil {
			err = fmt.Errorf("recording %s: no capture was written", w.path)
		}
		err = errors.Join(err, w.file.Close())
		if w.regular {
			err = errors.Join(err, os.Remove(w.path))
		}
		return err
	}
	held := time.Duration(w.last - w.start)
	if err != nil {
		err = fmt.Errorf("%w; the file holds its first %v", err, held.Round(time.Millisecond))
	}
	if indexErr := w.finish(); indexErr != nil {
		err = errors.Join(err, fmt.Errorf("recording %s: index not written: %w", w.path, indexErr))
	}
	return errors.Join(err, w.file.Close())
}

// finish truncates a partial cluster, appends the Cues and fills in header fields that depend on
// the entire recording.
func (w *Writer) finish() error {
	end := w.offset
	if err := w.truncate(end); err != nil {
		return err
	}
	seeks := w.seeks
	var b bytes.Buffer
	if err := ebml.Marshal(&struct {
		Cues struct{ CuePoint []cuePoint }
	}{struct{ CuePoint []cuePoint }{w.cues}}, &b); err != nil {
		return err
	}
	cuesErr := w.write(b.Bytes())
	if cuesErr == nil {
		seeks = append(slices.Clone(seeks),
			seekEntry{binary.BigEndian.AppendUint32(nil, idCues), uint64(end - w.segment)})
	} else if err := w.truncate(end); err != nil {
		return errors.Join(cuesErr, err)
	}

	b.Reset()
	if err := ebml.Marshal(&struct {
		SeekHead struct{ Seek []seekEntry }
	}{struct{ Seek []seekEntry }{seeks}}, &b); err != nil {
		return err
	}
	b.Write(void(seekHeadSize - b.Len()))
	duration := binary.BigEndian.AppendUint64(nil, math.Float64bits(float64((w.last-w.start)/int64(tick))))
	size := binary.BigEndian.AppendUint64(nil, 1<<56|uint64(w.offset-w.segment))
	for _, patch := range []struct {
		at int64
		b  []byte
	}{{w.segment, b.Bytes()}, {w.durationAt, duration}, {w.segment - 8, size}} {
		if _, err := w.file.WriteAt(patch.b, patch.at); err != nil {
			return errors.Join(cuesErr, err)
		}
	}
	return errors.Join(cuesErr, w.file.Sync())
}

func (w *Writer) truncate(size int64) error {
	if !w.regular {
		return nil
	}
	return w.file.Truncate(size)
}
