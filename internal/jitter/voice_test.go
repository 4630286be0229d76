package jitter

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// toneDecoder decodes a packet that holds its number into a tone.
type toneDecoder struct {
	channels int
	next     int64 // packet to conceal
}

const tone = 440 // Hz

func at(sample int64) float32 {
	return float32(0.5 * math.Sin(2*math.Pi*tone*float64(sample)/sampleRate))
}

func (d *toneDecoder) write(out []float32, number int64) {
	n := len(out) / d.channels
	for i := range n {
		for c := range d.channels {
			out[i*d.channels+c] = at(number*int64(n) + int64(i))
		}
	}
	d.next = number + 1
}

func (d *toneDecoder) Decode(out []float32, packet []byte) error {
	if len(packet) != 8 {
		return errors.New("damaged")
	}
	d.write(out, int64(binary.BigEndian.Uint64(packet)))
	return nil
}

func (d *toneDecoder) Recover(out []float32, next []byte) error {
	if len(next) != 8 {
		return errors.New("damaged")
	}
	d.write(out, int64(binary.BigEndian.Uint64(next))-1)
	return nil
}

func (d *toneDecoder) Conceal(out []float32) error {
	d.write(out, d.next)
	return nil
}

func numbered(i int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }

// largestStep is the maximum difference of adjacent samples in the absence of clicks: that of the
// tone, that of a fade over crossFade samples, and some margin.
const largestStep = 2*math.Pi*tone/sampleRate*0.5 + 2./crossFade + 0.01

// roughest returns the largest difference of adjacent samples of a channel.
func roughest(x []float32, channels int, last []float32) (most float64) {
	for i := 0; i < len(x); i += channels {
		for c := range channels {
			most = max(most, math.Abs(float64(x[i+c]-last[c])))
			last[c] = x[i+c]
		}
	}
	return most
}

// TestRandomNetworks plays over random networks and checks the output, sample by sample.
func TestRandomNetworks(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 0))
		channels := 1 + r.IntN(2)
		loss, spread := r.Float64()*0.1, int64(1+r.IntN(40_000))
		v := NewVoice(10_000, 20_000, channels, &toneDecoder{channels: channels})
		type packet struct{ now, number int64 }
		var queue []packet
		out, last := make([]float32, 480*channels), make([]float32, channels)
		pictures := int64(60_000 + r.IntN(60_000))
		for tick := range int64(1500) {
			now := 10_000 * tick
			if tick%500 == 250 {
				pictures = int64(60_000 + r.IntN(60_000))
			}
			if r.Float64() >= loss {
				queue = append(queue, packet{now + 1000 + r.Int64N(spread), tick})
			}
			kept := queue[:0]
			for _, p := range queue {
				if p.now > now {
					kept = append(kept, p)
					continue
				}
				v.Add(now, Packet{Timestamp: 10_000 * p.number, Data: numbered(p.number)}, numbered(p.number-1))
			}
			queue = kept
			target := v.Target(pictures, true)
			v.Read(out, now+10_000, target)
			if most := roughest(out, channels, last); most > largestStep {
				t.Fatalf("seed %d: a click of %.3f at %d ms", seed, most, 10*tick)
			}
			if e := v.Error(); tick > 400 && tick%500 < 240 && (e > tolerance+2_000 || e < -tolerance-2_000) &&
				v.Stats().Jumps == 0 && target == pictures {
				t.Fatalf("seed %d: sound is off by %d µs after %d ms", seed, e, 10*tick)
			}
		}
		s := v.Stats()
		if lost := float64(s.Concealed) / 15e6; lost > 0.012+loss*loss*3 {
			t.Errorf("seed %d: loss %.3f, but %.3f concealed: %+v", seed, loss, lost, s)
		}
	}
}

// TestStall delays the packets of random networks by a stall. Sound must be back at its delay within 2 s, without a
// click.
func TestStall(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		spread, length := int64(1+r.IntN(20_000)), int64(100_000+r.IntN(600_000))
		begin := int64(10_000_000 + r.IntN(10_000))
		end := begin + length
		v := NewVoice(10_000, 20_000, 1, &toneDecoder{channels: 1})
		out, last := make([]float32, 480), make([]float32, 1)
		before := int64(0)
		for sent, now := int64(0), int64(0); now < end+5_000_000; now += 10_000 {
			for ; sent*10_000+12_000 < now; sent++ {
				at := sent*10_000 + 12_000 + r.Int64N(spread)
				if at > begin && at < end {
					at = end
				}
				if at > now {
					break
				}
				v.Add(at, Packet{Timestamp: 10_000 * sent, Data: numbered(sent)}, nil)
			}
			v.Read(out, now+10_000, v.Target(0, false))
			if most := roughest(out, 1, last); most > largestStep {
				t.Fatalf("seed %d: a click of %.3f at %d µs", seed, most, now)
			}
			delay, _ := v.Delay()
			if now < begin {
				before = delay
			}
			if off := delay - before; now > end+2_000_000 && max(off, -off) > 15_000 {
				t.Fatalf("seed %d: sound is off by %d µs, %d µs after a stall of %d µs", seed, off, now-end, length)
			}
		}
	}
}

// TestHurry lowers the target by up to jumpFrom. Sound must follow within 1 s, without clicks and loss.
func TestHurry(t *testing.T) {
	for by := int64(hurryFrom); by <= jumpFrom; by += 10_000 {
		v := NewVoice(10_000, 20_000, 1, &toneDecoder{channels: 1})
		out, last := make([]float32, 480), make([]float32, 1)
		for tick := range int64(300) {
			now := 10_000 * tick
			v.Add(now, Packet{Timestamp: now, Data: numbered(tick)}, nil)
			target := int64(300_000)
			if tick >= 150 {
				target -= by
			}
			v.Read(out, now+10_000, target)
			if most := roughest(out, 1, last); most > largestStep {
				t.Fatalf("by %d µs: a click of %.3f at %d ms", by, most, 10*tick)
			}
			if tick >= 250 && v.Error() > 2*tolerance {
				t.Fatalf("by %d µs: sound is late by %d µs after %d ms", by, v.Error(), 10*(tick-150))
			}
		}
		if s := v.Stats(); s.Concealed != 0 || s.Jumps != 0 {
			t.Errorf("by %d µs: %+v", by, s)
		}
	}
}

// TestLimit limits the delay of sound when some or all packets arrive late.
func TestLimit(t *testing.T) {
	const latest = 100_000
	for _, c := range []struct {
		name      string
		late      func(tick int64) bool
		from, to  int64 // delay
		concealed int64 // most
	}{
		{"one in 20", func(tick int64) bool { return tick%20 == 19 }, latest - tolerance, latest + tolerance, 600_000},
		{"all", func(int64) bool { return true }, 150_000, 170_000, 200_000},
	} {
		v := NewVoice(10_000, 20_000, 1, &toneDecoder{channels: 1})
		out := make([]float32, 480)
		for tick := range int64(1000) {
			now := 10_000 * tick
			for _, sent := range []int64{tick - 13, tick - 2} {
				if late := sent == tick-13; sent >= 0 && c.late(sent) == late {
					v.Add(now, Packet{Timestamp: 10_000 * sent, Data: numbered(sent)}, nil)
				}
			}
			v.Read(out, now+10_000, v.Limit(v.Target(60_000, true), latest))
		}
		delay, _ := v.Delay()
		if s := v.Stats(); delay < c.from || delay > c.to || s.Concealed > c.concealed {
			t.Errorf("%s late: a delay of %d µs, %+v", c.name, delay, s)
		}
	}
}

// TestStretchLimit measures the pace while the delay changes.
func TestStretchLimit(t *testing.T) {
	b := NewBuffer(10_000, 20_000)
	at, stamp := int64(0), int64(0)
	var before []int64 // output time of each packet
	for i := range int64(400) {
		b.Add(stamp+5_000, Packet{Timestamp: stamp}, nil)
		stamp += 10_000
		target := int64(100_000)
		if i > 100 {
			target = 250_000
		}
		d := b.Next(at+100_000, target)
		n := int64(d.Samples)
		if d.Stretch != 0 {
			b.Stretched(longest)
			n += int64(d.Stretch * longest)
		}
		at += n * 1_000_000 / sampleRate
		before = append(before, at)
		if i < 100 {
			continue
		}
		if pace := float64(at-before[i-50]) / 500_000; math.Abs(pace-1) > 0.0501 {
			t.Fatalf("packet %d: pace %.4f", i, pace)
		}
	}
	if s := b.Stats(); s.Jumps != 0 || b.Error() > tolerance || b.Error() < -tolerance {
		t.Errorf("error %d µs, %+v", b.Error(), s)
	}
}

// TestSilenceBetween checks that interruptions, jumps and pauses cause no clicks.
func TestSilenceBetween(t *testing.T) {
	v := NewVoice(10_000, 20_000, 1, &toneDecoder{channels: 1})
	out, last := make([]float32, 480), make([]float32, 1)
	for tick := range int64(600) {
		now := 10_000 * tick
		target := int64(80_000)
		if tick > 500 {
			target = 500_000
		}
		if tick < 100 || tick > 300 {
			v.Add(now, Packet{Timestamp: now, Data: numbered(tick)}, nil)
		}
		if tick > 400 && tick < 420 {
			v.Rest(out)
		} else {
			v.Read(out, now+10_000, target)
		}
		if most := roughest(out, 1, last); most > largestStep {
			t.Fatalf("a click of %.3f at %d ms", most, 10*tick)
		}
		if silent := tick > 130 && tick < 300; silent && out[100] != 0 {
			t.Fatalf("sound at %d ms", 10*tick)
		}
	}
}

func TestDamagedPackets(t *testing.T) {
	v := NewVoice(10_000, 20_000, 1, &toneDecoder{channels: 1})
	out := make([]float32, 480)
	for tick := range int64(100) {
		now := 10_000 * tick
		data := numbered(tick)
		if tick%10 == 5 {
			data = []byte{1}
		}
		v.Add(now, Packet{Timestamp: now, Data: data}, nil)
		v.Read(out, now+10_000, 60_000)
	}
	if v.Undecodable != 9 || v.Stats().Concealed != 90_000 {
		t.Errorf("%d undecodable, %+v", v.Undecodable, v.Stats())
	}
}

// TestFlood adds 10,000 packets per second.
func TestFlood(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	v := NewVoice(10_000, 20_000, 1, &toneDecoder{channels: 1})
	out := make([]float32, 480)
	for tick := range int64(1000) {
		now := 10_000 * tick
		for range 100 {
			v.Add(now, Packet{Timestamp: now + r.Int64N(24_000_000) - 12_000_000, Data: numbered(tick)}, nil)
		}
		v.Read(out, now+10_000, v.Target(80_000, true))
		if len(v.waiting) > maxPackets || len(v.ready) > 2*480 || v.Own() > maxTarget {
			t.Fatalf("%d packets, %d samples wait; own delay %d", len(v.waiting), len(v.ready), v.Own())
		}
	}
}

func FuzzVoice(f *testing.F) {
	f.Add([]byte("\x00\x00\x01\x08\x01\x00\x01\x08\x02\x10\x00\x08"))
	f.Fuzz(func(t *testing.T, b []byte) {
		v := NewVoice(10_000, 20_000, 1, &toneDecoder{channels: 1})
		out := make([]float32, 480)
		now, stamp := int64(1)<<50, int64(1)<<50
		for b = b[:min(len(b), 4000)]; len(b) >= 4; b = b[4:] {
			shift := int64(int16(binary.BigEndian.Uint16(b[1:]))) << (b[3] % 48)
			switch b[0] % 5 {
			case 0, 1:
				stamp += 10_000
				v.Add(now, Packet{Timestamp: stamp, Data: b[:b[3]%5]}, b[:1])
			case 2:
				stamp = now + shift
				v.Add(now, Packet{Timestamp: stamp, Data: numbered(1)}, nil)
			case 3:
				v.Read(out, now, v.Target(shift, b[3]&1 != 0))
				now += 10_000
			case 4:
				v.Rest(out)
				now += shift & (1<<40 - 1)
			}
			if len(v.waiting) > maxPackets || len(v.missed) > missedSlots || len(v.ready) > 4*480 {
				t.Fatalf("%d packets, %d missed, %d samples", len(v.waiting), len(v.missed), len(v.ready))
			}
			for i := 1; i < len(v.waiting); i++ {
				if v.waiting[i].Timestamp <= v.waiting[i-1].Timestamp {
					t.Fatal("packets out of order")
				}
			}
		}
	})
}
