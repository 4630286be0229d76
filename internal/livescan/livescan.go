// Package livescan implements the TCP protocols between LiveScan3D's server, its viewers and the
// clients at its cameras (https://github.com/MarekKowalski/LiveScan3D, and
// https://github.com/BuildingVolumes/LiveScan3D for the Azure Kinect). Numbers are little-endian.
//
// Sizes announced by a peer are checked against limits; memory grows only with received data.
package livescan

import (
	"fmt"
	"io"

	"holocast/internal/catalog"
)

// Ports of LiveScan3D's server.
const (
	CapturePort = 48001 // for cameras' clients
	ViewerPort  = 48002 // for viewers
)

// MaxPoints is the maximum number of points per cloud: the pixels of an Azure Kinect's largest
// colour image.
const MaxPoints = catalog.MaxPoints

// bytesPerPoint is the size of x y z as int16 in millimetres, and red green blue.
const bytesPerPoint = 9

// ProtocolError reports a violation of the protocol by the peer.
type ProtocolError struct{ What string }

func (e *ProtocolError) Error() string { return "livescan: " + e.What }

func protocolError(format string, args ...any) error {
	return &ProtocolError{fmt.Sprintf(format, args...)}
}

// readStep bounds memory allocated ahead of received data.
const readStep = 64 << 10

// readN reads n bytes into buf, which it grows as bytes arrive.
func readN(r io.Reader, buf []byte, n int) ([]byte, error) {
	buf = buf[:0]
	for len(buf) < n {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(n, max(readStep, 2*len(buf))))
			copy(grown, buf)
			buf = grown
		}
		k, err := io.ReadFull(r, buf[len(buf):min(n, cap(buf))])
		buf = buf[:len(buf)+k]
		if err != nil {
			if err == io.EOF && n > 0 {
				err = io.ErrUnexpectedEOF
			}
			return buf, err
		}
	}
	return buf, nil
}
