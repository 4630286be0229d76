// Package jitter plays packets of sound in step with pictures. A [Buffer] decides, packet by packet,
// what plays next; a [Voice] decodes, conceals and stretches, and yields blocks at the pace of the
// output device. The package does no I/O and reads no clock.
//
// Decisions use integers only. The TypeScript and Rust clients make the same decisions;
// testdata/vectors.json checks this.
package jitter

import "slices"

// Limits of a Buffer, in µs unless noted.
const (
	farOff      = 10_000_000 // largest distance of a timestamp from the clock
	maxPackets  = 128        // waiting packets
	maxTarget   = 1_000_000  // largest own target delay
	tolerance   = 5_000      // error of the delay below which nothing is stretched
	jumpFrom    = 200_000    // error of the delay from which sound jumps instead of stretching
	headroom    = 5_000      // added to the percentile of arrivals
	early       = 20_000     // added while fewer than firstCount packets have arrived
	firstCount  = 32
	window      = 512    // arrivals that determine the delay
	surplus     = 50_000 // over the target, from which a packet belongs to a stall
	apart       = 100    // arrivals between two stalls
	recurrence  = 1000   // arrivals within which they recur
	maxConceal  = 100_000
	endAfter    = 1_000_000 // of concealment without a waiting packet
	slowest     = 20        // a stretch by n samples is followed by at least 20 n samples without
	hurried     = 2         // the same while sound hurries, from an error of hurryFrom to one of hurryTo
	hurryFrom   = 50_000
	hurryTo     = 20_000
	maxDelayed  = 80_000 // pictures wait this long for sound
	maxBehind   = 10_000 // how far sound that is waited for may be behind pictures that waited
	sampleRate  = 48_000
	missedSlots = 64
	setBack     = 16 // packets older than the played ones, in a row and not in a burst, after a clock was set back
)

// Packet is one packet of sound.
type Packet struct {
	Timestamp int64 // capture time of its first sample, µs on the session's clock
	Data      []byte
	Repeated  bool // received as the copy carried by the next packet
}

// Kind tells how the next samples are produced.
type Kind string

// Kinds of decisions.
const (
	Play    Kind = "play"    // decode Decision.Packet
	Correct Kind = "correct" // decode the in-band error correction of Decision.Packet, the successor
	Conceal Kind = "conceal" // extrapolate
	Silence Kind = "silence"
)

// Decision is the content of the next samples of the output.
type Decision struct {
	Kind    Kind
	Packet  Packet // of Play and Correct
	Samples int    // per channel, at 48 kHz
	Jump    bool   // the samples do not continue the previous ones
	// Stretch asks for a splice in the packet: 1 to lengthen, -1 to shorten, 0 for none. The caller
	// reports the result to Stretched.
	Stretch int
}

// Stats counts packets and decisions.
type Stats struct {
	Received   int   `json:"received"`     // packets, without copies
	Played     int   `json:"played"`       // packets, including copies
	Repeated   int   `json:"repeated"`     // packets played from the copy in the next packet
	Corrected  int64 `json:"corrected_us"` // by in-band error correction
	Concealed  int64 `json:"concealed_us"`
	Late       int   `json:"late"`       // packets that arrived after their time
	Far        int   `json:"far"`        // packets refused: over 10 s from the clock
	Overflowed int   `json:"overflowed"` // packets dropped: too many waiting
	Jumps      int   `json:"jumps"`      // corrections of the delay without stretching
}

// Buffer orders the packets of one track and decides when each plays. It is not safe for concurrent
// use.
type Buffer struct {
	packet int64 // duration of a packet, µs
	lead   int64 // from a decision to its sound, µs

	waiting []Packet // by timestamp
	arrived int64    // time of the newest arrival
	bunched bool     // it came together with the one before
	playing bool
	next    int64   // timestamp of the next sample
	run     int64   // concealed since the last packet, µs
	rest    int     // samples until the next splice
	hurry   bool    // sound is far too late
	missed  []int64 // timestamps played without their packet
	old     int     // packets in a row that precede the played ones
	delay   delay
	error   int64 // of the newest decision
	played  int64 // delay of the newest decision
	stats   Stats
}

// NewBuffer returns a buffer for packets of a duration in µs. lead is the maximum time in µs from a
// call of Next until its first sample is heard.
func NewBuffer(packet, lead int64) *Buffer {
	return &Buffer{packet: packet, lead: lead}
}

// Add adds a packet that arrived at now, in µs on the session's clock. previous is the copy of the
// preceding packet that p carries, or nil.
func (b *Buffer) Add(now int64, p Packet, previous []byte) {
	if d := p.Timestamp - now; d > farOff || d < -farOff {
		b.stats.Far++
		return
	}
	b.stats.Received++
	b.bunched = now-b.arrived < b.packet/2
	b.arrived = now
	if previous != nil {
		b.insert(now, Packet{Timestamp: p.Timestamp - b.packet, Data: previous, Repeated: true})
	}
	b.insert(now, p)
}

func (b *Buffer) insert(now int64, p Packet) {
	if b.playing && p.Timestamp < b.next-b.packet/2 {
		if !b.bunched {
			b.old++
		}
		if b.old < setBack || p.Repeated {
			b.late(now, p)
			return
		}
		b.Forget()
	}
	b.old = 0
	i := len(b.waiting)
	for i > 0 && b.waiting[i-1].Timestamp > p.Timestamp {
		i--
	}
	if i > 0 && b.same(b.waiting[i-1].Timestamp, p.Timestamp) ||
		i < len(b.waiting) && b.same(b.waiting[i].Timestamp, p.Timestamp) {
		return // a duplicate
	}
	if len(b.waiting) == maxPackets {
		b.stats.Overflowed++
		if i == maxPackets {
			return
		}
		b.waiting = b.waiting[:maxPackets-1]
	}
	b.waiting = slices.Insert(b.waiting, i, p)
	b.delay.observe(now-p.Timestamp+b.lead, b.bunched)
}

// late counts a packet that arrived after its turn to play, unless it is a duplicate.
func (b *Buffer) late(now int64, p Packet) {
	i := slices.IndexFunc(b.missed, func(at int64) bool { return b.same(at, p.Timestamp) })
	if i < 0 {
		return
	}
	b.missed = slices.Delete(b.missed, i, i+1)
	b.stats.Late++
	b.delay.observe(now-p.Timestamp+b.lead, b.bunched)
}

// same reports whether two timestamps belong to one packet.
func (b *Buffer) same(x, y int64) bool { return 2*max(x-y, y-x) < b.packet }

// Own returns the smallest delay in µs from capture to sound that loses at most 1 % of the packets.
func (b *Buffer) Own() int64 { return b.delay.target }

// Target returns the delay from capture to sound in µs. pictures is the pictures' delay; ok is false
// if there are none.
func (b *Buffer) Target(pictures int64, ok bool) int64 {
	if ok {
		return max(pictures, b.delay.target)
	}
	return b.delay.target
}

// Postpone returns how long, in µs, pictures must wait for sound. The arguments are the delays of
// the two.
func Postpone(pictures, own int64) int64 { return min(max(0, own-pictures), maxDelayed) }

// Latest returns the largest delay, in µs, of sound in step with pictures of a delay that wait for it.
func Latest(pictures int64) int64 { return pictures + maxDelayed + maxBehind }

// Limit lowers a target to latest, but not so far that over a tenth of the packets would be
// concealed.
func (b *Buffer) Limit(target, latest int64) int64 { return min(target, max(latest, b.delay.usual())) }

// Error returns the delay of the newest decision minus its target, in µs.
func (b *Buffer) Error() int64 { return b.error }

// Delay returns the delay of the newest decision in µs from capture to sound. ok is false while nothing
// plays.
func (b *Buffer) Delay() (delay int64, ok bool) { return b.played, b.playing }

// Fill returns the duration of the waiting packets in µs.
func (b *Buffer) Fill() int64 { return int64(len(b.waiting)) * b.packet }

// Stats returns the counters.
func (b *Buffer) Stats() Stats { return b.stats }

// Reset discards the waiting packets and starts again with the next one. It keeps the result of
// Own.
func (b *Buffer) Reset() {
	b.waiting, b.missed, b.old, b.playing = nil, nil, 0, false
}

// Forget resets the buffer and discards the measured delays. It is for a change of clock or path.
func (b *Buffer) Forget() {
	b.Reset()
	b.delay = delay{}
}

// Next decides what plays at a time, in µs on the session's clock. target is the result of Target.
func (b *Buffer) Next(at, target int64) Decision {
	b.error = at - b.next - target
	if b.playing && (b.error > jumpFrom || b.error < -jumpFrom) {
		b.playing = false
		b.stats.Jumps++
	}
	jump := !b.playing
	if !b.playing {
		if wait := b.start(at, target); wait > 0 {
			return Decision{Kind: Silence, Samples: wait, Jump: true}
		}
	}
	b.played = b.error + target
	if b.error > hurryFrom {
		b.hurry = true
	} else if b.error <= hurryTo {
		b.hurry = false
	}
	d := b.decide()
	d.Jump = jump
	if b.rest -= d.Samples; d.Kind == Play && !jump && b.rest <= 0 {
		switch {
		case b.error > tolerance:
			d.Stretch = -1
		case b.error < -tolerance:
			d.Stretch = 1
		}
	}
	return d
}

// start returns the number of samples until the first waiting packet plays, at most a packet. It
// starts playing if that is 0.
func (b *Buffer) start(at, target int64) int {
	for len(b.waiting) > 1 && b.waiting[0].Timestamp+b.packet+target <= at {
		b.waiting = slices.Delete(b.waiting, 0, 1)
	}
	silence := b.packet
	if len(b.waiting) > 0 {
		silence = min(silence, max(0, b.waiting[0].Timestamp+target-at))
	}
	if samples := int(silence * sampleRate / 1_000_000); samples > 0 {
		return samples
	}
	b.playing, b.next, b.run, b.rest, b.missed = true, b.waiting[0].Timestamp, 0, 0, nil
	b.error = at - b.next - target
	return 0
}

// decide returns the decision for the packet at b.next and advances b.next.
func (b *Buffer) decide() Decision {
	d := Decision{Kind: Conceal, Samples: int(b.packet * sampleRate / 1_000_000)}
	expected := b.next
	b.next += b.packet
	ahead := int64(-1) // from the expected packet to the first waiting one
	if len(b.waiting) > 0 {
		ahead = max(0, b.waiting[0].Timestamp-expected)
	}
	switch {
	case ahead >= 0 && 2*ahead < b.packet:
		d.Kind, d.Packet = Play, b.waiting[0]
		b.waiting = slices.Delete(b.waiting, 0, 1)
		b.next = d.Packet.Timestamp + b.packet
		b.run = 0
		b.stats.Played++
		if d.Packet.Repeated {
			b.stats.Repeated++
		}
		return d
	case ahead >= 0 && 2*ahead < 3*b.packet:
		d.Kind, d.Packet = Correct, b.waiting[0]
		b.stats.Corrected += b.packet
	default:
		b.run += b.packet
		b.stats.Concealed += b.packet
		if b.run > maxConceal {
			d.Kind = Silence
		}
		if b.run >= endAfter && ahead < 0 {
			b.playing = false
		}
	}
	if len(b.missed) == missedSlots {
		b.missed = slices.Delete(b.missed, 0, 1)
	}
	b.missed = append(b.missed, expected)
	return d
}

// Stretched reports that the samples of the newest decision were lengthened or shortened by n
// samples.
func (b *Buffer) Stretched(n int) {
	if b.hurry {
		b.rest = hurried * n
	} else {
		b.rest = slowest * n
	}
}
