package quicext

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"
)

// kernel is a Sender in Go. Like a program in the kernel, it seals packets, sends them from the
// server's socket and registers them later.
type kernel struct {
	t    *testing.T
	conn *net.UDPConn

	mu         sync.Mutex
	state      State
	states     []State // one per key phase
	held       bool
	mute       bool // does not reserve a block
	generation uint64
	next, end  int64 // of the block
	ring       []Packet
	unsent     int64 // bytes not yet registered
	budget     Budget

	used        map[int64]bool
	acked, lost map[int64]bool
	blocks      int
}

const blockSize = 32

func newKernel(t *testing.T, conn *net.UDPConn) *kernel {
	return &kernel{t: t, conn: conn, used: map[int64]bool{}, acked: map[int64]bool{}, lost: map[int64]bool{}}
}

func (k *kernel) Changed(s State) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.states) == 0 || s.KeyPhase != k.states[len(k.states)-1].KeyPhase {
		k.states = append(k.states, s)
	}
	k.state = s
}

func (k *kernel) Drain(p Port) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := p.Sent(k.ring); err != nil {
		k.t.Error(err)
	}
	for _, r := range k.ring {
		k.unsent -= int64(r.Size)
	}
	k.ring = k.ring[:0]
	due := k.state.KeyUpdateDue
	if k.held == due {
		k.held = !due
		p.HoldKeyUpdates(k.held)
	}
	if k.next < k.end && (due || k.mute || p.Overtaken() || k.generation != k.state.Generation) {
		if err := p.Release(k.next, int(k.end-k.next)); err != nil {
			k.t.Error(err)
		}
		k.end = k.next
	}
	if k.next == k.end && !due && !k.mute {
		first, generation, err := p.Reserve(blockSize)
		if err != nil {
			k.t.Error(err)
			return
		}
		if generation != k.state.Generation {
			k.t.Errorf("block of generation %d, state of %d", generation, k.state.Generation)
		}
		k.next, k.end, k.generation = first, first+blockSize, generation
		k.blocks++
	}
}

func (k *kernel) Report(r Report) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range r.Acked {
		if k.acked[n] || !k.used[n] {
			k.t.Errorf("packet %d acknowledged; acknowledged before: %v, sent: %v", n, k.acked[n], k.used[n])
		}
		k.acked[n] = true
		delete(k.lost, n) // late, not lost
	}
	for _, n := range r.Lost {
		if k.acked[n] || k.lost[n] || !k.used[n] {
			k.t.Errorf(
				"packet %d lost; acknowledged before: %v, lost: %v, sent: %v",
				n,
				k.acked[n],
				k.lost[n],
				k.used[n],
			)
		}
		k.lost[n] = true
	}
	k.budget = r.Budget
}

// send sends a datagram if it has a packet number and budget, and registers it after lag. If lag is
// negative, it registers the packet before sending it.
func (k *kernel) send(payload []byte, lag time.Duration) bool {
	k.mu.Lock()
	size := int64(len(payload)) + 22 + int64(len(k.state.DestConnID))
	if k.next == k.end || k.generation != k.state.Generation || k.budget.Bytes < k.unsent+size {
		k.mu.Unlock()
		return false
	}
	number := k.next
	k.next++
	packet := seal(&k.state, number, payload)
	r := Packet{Number: number, Size: len(packet), Sent: time.Now(), ECN: 0}
	k.unsent += int64(len(packet))
	k.used[number] = true
	remote := net.UDPAddrFromAddrPort(k.state.Remote)
	if lag < 0 {
		k.ring = append(k.ring, r)
	}
	k.mu.Unlock()
	_, err := k.conn.WriteToUDP(packet, remote)
	if lag >= 0 {
		time.Sleep(lag)
		k.mu.Lock()
		k.ring = append(k.ring, r)
		k.mu.Unlock()
	}
	if err != nil {
		k.t.Error(err)
	}
	return true
}

// finish releases the block and waits until all packets were reported and nothing is in flight.
func (k *kernel) finish(t *testing.T, h Handle) {
	t.Helper()
	k.mu.Lock()
	k.mute = true
	k.mu.Unlock()
	eventually(t, "reports of all packets, and nothing in flight", func() bool {
		h.Wake()
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.ring) == 0 && len(k.acked)+len(k.lost) == len(k.used) && h.Budget().InFlight == 0
	})
}

func (k *kernel) unregistered() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.unsent
}

// seal creates a short-header packet with one DATAGRAM frame (RFC 9001, Section 5).
func seal(s *State, number int64, payload []byte) []byte {
	header := append([]byte{0x43 | byte(s.KeyPhase&1)<<2}, s.DestConnID...)
	pnAt := len(header)
	header = binary.BigEndian.AppendUint32(header, uint32(number))
	frame := append([]byte{0x30}, payload...)
	p := gcm(s.Tx.Key).Seal(header, nonce(s.Tx.IV, number), frame, header)
	protect(s.Tx.HP, p, pnAt, 4)
	return p
}

// open decrypts a short-header packet received after packet number largest. phase is the key phase
// in its header.
func open(keys Keys, packet []byte, pnAt int, largest int64) (number int64, phase byte, payload []byte, err error) {
	p := append([]byte(nil), packet...)
	block, err := aes.NewCipher(keys.HP)
	if err != nil {
		panic(err)
	}
	var mask [16]byte
	block.Encrypt(mask[:], p[pnAt+4:pnAt+20])
	p[0] ^= mask[0] & 0x1f
	n := int(p[0]&3) + 1
	var truncated int64
	for i := range n {
		p[pnAt+i] ^= mask[1+i]
		truncated = truncated<<8 | int64(p[pnAt+i])
	}
	// RFC 9000, Appendix A.3
	window := int64(1) << (8 * n)
	number = (largest+1)&^(window-1) | truncated
	switch {
	case number <= largest+1-window/2:
		number += window
	case number > largest+1+window/2 && number >= window:
		number -= window
	}
	payload, err = gcm(keys.Key).Open(nil, nonce(keys.IV, number), p[pnAt+n:], p[:pnAt+n])
	return number, p[0] >> 2 & 1, payload, err
}

func protect(hp, p []byte, pnAt, n int) {
	block, err := aes.NewCipher(hp)
	if err != nil {
		panic(err)
	}
	var mask [16]byte
	block.Encrypt(mask[:], p[pnAt+4:pnAt+20])
	p[0] ^= mask[0] & 0x1f
	for i := range n {
		p[pnAt+i] ^= mask[1+i]
	}
}

func gcm(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	a, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return a
}

func nonce(iv []byte, number int64) []byte {
	n := append([]byte(nil), iv...)
	binary.BigEndian.PutUint64(n[4:], binary.BigEndian.Uint64(n[4:])^uint64(number))
	return n
}
