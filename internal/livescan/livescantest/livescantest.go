// Package livescantest implements a LiveScan3D client for tests.
package livescantest

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"

	"github.com/klauspost/compress/zstd"

	"holocast/internal/livescan"
	"holocast/internal/pointcloud"
)

// Client answers a server like a client at a camera.
type Client struct {
	Version  livescan.Version
	Compress bool
	// Matrix is the client's pose in its own format: for KinectV2 a rotation and a translation, for
	// AzureKinect the three rows of a matrix. It is nil for a client without a pose.
	Matrix *[12]float32
	// Frame returns the next requested frame. If Frame is nil, the client does not answer requests for
	// frames.
	Frame func() *pointcloud.Points

	// Numbers of requests received.
	Settings, Calibrations, Frames int
}

// AppendFrame appends a frame message, compressed or not.
func AppendFrame(dst []byte, p *pointcloud.Points, compress bool) []byte {
	n := len(p.XYZ) / 3
	body := binary.LittleEndian.AppendUint32(nil, uint32(n)) //nolint:gosec // small in tests
	for i := range n {
		body = append(body, p.RGB[3*i:3*i+3]...)
		for _, v := range p.XYZ[3*i : 3*i+3] {
			body = binary.LittleEndian.AppendUint16(body, uint16(v)) //nolint:gosec // two's complement
		}
	}
	body = append(body, 0, 0, 0, 0) // no skeletons
	compressed := uint32(0)
	if compress {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			panic(err) // the options are constant
		}
		body, compressed = e.EncodeAll(body, nil), 1
	}
	dst = binary.LittleEndian.AppendUint32(append(dst, 3), uint32(len(body))) //nolint:gosec // small in tests
	return append(binary.LittleEndian.AppendUint32(dst, compressed), body...)
}

// AppendCalibration appends a pose message.
func AppendCalibration(dst []byte, v livescan.Version, marker int32, matrix [12]float32) []byte {
	dst = binary.LittleEndian.AppendUint32(append(dst, 1), uint32(marker)) //nolint:gosec // two's complement
	list := matrix[:]
	if v == livescan.AzureKinect {
		list = append(append([]float32{}, list...), 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1)
	}
	for _, f := range list {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(f))
	}
	return dst
}

// AppendConfiguration appends an Azure Kinect client's Configuration.
func AppendConfiguration(dst []byte, serial, name string) []byte {
	b := make([]byte, 43)
	b[0] = 4
	copy(b[7:20], serial)
	copy(b[20:40], fmt.Sprintf("%-20s", name))
	return append(dst, b...)
}

// Run answers the server until the connection ends, which is not an error.
func (c *Client) Run(conn net.Conn) error {
	if c.Matrix != nil {
		if _, err := conn.Write(AppendCalibration(nil, c.Version, 0, *c.Matrix)); err != nil {
			return err
		}
	}
	azure := c.Version == livescan.AzureKinect
	settings, frame := byte(2), byte(4)
	if azure {
		settings, frame = 3, 5
	}
	for {
		var b [1]byte
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return nil //nolint:nilerr // closed by the server
		}
		var answer []byte
		switch {
		case b[0] == 1:
			c.Calibrations++
			c.Matrix = &[12]float32{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2}
			if !azure {
				c.Matrix = &[12]float32{1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 2}
			}
			answer = AppendCalibration(nil, c.Version, 0, *c.Matrix)
		case b[0] == settings:
			c.Settings++
			var head [4]byte
			if _, err := io.ReadFull(conn, head[:]); err != nil {
				return err
			}
			if _, err := io.CopyN(io.Discard, conn, int64(binary.LittleEndian.Uint32(head[:]))); err != nil {
				return err
			}
			if azure && c.Matrix == nil {
				answer = AppendCalibration(nil, c.Version, -1, [12]float32{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0})
			}
		case b[0] == frame && c.Frame != nil:
			c.Frames++
			answer = AppendFrame(nil, c.Frame(), c.Compress)
		case b[0] == 11 && azure:
			answer = AppendConfiguration(nil, "000841194412", "left")
		}
		if _, err := conn.Write(answer); err != nil {
			return nil //nolint:nilerr // closed by the server
		}
	}
}
