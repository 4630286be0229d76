package signal

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/ipv4"

	"holocast/netfunc/pathset"
)

// Sender sends signalling messages. It is safe for concurrent use.
type Sender struct {
	conn *net.UDPConn

	mu   sync.Mutex
	key  []byte
	last map[string]uint64 // nonces by edge name
}

// NewSender opens a socket for signalling packets signed with key. They are sent from the IPv4 address
// local, or from one that the system chooses if local is the zero Addr.
func NewSender(key []byte, local netip.Addr) (*Sender, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if local.IsValid() && !local.Is4() {
		return nil, fmt.Errorf("signalling needs an IPv4 source address, not %s", local)
	}
	var from *net.UDPAddr
	if local.IsValid() {
		from = net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0))
	}
	conn, err := net.ListenUDP("udp4", from)
	if err != nil {
		return nil, fmt.Errorf("open signalling socket: %w", err)
	}
	if err := ipv4.NewConn(conn).SetTOS(ToS); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("signalling socket: set ToS 0x%02x: %w", ToS, err)
	}
	return &Sender{key: key, conn: conn, last: map[string]uint64{}}, nil
}

func checkKey(key []byte) error {
	if len(key) < MinKey || len(key) > MaxKey {
		return fmt.Errorf("signalling key of %d bytes; want %d to %d", len(key), MinKey, MaxKey)
	}
	return nil
}

// SetKey changes the key that signs later messages. A different key has its own nonces.
func (s *Sender) SetKey(key []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !bytes.Equal(s.key, key) {
		clear(s.last)
	}
	s.key = key
	return nil
}

// Close closes the socket.
func (s *Sender) Close() error { return s.conn.Close() }

// Send sets the paths of destination at the edge with the signalling address to. It returns the nonce
// of the packet.
func (s *Sender) Send(edge string, to netip.AddrPort, destination netip.Addr, paths pathset.Set) (nonce uint64,
	err error,
) {
	if !to.Addr().Unmap().Is4() {
		return 0, fmt.Errorf("signalling needs an IPv4 destination, not %s", to)
	}
	// The lock covers numbering and writing, so that packets leave in nonce order and none is rejected
	// as replayed.
	s.mu.Lock()
	defer s.mu.Unlock()
	nonce = max(s.last[edge]+1, uint64(time.Now().UnixNano()))
	s.last[edge] = nonce
	b, err := Message{Destination: destination, Paths: paths, Nonce: nonce}.Append(make([]byte, 0, Size),
		EdgeKey(s.key, edge))
	if err != nil {
		return 0, err
	}
	if _, err := s.conn.WriteToUDPAddrPort(b, netip.AddrPortFrom(to.Addr().Unmap(), to.Port())); err != nil {
		return nonce, fmt.Errorf("signalling to %s: %w", to, err)
	}
	return nonce, nil
}

// MaxAhead limits how far an edge's nonces may be ahead of this clock.
const MaxAhead = 24 * time.Hour

// Exceed makes later nonces for an edge greater than nonce, which the edge accepted from an earlier
// run with a faster clock. It fails if nonce is more than MaxAhead ahead, since no controller with
// this key would have sent it.
func (s *Sender) Exceed(edge string, nonce uint64) error {
	if nonce > uint64(time.Now().Add(MaxAhead).UnixNano()) {
		return fmt.Errorf("nonce %d of edge %s is more than %s ahead; replace the signalling key", nonce, edge,
			MaxAhead)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[edge] = max(s.last[edge], nonce)
	return nil
}

// Forget drops the nonces of an edge that has left.
func (s *Sender) Forget(edge string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, edge)
}
