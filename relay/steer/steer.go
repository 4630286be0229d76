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

// IDLength is the length of the connection IDs, bytes. Those that clients choose for their
// first packets are longer (RFC 9000 §7.2), so a packet tells which of both it has.
const IDLength = 7

// slots is how many sockets there may be, of all processes.
const slots = 256

// MaxSockets is how many sockets one process may have, so that there are slots for it and
// those that it replaces.
const MaxSockets = 32

// ErrOff is wrapped by the errors of what needs steering where it is off.
var ErrOff = errors.New("packets are not steered")

// ids makes the connection IDs of a slot.
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

// alone is a group of one socket, whose packets nobody steers.
func alone(addr string, tags tagger, why error) (*Group, error) {
	c, err := udpio.Listen(addr, nil)
	if err != nil {
		return nil, err
	}
	if err := attach(c, tags.filter(shares{rest: 1})); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("filter of the UDP socket: %w", err)
	}
	return &Group{sockets: []moqt.Socket{{Conn: c, IDs: ids{tagger: tags}}}, off: why, tags: tags}, nil
}

// Sockets are the group's own.
func (g *Group) Sockets() []moqt.Socket { return g.sockets }

// OnInitials has count called with how many first packets of connections came from an address, by the
// goroutines that read the sockets. It is for before that.
func (g *Group) OnInitials(count func(from netip.Addr, n int)) {
	for i := range g.sockets {
		g.sockets[i].Tap = func(from *net.UDPAddr, message []byte, datagrams int) {
			if len(message) > 5 && message[0]&0x80 != 0 && message[5] > IDLength { // RFC 8999 §5.1
				count(from.AddrPort().Addr(), datagrams)
			}
		}
	}
}

// Pass has the kernel pass a share of the first packets of connections: of addresses that have one of
// their own (IPv4, and /64s of IPv6), and of all others. 1 is all of them. Those of a connection pass
// together or not at all, until the next call. It takes no privilege.
func (g *Group) Pass(own map[netip.Prefix]float64, rest float64) error {
	var salt [4]byte
	_, _ = rand.Read(salt[:]) // never fails
	filter := g.tags.filter(shares{own, rest, binary.BigEndian.Uint32(salt[:])})
	for _, s := range g.sockets {
		if err := attach(s.Conn, filter); err != nil {
			return fmt.Errorf("filter of the UDP socket: %w", err)
		}
	}
	return nil
}

// Off tells why there is one socket whose packets are not steered; nil where they are.
func (g *Group) Off() error { return g.off }
