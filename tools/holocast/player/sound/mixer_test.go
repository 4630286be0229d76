package sound

import (
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"holocast/internal/jitter"
	"holocast/internal/loc"
	"holocast/internal/opus"
)

// epoch is the start time of the tests.
var epoch = time.Unix(1_800_000_000, 0)

// scene plays a microphone and pictures into a mixer, in fake time.
type scene struct {
	t         *testing.T
	m         *Mixer
	enc       *opus.Encoder
	at        time.Time
	next      time.Time // capture time of the next packet
	last      []byte
	offset    time.Duration // of the session's clock
	skew      time.Duration // of timestamps: of a replay
	arrival   time.Duration // of sound, after the end of its packet
	delay     time.Duration // of pictures, without holding them
	lose      func(n int) bool
	packets   int
	pictures  bool
	recording []float32
}

func newScene(t *testing.T) *scene {
	t.Helper()
	enc, err := opus.NewEncoder(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(enc.Close)
	s := &scene{
		t: t, m: New(WAVLead, slog.New(slog.DiscardHandler)), enc: enc, at: epoch, next: epoch, pictures: true,
		offset: 3 * time.Second, arrival: 5 * time.Millisecond, delay: 60 * time.Millisecond,
		lose: func(int) bool { return false },
	}
	t.Cleanup(s.m.Close)
	s.m.Use(s.clock, Live)
	return s
}

func (s *scene) clock(local time.Time) (time.Time, State) { return local.Add(s.offset), Running }

// tone is the captured sound: 440 Hz, and a click at the beginning of each second.
func tone(at time.Time) float32 {
	us := at.Sub(epoch).Microseconds()
	v := 0.2 * math.Sin(2*math.Pi*440*float64(us)/1e6)
	if since := us % 1_000_000; since < 1000 {
		v += 0.7 * math.Sin(2*math.Pi*6000*float64(since)/1e6)
	}
	return float32(v)
}

// run plays for a while. Pictures are displayed every 30 ms.
func (s *scene) run(d time.Duration) {
	s.t.Helper()
	pcm, block := make([]float32, blockSamples), make([]float32, blockSamples*Channels)
	for end := s.at.Add(d); s.at.Before(end); s.at = s.at.Add(blockTime) {
		for ; !s.next.Add(blockTime + s.arrival).After(s.at); s.next = s.next.Add(blockTime) {
			for i := range pcm {
				pcm[i] = tone(s.next.Add(time.Duration(i) * time.Second / SampleRate))
			}
			b, err := s.enc.Encode(nil, pcm)
			if err != nil {
				s.t.Fatal(err)
			}
			captured := s.next.Add(s.offset - s.skew - time.Duration(s.enc.Lookahead())*time.Second/SampleRate)
			if s.packets++; !s.lose(s.packets) {
				s.m.Add("audio/0", Format{1, blockTime}, Packet{captured, b, s.last}, s.at)
			}
			s.last = b
		}
		if s.pictures && s.at.Sub(epoch)/blockTime%3 == 0 {
			held := s.m.Hold()
			s.m.Shown(s.at.Add(s.offset-s.skew-s.delay-held), s.at, held)
		}
		s.m.Read(block, s.at)
		for i := 0; i < len(block); i += Channels {
			if block[i] != block[i+1] {
				s.t.Fatal("the channels differ")
			}
			s.recording = append(s.recording, block[i])
		}
	}
}

// heard returns the delay of the newest click: the time from its capture to its sound.
func (s *scene) heard() time.Duration {
	s.t.Helper()
	from := len(s.recording) - SampleRate
	most, at := float32(0), 0
	for i := from + 2; i < len(s.recording); i++ {
		d := s.recording[i] - 2*s.recording[i-1] + s.recording[i-2]
		if d *= d; d > most {
			most, at = d, i
		}
	}
	for at > from+2 { // the first sharp sample near the sharpest
		i := at - 1
		for i > max(from+2, at-24) {
			d := s.recording[i] - 2*s.recording[i-1] + s.recording[i-2]
			if d*d > most/8 {
				break
			}
			i--
		}
		if i <= max(from+2, at-24) {
			break
		}
		at = i
	}
	return (time.Duration(at) * time.Second / SampleRate) % time.Second
}

// near checks a duration. It allows for the deviation that the mixer does not correct, and for the
// click's own length.
func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if (got - want).Abs() > 7*time.Millisecond {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestInStep(t *testing.T) {
	for _, c := range []struct {
		name           string
		arrival, delay time.Duration
		held, lip      time.Duration
	}{
		{name: "pictures are later", arrival: 5 * time.Millisecond, delay: 120 * time.Millisecond},
		{
			name: "sound is later", arrival: 50 * time.Millisecond, delay: 40 * time.Millisecond,
			held: 51 * time.Millisecond, // arrival + packet + lookahead + lead + headroom − delay
		},
		{
			name: "sound is much later", arrival: 150 * time.Millisecond, delay: 40 * time.Millisecond,
			held: 80 * time.Millisecond, lip: 71 * time.Millisecond,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			s.arrival, s.delay = c.arrival, c.delay
			s.run(8 * time.Second)
			r := s.m.Report()
			t.Logf("%+v, heard after %v", r, s.heard())
			near(t, "held", s.m.Hold(), c.held)
			near(t, "sound", s.heard(), c.delay+c.held+c.lip)
			near(t, "reported delay", time.Duration(r.DelayMS*1e6), c.delay+c.held+c.lip)
			near(t, "reported lip offset", time.Duration(*r.LipOffsetMS*1e6), c.lip)
			if r.ConcealedMS > 0 || r.Refused > 0 || r.Jumps > 0 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestPicturesChange moves the pictures' delay.
func TestPicturesChange(t *testing.T) {
	s := newScene(t)
	s.run(4 * time.Second)
	for _, d := range []time.Duration{150 * time.Millisecond, 60 * time.Millisecond, 600 * time.Millisecond} {
		s.delay = d
		s.run(8 * time.Second)
		near(t, "sound", s.heard(), d)
	}
}

func TestWithoutPictures(t *testing.T) {
	s := newScene(t)
	s.pictures = false
	s.run(8 * time.Second)
	r := s.m.Report()
	if r.LipOffsetMS != nil || r.DelayMS > 60 || r.DelayMS < 20 {
		t.Errorf("%+v", r)
	}
	near(t, "sound", s.heard(), time.Duration(r.DelayMS*1e6))
}

func TestLoss(t *testing.T) {
	s := newScene(t)
	s.lose = func(n int) bool { return n%20 == 0 }
	s.run(10 * time.Second)
	if r := s.m.Report(); r.ConcealedMS > 0 || r.Repeated < 45 {
		t.Errorf("%+v", r)
	}
}

// TestReplay checks that sound stays in step in a replay that starts over every 3 s.
func TestReplay(t *testing.T) {
	s := newScene(t)
	s.m.Use(s.clock, Shared)
	s.skew = 240 * time.Hour
	for range 3 {
		s.run(3 * time.Second)
		s.skew += 3 * time.Second
	}
	s.run(2900 * time.Millisecond)
	r := s.m.Report()
	t.Logf("%+v", r)
	near(t, "sound", s.heard(), s.delay)
	if r.Refused > 0 || *r.LipOffsetMS > 10 || *r.LipOffsetMS < -10 {
		t.Errorf("%+v, lip offset %v", r, *r.LipOffsetMS)
	}
}

// TestPause checks that sound pauses with a recording, and is in step again after a seek.
func TestPause(t *testing.T) {
	s := newScene(t)
	state := Running
	s.m.Use(func(local time.Time) (time.Time, State) { return local.Add(s.offset), state }, Own)
	s.run(3 * time.Second)
	near(t, "sound", s.heard(), s.delay)
	state = Paused
	before := len(s.recording)
	block := make([]float32, blockSamples*Channels)
	for range 20 {
		s.m.Read(block, s.at)
		s.recording = append(s.recording, block...)
	}
	if end := s.recording[len(s.recording)-blockSamples:]; end[0] != 0 || end[blockSamples-1] != 0 {
		t.Error("sound in a pause")
	}
	s.recording = s.recording[:before]
	state = Running
	s.m.Seek()
	s.run(3 * time.Second)
	near(t, "sound", s.heard(), s.delay)
}

// TestHostilePackets checks that damaged packets between good ones are refused and do not affect
// the sound.
func TestHostilePackets(t *testing.T) {
	good := func(s *scene) Packet { return Packet{Timestamp: s.at.Add(s.offset), Data: s.last} }
	for _, c := range []struct {
		name string
		bad  func(s *scene) Packet
		want string
	}{
		{"empty", func(s *scene) Packet { p := good(s); p.Data = nil; return p }, "empty"},
		{"large", func(s *scene) Packet { p := good(s); p.Data = make([]byte, 60_000); return p }, "60000 bytes"},
		{"one byte of 20 ms", func(s *scene) Packet { p := good(s); p.Data = []byte{0x08}; return p }, "960 samples"},
		{"stereo", func(s *scene) Packet { p := good(s); p.Data = []byte{0xf4, 1, 2}; return p }, "channels"},
		{"truncated", func(s *scene) Packet { p := good(s); p.Data = []byte{0x03}; return p }, "truncated"},
		{"past", func(s *scene) Packet { p := good(s); p.Timestamp = time.UnixMicro(0); return p }, "from the clock"},
		{"future", func(s *scene) Packet { p := good(s); p.Timestamp = p.Timestamp.Add(time.Hour); return p }, "from the clock"},
		{"large copy", func(s *scene) Packet { p := good(s); p.Previous = make([]byte, 60_000); return p }, "60000 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			s.run(time.Second)
			for range 300 {
				for range 10 {
					s.m.Add("audio/0", Format{1, blockTime}, c.bad(s), s.at)
				}
				s.run(blockTime)
			}
			r := s.m.Report()
			if r.Refused != 3000 || !strings.Contains(r.Error, c.want) {
				t.Errorf("%d refused: %q, want %q", r.Refused, r.Error, c.want)
			}
			near(t, "sound", s.heard(), s.delay)
			if r.ConcealedMS > 0 {
				t.Errorf("%v ms concealed", r.ConcealedMS)
			}
		})
	}
}

// TestPackets plays the shared vectors of acceptable and unacceptable packets.
func TestPackets(t *testing.T) {
	b, err := os.ReadFile("../../../../internal/loc/testdata/opus-packets.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Cases []struct {
			Name            string
			Channels, Bytes int
			Begin           string
			Ahead           int64
			Accepted        bool
		}
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	for _, c := range doc.Cases {
		t.Run(c.Name, func(t *testing.T) {
			s := newScene(t)
			s.run(blockTime)
			begin, err := hex.DecodeString(c.Begin)
			if err != nil {
				t.Fatal(err)
			}
			data := append(begin, make([]byte, c.Bytes-len(begin))...)
			stamp := s.at.Add(s.offset + time.Duration(c.Ahead)*time.Millisecond)
			p, err := ParsePacket(loc.Properties{Timestamp: stamp}.Append(nil), data)
			if err == nil {
				s.m.Add("audio/1", Format{c.Channels, blockTime}, p, s.at)
			}
			s.run(blockTime)
			r := s.m.Report()
			if accepted := err == nil && r.Refused == 0; accepted != c.Accepted {
				t.Errorf("accepted: %t (%v, %+v)", accepted, err, r)
			}
		})
	}
}

// TestManyTracks checks that the mixer refuses more microphones than a session may have.
func TestManyTracks(t *testing.T) {
	s := newScene(t)
	s.run(blockTime * 3)
	for i := range 100 {
		s.m.Add(strings.Repeat("x", i), Format{1, blockTime}, Packet{Timestamp: s.at.Add(s.offset), Data: s.last}, s.at)
	}
	if r := s.m.Report(); r.Microphones != maxTracks || r.Refused == 0 {
		t.Errorf("%+v", r)
	}
}

func FuzzPacket(f *testing.F) {
	f.Add(loc.Properties{Timestamp: epoch, Previous: []byte{0xf0, 1}}.Append(nil), []byte{0xf0, 1, 2})
	f.Fuzz(func(t *testing.T, properties, payload []byte) {
		m := New(WAVLead, slog.New(slog.DiscardHandler))
		defer m.Close()
		m.Use(func(local time.Time) (time.Time, State) { return local, Running }, Live)
		block := make([]float32, blockSamples*Channels)
		for i := range 5 {
			p, err := ParsePacket(properties, payload)
			if err != nil {
				return
			}
			p.Timestamp = epoch.Add(time.Duration(i) * blockTime)
			m.Add("audio/0", Format{Channels: 1}, p, p.Timestamp)
			m.Read(block, p.Timestamp.Add(50*time.Millisecond))
		}
		for _, v := range block {
			if v != v || v > 1 || v < -1 {
				t.Fatalf("sample %v", v)
			}
		}
	})
}

var _ jitter.Decoder = (*opus.Decoder)(nil)
