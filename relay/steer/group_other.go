//go:build !linux || !(amd64 || arm64)

package steer

import (
	"errors"
	"fmt"
	"os"

	"holocast/internal/moqt"
)

// Group is one process's socket for one address.
type Group struct {
	sockets []moqt.Socket
	off     error
	tags    tagger
}

var errSystem = fmt.Errorf("%w: it needs Linux on x86-64 or arm64", ErrOff)

// Listen opens a socket at addr ("host:port").
func Listen(addr string, _ int, key *[32]byte) (*Group, error) {
	return alone(addr, newTagger(key), errSystem)
}

// Join fails.
func Join(string, int, *[32]byte, []*os.File) (*Group, error) { return nil, errors.ErrUnsupported }

// Accept does nothing, since the only socket receives every packet.
func (g *Group) Accept() error { return nil }

// Files fails.
func (g *Group) Files() ([]*os.File, error) { return nil, g.off }

// Close closes the socket.
func (g *Group) Close() { _ = g.sockets[0].Conn.Close() }
