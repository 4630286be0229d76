// Package livescan is the network protocols of LiveScan3D
// (https://github.com/MarekKowalski/LiveScan3D and its continuation for the Azure Kinect,
// https://github.com/BuildingVolumes/LiveScan3D): what its viewers and the clients at its
// cameras say to its server, over TCP. All numbers are little-endian.
//
// Sizes that a peer announces are limits to what is read; memory grows with what has
// arrived.
package livescan

import (
	"fmt"
	"io"

	"holocast/internal/catalog"
)

// Ports of LiveScan3D's server.
const (
	CapturePort = 48001 // cameras' clients connect here
	ViewerPort  = 48002 // viewers connect here
)

// MaxPoints is the most points of a cloud: the pixels of an Azure Kinect's largest colour
// picture.
const MaxPoints = catalog.MaxPoints

// bytesPerPoint: x y z int16 in millimetres, and red green blue.
const bytesPerPoint = 9

// ProtocolError says that a peer did not keep to the protocol.
type ProtocolError struct{ What string }

func (e *ProtocolError) Error() string { return "livescan: " + e.What }

func protocolError(format string, args ...any) error {
	return &ProtocolError{fmt.Sprintf(format, args...)}
}

// readStep is how much room is made for what has not arrived.
const readStep = 64 << 10

// readN reads n bytes into buf's room and returns them. It makes room as bytes arrive.
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
