package signal

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
)

// Sender sends signalling messages. It may be used from several goroutines.
type Sender struct {
	conn *net.UDPConn

	mu   sync.Mutex
	key  []byte
	last uint64 // nonce
}

// NewSender opens a socket for signalling packets that are signed with key. It sends
// from the IPv4 address local; the zero Addr lets the system choose.
func NewSender(key []byte, local netip.Addr) (*Sender, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if local.IsValid() && !local.Is4() {
		return nil, fmt.Errorf("signalling is sent over IPv4, not from %s", local)
	}
	var from *net.UDPAddr
	if local.IsValid() {
		from = net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0))
	}
	conn, err := net.ListenUDP("udp4", from)
	if err != nil {
		return nil, fmt.Errorf("signalling socket: %w", err)
	}
	if err := ipv4.NewConn(conn).SetTOS(ToS); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("signalling socket: set ToS 0x%02x: %w", ToS, err)
	}
	return &Sender{key: key, conn: conn}, nil
}

func checkKey(key []byte) error {
	if len(key) < MinKey || len(key) > MaxKey {
		return fmt.Errorf("signalling key of %d bytes; want %d to %d", len(key), MinKey, MaxKey)
	}
	return nil
}

// SetKey makes the messages that follow be signed with key.
func (s *Sender) SetKey(key []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = key
	return nil
}

// Close closes the socket.
func (s *Sender) Close() error { return s.conn.Close() }

// Send sets the policy of destination at the edge whose signalling address is to,
// and returns the nonce that it used.
func (s *Sender) Send(to netip.AddrPort, destination netip.Addr, policy uint8) (nonce uint64, err error) {
	if !to.Addr().Unmap().Is4() {
		return 0, fmt.Errorf("signalling is sent over IPv4, not to %s", to)
	}
	// Numbering and writing go together, so that packets leave in the order of their
	// nonces and none is refused for having been overtaken here.
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last+1, uint64(time.Now().UnixNano()))
	b, err := Message{Destination: destination, Policy: policy, Nonce: s.last}.Append(make([]byte, 0, Size), s.key)
	if err != nil {
		return 0, err
	}
	if _, err := s.conn.WriteToUDPAddrPort(b, netip.AddrPortFrom(to.Addr().Unmap(), to.Port())); err != nil {
		return s.last, fmt.Errorf("signalling to %s: %w", to, err)
	}
	return s.last, nil
}

// Exceed makes the nonces that follow greater than nonce: what an edge accepted from
// an earlier run whose clock was ahead. A nonce that is not a time before the year 2262 is refused, since hardly any would be left above it.
func (s *Sender) Exceed(nonce uint64) error {
	if nonce > math.MaxInt64 {
		return fmt.Errorf("nonce %d is not a time: the edge's signalling key must be changed", nonce)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last, nonce)
	return nil
}
