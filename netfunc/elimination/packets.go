package elimination

import (
	"math"
	"math/bits"
	"math/rand/v2"

	"holocast/netfunc/pathset"
)

// packet is a packet n of which at least one replica came.
type packet struct {
	key     uint64
	base    int64              // when the first replica arrived, ns
	gap     [pathset.Max]int32 // T_i(n) − base, ns, of the paths in arrived
	arrived pathset.Set
	paths   pathset.Set // P when the first replica arrived
	settled bool
	counted bool // it is to earn rewards when settled
}

// packets remembers packets by key, in the order of their first arrivals:
//
//	oldest … settled … | next … waiting for replicas … | end
//
// They are in a ring; an open-addressed table with linear probing finds their places. Both
// grow with the number of packets, up to a limit.
type packets struct {
	ring              []packet // a power of two of them
	oldest, next, end uint64   // positions, ever growing
	table             []entry  // twice as many as ring
	shift             uint     // takes a hash to its entry
	seed              uint64   // odd: makes collisions of keys unforeseeable
	limit             int      // of len(ring)
}

// entry is the upper half of a key's hash, and the packet's place in the ring plus one in
// the lower half; 0 is free.
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

// full reports that nothing can be added without forgetting the oldest.
func (m *packets) full() bool { return m.end-m.oldest == uint64(m.limit) }

// find returns the packet with a key, nil where there is none.
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

// add remembers a packet that find did not find. There must be room.
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
	// Move up those behind whose probing would end at the gap.
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

// clear forgets all.
func (m *packets) clear() {
	m.oldest, m.next = m.end, m.end
	clear(m.table)
}

// resize changes the ring to size packets, at least as many as there are.
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
