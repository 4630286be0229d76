package livescan

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/klauspost/compress/zstd"

	"holocast/internal/camera"
	"holocast/internal/pointcloud"
)

// Version is the LiveScan3D version of a client. Versions differ in request numbers and in the
// format of poses.
type Version int

// Versions.
const (
	Unknown     Version = iota
	KinectV2            // Marek Kowalski's
	AzureKinect         // BuildingVolumes'
)

func (v Version) String() string {
	return [...]string{"unknown", "Kinect v2", "Azure Kinect"}[v]
}

// Requests of the server.
const (
	requestCalibration   byte = 1  // both versions: find markers, then report the pose
	requestConfiguration byte = 11 // AzureKinect only; KinectV2 ignores it
)

// AppendProbe appends a request that distinguishes the versions: an AzureKinect client answers with
// a Configuration, and a KinectV2 client does not answer.
func AppendProbe(dst []byte) []byte { return append(dst, requestConfiguration) }

// AppendFrameRequest appends the request for the newest frame of a client.
func AppendFrameRequest(dst []byte, v Version) []byte {
	if v == AzureKinect {
		return append(dst, 5)
	}
	return append(dst, 4)
}

// AppendCalibrationRequest appends the request to find a marker and report the pose.
func AppendCalibrationRequest(dst []byte) []byte { return append(dst, requestCalibration) }

// Settings are sent to a client when it connects.
type Settings struct {
	// Min and Max bound the points sent by a client with a pose, in metres.
	Min, Max [3]float32
	// Markers are the IDs of the markers that define the studio's origin.
	Markers []int32
	// Compression is zstd's level; 0 means uncompressed.
	Compression int32
}

// AppendSettings appends the settings for a client of a version.
func AppendSettings(dst []byte, v Version, s Settings) []byte {
	number := func(b []byte, n int32) []byte {
		return binary.LittleEndian.AppendUint32(b,
			uint32(n))
	} //nolint:gosec // two's complement
	floats := func(b []byte, list ...float32) []byte {
		for _, f := range list {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
		}
		return b
	}
	body := floats(floats(nil, s.Min[:]...), s.Max[:]...)
	if v == KinectV2 {
		body = append(body, 0)    // no filter
		body = number(body, 10)   // number of neighbours
		body = floats(body, 0.01) // distance, metres
	}
	body = number(body, int32(len(s.Markers))) //nolint:gosec // a handful
	for _, id := range s.Markers {
		if v == AzureKinect {
			body = floats(body, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1)
		} else {
			body = floats(body, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0)
		}
		body = number(body, id)
	}
	if v == KinectV2 {
		body = append(body, 0) // all points, not only bodies
		body = number(body, s.Compression)
		dst = append(dst, 2)
	} else {
		body = number(body, s.Compression)
		body = number(append(body, 1), -5)   // automatic exposure; manual value
		body = number(append(body, 1), 4500) // automatic white balance; manual value, kelvin
		body = number(body, 0)               // points, not images
		body = number(body, 0)               // no pose file
		body = append(body, 1)               // show the image at the client
		dst = append(dst, 3)
	}
	return append(number(dst, int32(len(body))), body...) //nolint:gosec // about 500 bytes
}

// Messages of a client, by first byte.
const (
	msgCaptured       = 0
	msgCalibrated     = 1
	msgStoredFrame    = 2
	msgLastFrame      = 3
	msgConfiguration  = 4 // AzureKinect only, as the following
	msgCameraClosed   = 5
	msgCameraStarted  = 6
	msgFolderMade     = 7
	msgPostSynced     = 9
	msgPostRecorded   = 10
	msgPreRecorded    = 11
	configurationSize = 42
)

// Message is a client's message. At most one of Cloud, Calibration and Configuration is set. None
// is set for messages that this package ignores.
type Message struct {
	// Cloud is a frame. The next call of Next overwrites its slices. A client with a pose sends
	// points in studio space.
	Cloud         *pointcloud.Points
	Calibration   *Calibration
	Configuration *Configuration
}

// Calibration is a client's pose.
type Calibration struct {
	Marker int32 // used to find it; -1 = none
	Pose   camera.Transform
}

// Known reports whether the client has a pose. A client without a pose reports the identity.
func (c *Calibration) Known() bool { return c.Pose != camera.Identity }

// Configuration describes an Azure Kinect client.
type Configuration struct {
	Serial, Name string // of the camera; the user sets Name
	Index        int    // assigned by the server
}

// Limits of a decompressed frame: maxRatio times the received size, but at least smallSize, because
// small clouds may compress better.
const (
	maxRatio  = 64
	smallSize = 1 << 20
)

// maxBodies is the maximum size in bytes of the skeletons after the points: six skeletons of 25
// joints, 28 bytes per joint.
const maxBodies = 4 + 6*(5+25*28)

// maxFrame is the maximum size of an uncompressed frame in bytes.
const maxFrame = 4 + bytesPerPoint*MaxPoints + maxBodies

// Messages reads the messages of a client.
type Messages struct {
	r       *bufio.Reader
	version Version
	zstd    *zstd.Decoder
	payload []byte
	raw     []byte
	cloud   pointcloud.Points
}

// NewMessages reads messages from r. The caller must close it.
func NewMessages(r io.Reader) (*Messages, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxFrame),
		zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, err
	}
	return &Messages{r: bufio.NewReaderSize(r, readStep), zstd: d}, nil
}

// Close frees the decoder.
func (m *Messages) Close() { m.zstd.Close() }

// Version returns the version inferred from the messages so far.
func (m *Messages) Version() Version { return m.version }

// Assume sets the version of a client that did not reveal it.
func (m *Messages) Assume(v Version) { m.version = v }

// Wait waits for the first byte of a message.
func (m *Messages) Wait() error {
	_, err := m.r.Peek(1)
	return err
}

// Next reads a message. It returns io.EOF if the connection ended between messages,
// io.ErrUnexpectedEOF if it ended within one, and a *ProtocolError for invalid data.
func (m *Messages) Next() (Message, error) {
	kind, err := m.r.ReadByte()
	if err != nil {
		return Message{}, err
	}
	if kind >= msgConfiguration && kind <= msgPreRecorded {
		m.version = AzureKinect
	}
	switch kind {
	case msgCaptured, msgPostRecorded, msgPreRecorded:
		return Message{}, nil
	case msgCameraClosed, msgCameraStarted, msgFolderMade, msgPostSynced:
		_, err := m.read(1)
		return Message{}, err
	case msgCalibrated:
		c, err := m.calibration()
		return Message{Calibration: c}, err
	case msgConfiguration:
		b, err := m.read(configurationSize)
		if err != nil {
			return Message{}, err
		}
		return Message{Configuration: parseConfiguration(b)}, nil
	case msgStoredFrame, msgLastFrame:
		ok, err := m.frame(kind)
		if err != nil || !ok {
			return Message{}, err
		}
		return Message{Cloud: &m.cloud}, nil
	}
	return Message{}, protocolError("message %d is unknown", kind)
}

func (m *Messages) read(n int) (b []byte, err error) {
	m.payload, err = readN(m.r, m.payload, n)
	return m.payload, err
}

// calibration reads a pose: the marker, then for KinectV2 a rotation R and a translation t in
// metres, which map a camera point p to R·(p+t); for AzureKinect a 4×4 matrix, and the marker's
// matrix.
func (m *Messages) calibration() (*Calibration, error) {
	b, err := m.read(4 + 12*4)
	if err != nil {
		return nil, err
	}
	c := &Calibration{Marker: int32(binary.LittleEndian.Uint32(b))} //nolint:gosec // two's complement
	var f [12]float64
	for i := range f {
		f[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4+4*i:])))
	}
	azure := camera.Transform{
		R: [9]float64{f[0], f[1], f[2], f[4], f[5], f[6], f[8], f[9], f[10]},
		T: [3]float64{1000 * f[3], 1000 * f[7], 1000 * f[11]},
	}
	if m.version == AzureKinect || m.version == Unknown && azure.Validate() == nil {
		m.version, c.Pose = AzureKinect, azure
		_, err = m.read((4 + 16) * 4) // the matrix's last row and the marker's matrix
	} else {
		m.version, c.Pose.R = KinectV2, [9]float64(f[:9])
		rotation := camera.Transform{R: c.Pose.R}
		c.Pose.T = rotation.Apply([3]float64{1000 * f[9], 1000 * f[10], 1000 * f[11]})
	}
	if err != nil {
		return nil, err
	}
	if err := c.Pose.Validate(); err != nil {
		return nil, protocolError("invalid client pose: %v", err)
	}
	return c, nil
}

func parseConfiguration(b []byte) *Configuration {
	text := func(b []byte) string {
		printable := bytes.Map(func(r rune) rune {
			if r < ' ' || r > '~' {
				return -1
			}
			return r
		}, b)
		return string(bytes.TrimSpace(printable))
	}
	return &Configuration{Serial: text(b[6:19]), Name: text(b[19:39]), Index: int(b[39])}
}

// frame reads a frame into m.cloud. It returns false and no error if the client has none.
func (m *Messages) frame(kind byte) (bool, error) {
	b, err := m.read(4)
	if err != nil {
		return false, err
	}
	n := int(int32(binary.LittleEndian.Uint32(b))) //nolint:gosec // two's complement
	if n == -1 && kind == msgStoredFrame {
		return false, nil // no stored frame
	}
	if b, err = m.read(4); err != nil {
		return false, err
	}
	compressed := binary.LittleEndian.Uint32(b)
	switch {
	case n <= 0:
		return false, nil // the camera is restarting
	case n < 4 || n > maxFrame:
		return false, protocolError("a frame announces %d bytes, want 4 to %d", n, maxFrame)
	case compressed > 1:
		return false, protocolError("a frame's compression is %d, want 0 or 1", compressed)
	}
	if b, err = m.read(n); err != nil {
		return false, err
	}
	if compressed == 1 {
		if b, err = m.decompress(b); err != nil {
			return false, err
		}
	}
	return true, m.points(b)
}

// decompress decompresses a frame. It allocates memory in proportion to the received size, not to the
// announced size.
func (m *Messages) decompress(b []byte) ([]byte, error) {
	limit := min(maxFrame, max(smallSize, maxRatio*len(b)))
	for size := max(cap(m.raw), min(limit, 4*len(b)+readStep)); ; size = min(limit, 2*size) {
		if cap(m.raw) < size {
			m.raw = make([]byte, 0, size)
		}
		raw, err := m.zstd.DecodeAll(b, m.raw[:0])
		switch {
		case err == nil:
			return raw, nil
		case !errors.Is(err, zstd.ErrDecoderSizeExceeded):
			return nil, protocolError("a frame cannot be decompressed: %v", err)
		case size >= limit:
			return nil, protocolError("a frame of %d bytes exceeds %d bytes when decompressed", len(b), limit)
		}
	}
}

// points reads the number of points as int32, then red green blue and x y z (int16) of each point.
// It ignores the skeletons that follow.
func (m *Messages) points(b []byte) error {
	if len(b) < 4 {
		return protocolError("a frame has %d bytes, want at least 4", len(b))
	}
	n := int(int32(binary.LittleEndian.Uint32(b))) //nolint:gosec // two's complement
	if n < 0 || n > MaxPoints || len(b)-4 < bytesPerPoint*n {
		return protocolError("a frame of %d bytes announces %d points of %d bytes", len(b), n, bytesPerPoint)
	}
	c := &m.cloud
	c.XYZ, c.RGB = slices.Grow(c.XYZ[:0], 3*n)[:3*n], slices.Grow(c.RGB[:0], 3*n)[:3*n]
	for i := range n {
		p := b[4+bytesPerPoint*i:][:bytesPerPoint]
		copy(c.RGB[3*i:3*i+3], p)
		for k := range 3 {
			c.XYZ[3*i+k] = int16(binary.LittleEndian.Uint16(p[3+2*k:])) //nolint:gosec // two's complement
		}
	}
	return nil
}

// String describes the client for logs.
func (c *Configuration) String() string { return fmt.Sprintf("%s (%q)", c.Serial, c.Name) }
