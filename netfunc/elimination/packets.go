package elimination

import (
	"math"
	"math/bits"
	"math/rand/v2"

	"holocast/netfunc/pathset"
)

// packet is a packet with at least one replica that has arrived.
type packet struct {
	key     uint64
	base    int64              // arrival of the first replica, ns
	gap     [pathset.Max]int32 // T_i(n) − base, ns, for paths in arrived
	arrived pathset.Set
	paths   pathset.Set // P at the arrival of the first replica
	settled bool
	counted bool // enters the window when settled
}

// packets remembers packets by key, in the order of their first arrivals:
//
//	oldest … settled … | next … waiting for replicas … | end
//
// Packets are in a ring, indexed by an open-addressed hash table with linear probing. Both grow
// with the number of packets, up to a limit.
type packets struct {
	ring              []packet // a power of two
	oldest, next, end uint64   // positions, never reduced
	table             []entry  // twice the size of ring
	shift             uint     // maps a hash to its table entry
	seed              uint64   // odd; makes collisions unpredictable
	limit             int      // maximum of len(ring)
}

// entry holds the upper half of a key's hash and, in its lower half, the packet's ring index plus one.
// It is 0 if free.
type entry uint64

const leastPackets = 1 << 10

func newPackets(capacity int) packets {
	limit := 1
	for limit < capacity {
		limit *= 2
	}
	m := packets{seed: rand.Uint64() | 1, limit: limit}
	m.resize(min(limit, leastPackets))
	return m
}

func (m *packets) at(position uint64) *packet { return &m.ring[position&uint64(len(m.ring)-1)] }

// full reports whether adding a packet requires forgetting the oldest.
func (m *packets) full() bool { return m.end-m.oldest == uint64(m.limit) }

// find returns the packet of a key, or nil.
func (m *packets) find(key uint64) *packet {
	hash := key * m.seed
	table := m.table
	mask := uint64(len(table) - 1)
	for i := hash >> m.shift; ; i++ {
		e := table[i&mask]
		if e == 0 {
			return nil
		}
		if uint64(e)>>32 == hash>>32 {
			if p := &m.ring[uint32(e)-1]; p.key == key {
				return p
			}
		}
	}
}

// add adds a packet that find did not find. There must be room for it.
func (m *packets) add(key uint64) *packet {
	if m.end-m.oldest == uint64(len(m.ring)) {
		m.resize(2 * len(m.ring))
	}
	m.insert(key, m.end&uint64(len(m.ring)-1))
	p := m.at(m.end)
	m.end++
	p.key = key
	return p
}

func (m *packets) insert(key, place uint64) {
	hash := key * m.seed
	mask := uint64(len(m.table) - 1)
	i := hash >> m.shift
	for m.table[i&mask] != 0 {
		i++
	}
	m.table[i&mask] = entry(hash&^math.MaxUint32 | (place + 1))
}

// forget removes the oldest packet.
func (m *packets) forget() {
	place := m.oldest & uint64(len(m.ring)-1)
	m.oldest++
	hash := m.ring[place].key * m.seed
	mask := uint64(len(m.table) - 1)
	want := entry(hash&^math.MaxUint32 | (place + 1))
	i := hash >> m.shift
	for m.table[i&mask] != want {
		i++
	}
	// Move up the following entries that probing would otherwise not reach because of the gap.
	for j := i + 1; ; j++ {
		e := m.table[j&mask]
		if e == 0 {
			break
		}
		home := uint64(e) >> m.shift
		if (j-home)&mask >= (j-i)&mask {
			m.table[i&mask] = e
			i = j
		}
	}
	m.table[i&mask] = 0
}

// clear forgets everything.
func (m *packets) clear() {
	m.oldest, m.next = m.end, m.end
	clear(m.table)
}

// resize changes the ring's size to size packets, which must be at least the current number.
func (m *packets) resize(size int) {
	old := *m
	m.ring = make([]packet, size)
	m.table = make([]entry, 2*size)
	m.shift = 64 - uint(bits.Len(uint(len(m.table)-1)))
	for n := m.oldest; n != m.end; n++ {
		p := m.at(n)
		*p = *old.at(n)
		m.insert(p.key, n&uint64(size-1))
	}
}
