package steer

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/quic-go/quic-go"

	"holocast/internal/moqt"
	"holocast/internal/udpio"
)

// IDLength is the length of the relay's connection IDs in bytes. IDs chosen by clients for their
// first packets are longer (RFC 9000 §7.2), which distinguishes the two.
const IDLength = 7

// slots is the maximum number of sockets of all processes.
const slots = 256

// MaxSockets is the maximum number of sockets per process. It leaves slots for the processes being
// replaced.
const MaxSockets = 32

// ErrOff is wrapped by the errors of functions that need steering while it is off.
var ErrOff = errors.New("packet steering is off")

// ids generates the connection IDs of a slot.
type ids struct {
	slot byte
	tagger
}

func (g ids) GenerateConnectionID() (quic.ConnectionID, error) {
	var b [IDLength - 1]byte
	if _, err := rand.Read(b[1:]); err != nil {
		return quic.ConnectionID{}, err
	}
	b[0] = g.slot
	return quic.ConnectionIDFromBytes(append(b[:], g.tag(b))), nil
}

func (ids) ConnectionIDLen() int { return IDLength }

// alone returns a group with one socket and no steering.
func alone(addr string, tags tagger, why error) (*Group, error) {
	c, err := udpio.Listen(addr, nil)
	if err != nil {
		return nil, err
	}
	if err := attach(c, tags.filter(shares{rest: 1})); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("set filter of UDP socket: %w", err)
	}
	return &Group{sockets: []moqt.Socket{{Conn: c, IDs: ids{tagger: tags}}}, off: why, tags: tags}, nil
}

// Sockets returns the group's sockets.
func (g *Group) Sockets() []moqt.Socket { return g.sockets }

// OnInitials sets a callback for the first packets of connections. The goroutines that read the sockets
// call it with an address and the number of such packets from it. Call OnInitials before they start.
func (g *Group) OnInitials(count func(from netip.Addr, n int)) {
	for i := range g.sockets {
		g.sockets[i].Tap = func(from *net.UDPAddr, message []byte, datagrams int) {
			if len(message) > 5 && message[0]&0x80 != 0 && message[5] > IDLength { // RFC 8999 §5.1
				count(from.AddrPort().Addr(), datagrams)
			}
		}
	}
}

// Pass makes the kernel pass a share (0 to 1) of the connections' first packets: own for addresses with
// their own share (IPv4 addresses and IPv6 /64s), rest for all others. Until the next call, either all
// packets of a connection pass or none. Pass needs no privileges.
func (g *Group) Pass(own map[netip.Prefix]float64, rest float64) error {
	var salt [4]byte
	_, _ = rand.Read(salt[:]) // never fails
	filter := g.tags.filter(shares{own, rest, binary.BigEndian.Uint32(salt[:])})
	for _, s := range g.sockets {
		if err := attach(s.Conn, filter); err != nil {
			return fmt.Errorf("set filter of UDP socket: %w", err)
		}
	}
	return nil
}

// Off returns why packets are not steered, or nil if they are.
func (g *Group) Off() error { return g.off }
