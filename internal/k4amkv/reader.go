package k4amkv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sort"
	"time"

	"holocast/internal/camera"
)

// The tracks of a recording.
const (
	trackColor = iota
	trackDepth
	trackIR
	trackIMU
	trackCount
)

// block locates a frame in the file.
type block struct {
	time int64 // nanoseconds since the recording's start
	at   int64 // offset of the payload
	size int64
}

// Reader reads a recording capture by capture. Its memory use does not depend on the recording's
// length.
type Reader struct {
	Config Config
	// Duration is the recording's length, or 0 if the recorder did not close it.
	Duration time.Duration

	closer io.Closer
	file   file
	header *header

	numbers      [trackCount]uint64 // 0 = missing track
	littleEndian bool
	delay        [trackIMU]int64 // added to block times to align tracks
	imageSize    [trackIMU]int64 // size in bytes of an uncompressed image; 0 = variable

	// Read position: the next child of cluster, or of Segment.
	at          int64
	cluster     element // zero: between clusters
	clusterTime int64
	skipBefore  int64 // earlier blocks are skipped

	queue   [trackIMU][]block
	imu     []IMUSample
	damage  error // found while reading ahead; returned once the queues are empty
	scanned bool
	scratch []byte
}

// Open opens a recording.
func Open(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r, err := NewReader(f, st.Size())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	r.closer = f
	return r, nil
}

// NewReader reads a recording of size bytes from r.
func NewReader(r io.ReaderAt, size int64) (*Reader, error) {
	rd := &Reader{file: file{r, size}, scratch: make([]byte, 256<<10)}
	var err error
	if rd.header, err = rd.file.readHeader(); err != nil {
		return nil, err
	}
	var tracks [trackCount]*track
	if rd.Config, tracks, rd.littleEndian, err = rd.header.config(&rd.file); err != nil {
		return nil, err
	}
	for i, t := range tracks {
		if t != nil {
			rd.numbers[i] = t.number
		}
	}
	w, h := rd.Config.DepthMode.Size()
	rd.imageSize[trackDepth], rd.imageSize[trackIR] = int64(2*w*h), int64(2*w*h)
	w, h = rd.Config.ColorMode.Size()
	switch rd.Config.ColorFormat {
	case camera.NV12:
		rd.imageSize[trackColor] = int64(w * h * 3 / 2)
	case camera.YUY2:
		rd.imageSize[trackColor] = int64(2 * w * h)
	case camera.BGRA:
		rd.imageSize[trackColor] = int64(4 * w * h)
	}
	if d := int64(rd.Config.DepthDelay); d > 0 {
		rd.delay[trackColor] = d
	} else {
		rd.delay[trackDepth], rd.delay[trackIR] = -d, -d
	}
	if d := rd.header.duration * float64(rd.header.scale); d > 0 && d < math.MaxInt64/4 {
		rd.Duration = time.Duration(d)
	}
	rd.moveTo(rd.header.firstCluster, math.MinInt64)
	return rd, nil
}

// Close closes a recording opened by Open.
func (r *Reader) Close() error {
	if r.closer == nil {
		return nil
	}
	return r.closer.Close()
}

func (r *Reader) moveTo(offset, skipBefore int64) {
	r.at, r.cluster, r.clusterTime, r.skipBefore, r.damage = offset, element{}, 0, skipBefore, nil
	for i := range r.queue {
		r.queue[i] = r.queue[i][:0]
	}
	r.imu = r.imu[:0]
}

// SeekTo continues with the first capture at or after t, measured from the recording's start. It
// uses the recording's Cues or, if they are missing or wrong, scans the clusters.
func (r *Reader) SeekTo(t time.Duration) error {
	if t <= 0 {
		r.moveTo(r.header.firstCluster, math.MinInt64)
		return nil
	}
	if r.header.index == nil && !r.scanned {
		r.scan()
	}
	index := r.header.index
	i := sort.Search(len(index), func(i int) bool { return index[i].time > int64(t) })
	offset := r.header.firstCluster
	if i > 0 {
		offset = index[i-1].offset
	}
	e, err := r.file.header(offset, r.header.segment.end)
	if err == nil && e.id != idCluster {
		err = e.damage("Cues point here, but this is not a Cluster")
	}
	if err != nil {
		if r.scanned {
			return err
		}
		r.scan()
		return r.SeekTo(t)
	}
	r.moveTo(offset, int64(t))
	return nil
}

// scan builds the index from cluster headers, up to the first damaged header.
func (r *Reader) scan() {
	const gap = int64(500 * time.Millisecond)
	r.scanned, r.header.index = true, nil
	for at := r.header.firstCluster; len(r.header.index) < maxIndex; {
		e, err := r.file.sectionHeader(r.header, at)
		if err != nil {
			return
		}
		if e.id == idCluster {
			t, err := r.clusterStart(e)
			if err != nil {
				return
			}
			if n := len(r.header.index); n == 0 || t-r.header.index[n-1].time >= gap {
				r.header.index = append(r.header.index, indexEntry{t, e.start})
			}
			if e.unknown {
				if e.end, err = r.clusterEnd(e); err != nil {
					return
				}
			}
		}
		at = e.end
	}
}

// clusterStart returns a cluster's Timestamp.
func (r *Reader) clusterStart(c element) (int64, error) {
	limit := min(c.end, r.header.segment.end)
	for at := c.data; ; {
		e, err := r.file.child(at, limit)
		if err != nil {
			return 0, err
		}
		if e.id == idTimestamp {
			return r.timestamp(e)
		}
		at = e.end
	}
}

func (r *Reader) timestamp(e element) (int64, error) {
	v, err := r.file.uint(e)
	if err != nil {
		return 0, err
	}
	t, ok := r.header.nanoseconds(v)
	if !ok {
		return 0, e.damage("%d ticks is too late for any recording", v)
	}
	return t, nil
}

// clusterEnd returns the end of a cluster of unknown size: the next child of Segment.
func (r *Reader) clusterEnd(c element) (int64, error) {
	for at := c.data; ; {
		e, err := r.file.child(at, r.header.segment.end)
		if errors.Is(err, io.EOF) {
			return r.header.segment.end, nil
		}
		if err != nil {
			return 0, err
		}
		if topLevel(e.id) {
			return e.start, nil
		}
		at = e.end
	}
}

// Next reads the next capture into c, reusing its image buffers. Like libk4arecord it joins images
// of all tracks within half a frame period of the earliest. It returns io.EOF at the end. If the
// recording is damaged, it returns a *DamageError after the last capture before the damage; the next
// call skips the damaged part.
func (r *Reader) Next(c *Capture) error {
	half := int64(r.Config.period() / 2)
	var start int64
	for r.damage == nil {
		var missing bool
		start, missing = r.heads()
		if !missing || start != math.MaxInt64 && r.clusterTime-start >= half {
			break
		}
		r.damage = r.readBlock()
	}
	if start, _ = r.heads(); start == math.MaxInt64 {
		err := r.damage
		if !errors.Is(err, io.EOF) {
			r.damage = nil
		}
		return err
	}

	old := *c
	*c = Capture{IMU: r.imu}
	r.imu = nil
	for i := range r.queue {
		if len(r.queue[i]) == 0 || r.queue[i][0].time+r.delay[i]-start >= half {
			continue
		}
		b := r.queue[i][0]
		r.queue[i] = slices.Delete(r.queue[i], 0, 1)
		t := time.Duration(b.time) + r.Config.StartOffset
		var err error
		switch i {
		case trackColor:
			c.Color, c.ColorTime = slices.Grow(old.Color[:0], int(b.size))[:b.size], t
			err = r.file.readAt(c.Color, b.at)
		case trackDepth:
			c.DepthTime = t
			c.Depth, err = r.grey(old.Depth, b)
		case trackIR:
			c.IRTime = t
			c.IR, err = r.grey(old.IR, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// heads returns the earliest time of the tracks' next blocks, or MaxInt64 if there are none, and
// whether some track has none.
func (r *Reader) heads() (start int64, missing bool) {
	start = math.MaxInt64
	for i := range r.queue {
		switch {
		case len(r.queue[i]) > 0:
			start = min(start, r.queue[i][0].time+r.delay[i])
		case r.numbers[i] != 0:
			missing = true
		}
	}
	return start, missing
}

// grey reads a 16-bit image.
func (r *Reader) grey(dst []uint16, b block) ([]uint16, error) {
	dst = slices.Grow(dst[:0], int(b.size/2))[:b.size/2]
	for i := 0; i < len(dst); {
		chunk := r.scratch[:min(len(r.scratch), 2*(len(dst)-i))]
		if err := r.file.readAt(chunk, b.at+int64(2*i)); err != nil {
			return dst, err
		}
		out := dst[i : i+len(chunk)/2]
		if r.littleEndian {
			for j := range out {
				out[j] = binary.LittleEndian.Uint16(chunk[2*j:])
			}
		} else {
			for j := range out {
				out[j] = binary.BigEndian.Uint16(chunk[2*j:])
			}
		}
		i += len(out)
	}
	return dst, nil
}

// readBlock queues the next block of any track. On an error other than io.EOF it skips the damaged
// part.
func (r *Reader) readBlock() error {
	for {
		if r.cluster.id == 0 {
			if err := r.enterCluster(); err != nil {
				return err
			}
		}
		limit := min(r.cluster.end, r.header.segment.end)
		if r.at >= limit && r.cluster.end <= r.header.segment.end {
			r.at, r.cluster = limit, element{}
			continue
		}
		e, err := r.file.child(r.at, limit)
		if errors.Is(err, io.EOF) { // the cluster is longer than the file
			err = &DamageError{
				r.cluster.start,
				"Cluster",
				fmt.Errorf("the file ends %d bytes before the cluster does", r.cluster.end-limit),
			}
		}
		if err != nil {
			r.resync(r.at)
			return err
		}
		if topLevel(e.id) {
			c := r.cluster
			r.at, r.cluster = e.start, element{}
			if c.unknown {
				continue
			}
			return c.damage("%d bytes long, but %s begins inside it at byte %d", c.end-c.data, elementName(e.id),
				e.start)
		}
		r.at = e.end
		queued := false
		switch e.id {
		case idTimestamp:
			r.clusterTime, err = r.timestamp(e)
		case idSimpleBlock:
			queued, err = r.block(e)
		case idBlockGroup:
			err = r.file.children(e, func(e element) (err error) {
				if e.id == idBlock {
					queued, err = r.block(e)
				}
				return err
			})
		}
		if err != nil {
			r.resync(e.start)
			return err
		}
		if queued {
			return nil
		}
	}
}

// enterCluster finds the next cluster and checks its checksum.
func (r *Reader) enterCluster() error {
	for {
		e, err := r.file.sectionHeader(r.header, r.at)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				r.resync(r.at)
			}
			return err
		}
		if e.id != idCluster {
			if e.end > r.header.segment.end {
				r.resync(r.at)
				return e.damage("%d bytes long, but only %d are left%s", e.end-e.data, r.header.segment.end-e.data,
					r.file.truncated(r.header.segment.end))
			}
			r.at = e.end
			continue
		}
		if e.end <= r.header.segment.end && !e.unknown {
			if err := r.file.checksum(e, r.scratch); err != nil {
				r.at = e.end
				return err
			}
		}
		r.cluster, r.at = e, e.data
		return nil
	}
}

// resync skips damage at offset. It continues after the cluster if the cluster's end is plausible,
// else with the next cluster in the index, else at the end of the file.
func (r *Reader) resync(offset int64) {
	next := r.header.segment.end
	if r.cluster.id != 0 && !r.cluster.unknown && r.cluster.end <= r.header.segment.end {
		next = r.cluster.end
	} else {
		for _, e := range r.header.index {
			if e.offset > offset {
				next = e.offset
				break
			}
		}
	}
	r.at, r.cluster = next, element{}
}

// maxColor bounds a compressed image in bytes. It exceeds the largest uncompressed image.
const maxColor = 64 << 20

// block queues a block, or its IMU samples, if its track is known.
func (r *Reader) block(e element) (bool, error) {
	var buf [13]byte // track number, time, flags, lace count
	b := buf[:min(int64(len(buf)), e.end-e.data)]
	if err := r.file.readAt(b, e.data); err != nil {
		return false, err
	}
	number, n, _, ok := vint(b)
	if !ok || len(b) < n+3 {
		return false, e.damage("%d bytes are too few for a block", e.end-e.data)
	}
	i := slices.Index(r.numbers[:], number)
	if i < 0 || number == 0 { // 0 marks missing tracks
		return false, nil
	}
	t := r.clusterTime + int64(int16(binary.BigEndian.Uint16(b[n:])))*r.header.scale
	lacing := b[n+2] & 0x06
	at := e.data + int64(n+3)
	if i == trackIMU {
		if lacing != 0 && len(b) > n+3 {
			// Samples have a fixed size, so their number gives their position whatever the lacing.
			at = e.end - imuSize*(int64(b[n+3])+1)
		}
		return false, r.samples(e, at)
	}
	if lacing != 0 {
		return false, e.damage("several images in one block")
	}
	size := e.end - at
	if want := r.imageSize[i]; want != 0 && size != want {
		return false, e.damage("image of %d bytes, want %d", size, want)
	}
	if size == 0 || size > maxColor {
		return false, e.damage("image of %d bytes, want 1 to %d", size, maxColor)
	}
	if t+r.delay[i] < r.skipBefore {
		return false, nil
	}
	r.queue[i] = append(r.queue[i], block{t, at, size})
	return true, nil
}

const imuSize = 40

func (r *Reader) samples(e element, at int64) error {
	if (e.end-at)%imuSize != 0 || at < e.data {
		return e.damage("IMU samples of %d bytes, want a multiple of %d", e.end-at, imuSize)
	}
	for ; at < e.end; at += imuSize {
		var b [imuSize]byte
		if err := r.file.readAt(b[:], at); err != nil {
			return err
		}
		s := IMUSample{
			AccelTime: time.Duration(binary.LittleEndian.Uint64(b[0:])),
			GyroTime:  time.Duration(binary.LittleEndian.Uint64(b[20:])),
		}
		for i := range 3 {
			s.Accel[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[8+4*i:]))
			s.Gyro[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[28+4*i:]))
		}
		if int64(s.AccelTime) >= 0 && int64(s.AccelTime-r.Config.StartOffset) < r.skipBefore {
			continue
		}
		r.imu = append(r.imu, s)
	}
	return nil
}
