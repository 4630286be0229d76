package qoe

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var start = time.Unix(1790000000, 0)

const period = time.Second / 30

// show displays frames of camera 0 with the given sequence numbers, in this order. A frame's number
// gives its capture time; it is shown at least 10 ms later.
func show(m *Meter, sequences ...uint32) time.Time {
	shown := start
	for _, s := range sequences {
		captured := start.Add(time.Duration(s) * period)
		if at := captured.Add(10 * time.Millisecond); at.After(shown) {
			shown = at
		}
		m.Shown(Frame{Sequence: s, Shown: shown, Delay: shown.Sub(captured), Points: 1000})
	}
	return shown
}

func span(from, to uint32) []uint32 {
	var s []uint32
	for ; from < to; from++ {
		s = append(s, from)
	}
	return s
}

func TestLoss(t *testing.T) {
	tests := []struct {
		name                    string
		sequences               []uint32
		frames, lost, late, dup uint64
	}{
		{"none", span(0, 100), 100, 0, 0, 0},
		{"joined late", span(5000, 5100), 100, 0, 0, 0},
		{"gap", append(span(0, 10), span(13, 20)...), 17, 3, 0, 0},
		{"late frame", []uint32{0, 1, 3, 2, 4}, 5, 0, 1, 0},
		{"late twice", []uint32{0, 1, 3, 2, 2, 4}, 5, 0, 1, 1},
		{"duplicate", []uint32{0, 1, 1, 2}, 3, 0, 0, 1},
		{"older than the first", []uint32{5, 4, 6}, 3, 0, 1, 0},
		{"gap longer than the history", append(span(0, 10), span(3000, 3010)...), 20, 2990, 0, 0},
		{"late behind a long gap", []uint32{0, 3000, 2500, 2500, 3001}, 4, 2998, 1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var m Meter
			s := m.Snapshot(show(&m, tt.sequences...))
			if s.Frames != tt.frames || s.FramesLost != tt.lost || s.FramesLate != tt.late || s.FramesDuplicate != tt.dup ||
				s.PublisherRestarts != 0 {
				t.Errorf("%+v\nwant %d frames, %d lost, %d late, %d duplicate", s, tt.frames, tt.lost, tt.late, tt.dup)
			}
		})
	}
}

func TestPublisherRestarts(t *testing.T) {
	tests := []struct {
		name     string
		sequence uint32 // first after the restart
	}{
		{"from 0", 0},
		{"from a number seen", 70},
		{"from the last number", 99},
		{"from far above", 3000000000},
		{"from above", 2000000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var m Meter
			at := show(&m, span(0, 100)...)
			for i := range uint32(100) {
				at = at.Add(period)
				if i == 0 {
					at = at.Add(3 * time.Second)
				}
				m.Shown(Frame{Sequence: tt.sequence + i, Shown: at, Delay: 10 * time.Millisecond})
			}
			if s := m.Snapshot(at); s.Frames != 200 || s.FramesLost != 0 || s.PublisherRestarts != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestRates(t *testing.T) {
	var m Meter
	for i := range 301 {
		at := start.Add(time.Duration(i) * time.Second / 30)
		m.Received(50000, at)
		m.Shown(Frame{Camera: 3, Sequence: uint32(i), Shown: at, Delay: 12 * time.Millisecond, Points: 200})
		if i%2 == 0 {
			m.Received(50000, at)
			m.Shown(Frame{Camera: 1, Sequence: uint32(i / 2), Shown: at, Delay: 8 * time.Millisecond, Points: 100})
		}
	}
	end := start.Add(10 * time.Second)
	s := m.Snapshot(end)
	if s.FPS != 22.5 || s.Cameras != 2 || s.Frames != 301+151 {
		t.Errorf("fps %v of %d cameras, %d frames; want 22.5 of 2, 452", s.FPS, s.Cameras, s.Frames)
	}
	if len(s.PerCamera) != 2 || s.PerCamera[0].Camera != 1 || s.PerCamera[0].FPS != 15 || s.PerCamera[1].FPS != 30 {
		t.Errorf("per camera %+v", s.PerCamera)
	}
	if want := 452 * 50000 * 8 / 1e6 / 10; math.Abs(s.MbitPerS-want) > 0.01 {
		t.Errorf("%v Mbit/s, want %v", s.MbitPerS, want)
	}
	if want := (301*200 + 151*100) / 452.; math.Abs(s.PointsPerFrame-want) > 0.1 {
		t.Errorf("%v points, want %v", s.PointsPerFrame, want)
	}
	if s.JitterMS != 0 {
		t.Errorf("jitter %v of a constant delay", s.JitterMS)
	}
	// A stall lowers the live rates immediately, and the run's rates slowly.
	live := m.Live(end.Add(1500 * time.Millisecond))
	if live.FPS != 0 || live.MbitPerS != 0 || live.FrameDelayMS.P50 != 12 || live.Frames != 452 {
		t.Errorf("live during a stall %+v", live)
	}
	if live := m.Live(end); math.Abs(live.FPS-23.5) > 1 || math.Abs(live.MbitPerS-18) > 2 {
		t.Errorf("live %+v", live)
	}
}

func TestStartUpDoesNotCount(t *testing.T) {
	var m Meter
	end := show(&m, span(300, 361)...) // the first is shown ten seconds after start
	if s := m.Snapshot(end); s.FPS != 30 {
		t.Errorf("fps %v, want 30", s.FPS)
	}
}

func TestPercentilesAreExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var m Meter
	var delays []time.Duration
	for i := range 20000 {
		d := time.Duration(rng.ExpFloat64() * float64(15*time.Millisecond)).Truncate(10 * time.Microsecond)
		delays = append(delays, d)
		m.Shown(Frame{Sequence: uint32(i), Shown: start.Add(time.Duration(i) * period), Delay: d})
	}
	slices.Sort(delays)
	want := Percentiles{nearestRank(delays, 50), nearestRank(delays, 95), nearestRank(delays, 99)}
	if got := m.Snapshot(start).FrameDelayMS; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if len(m.recent) > 200 {
		t.Errorf("%d recent frames kept, five seconds have 150", len(m.recent))
	}
}

func TestExtremeDelays(t *testing.T) {
	tests := []struct {
		delay time.Duration
		want  float64
	}{
		{0, 0},
		{-3 * time.Millisecond, -3},
		{-time.Hour, -500},
		{2*time.Second - 1, 1999.99},
		{2 * time.Second, 2000},
		{3*time.Second + 1234567, 3001},
		{time.Hour, 59999},
	}
	for _, tt := range tests {
		t.Run(tt.delay.String(), func(t *testing.T) {
			var d distribution
			d.add(tt.delay)
			if got := d.percentile(50); got != tt.want {
				t.Errorf("got %v ms, want %v", got, tt.want)
			}
		})
	}
}

// RFC 3550's example: each difference moves the estimate by a sixteenth.
func TestJitter(t *testing.T) {
	var m Meter
	for i, ms := range []int{10, 26, 10} {
		m.Shown(
			Frame{Sequence: uint32(i), Shown: start.Add(time.Duration(i) * period), Delay: time.Duration(ms) * time.Millisecond},
		)
	}
	if got, want := m.Snapshot(start).JitterMS, 1+15./16; math.Abs(got-want) > 0.001 {
		t.Errorf("jitter %v ms, want %v", got, want)
	}
}

func TestSnapshotJSON(t *testing.T) {
	var m Meter
	b, err := json.Marshal(m.Snapshot(start))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"fps":0,"frame_delay_ms":{"p50":0,"p95":0,"p99":0},"frames":0,"frames_lost":0,"points_per_frame":0,"mbit_per_s":0,"cameras":0,`
	if !strings.HasPrefix(string(b), want) {
		t.Errorf("got %s\nwant %s…", b, want)
	}
	if live, err := json.Marshal(m.Live(start)); err != nil || string(live) != string(b) {
		t.Errorf("live %s, %v", live, err)
	}
}

func TestReceipt(t *testing.T) {
	tests := []struct {
		name string
		r    Receipt
		want time.Duration
	}{
		{"plain", Receipt{Camera: 65535, Sequence: 4000000000, Delay: 12345 * time.Microsecond}, 12345 * time.Microsecond},
		{"negative", Receipt{Delay: -5 * time.Microsecond}, -5 * time.Microsecond},
		{"clamped", Receipt{Delay: time.Hour}, math.MaxInt32 * time.Microsecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := tt.r.Append(nil)
			if len(b) < 200 || len(b) > 240 {
				t.Errorf("%d bytes, want 200–240", len(b))
			}
			got, err := ParseReceipt(b)
			tt.r.Delay = tt.want
			if err != nil || got != tt.r {
				t.Errorf("got %+v, %v, want %+v", got, err, tt.r)
			}
		})
	}
	if _, err := ParseReceipt(make([]byte, 199)); err == nil || !strings.Contains(err.Error(), "199 bytes, needs 200") {
		t.Errorf("short: %v", err)
	}
	if _, err := ParseReceipt(make([]byte, 200)); err == nil || !strings.Contains(err.Error(), "version 0") {
		t.Errorf("version: %v", err)
	}
}

func FuzzParseReceipt(f *testing.F) {
	f.Add(Receipt{Camera: 1, Sequence: 2, Delay: 3}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseReceipt(b)
		if err != nil {
			return
		}
		if again, err := ParseReceipt(r.Append(nil)); err != nil || again != r {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
	})
}

// FuzzSequence checks that counts stay plausible for any order of sequence numbers.
func FuzzSequence(f *testing.F) {
	f.Add([]byte{0, 1, 2, 4, 3, 3, 200, 0})
	f.Fuzz(func(t *testing.T, steps []byte) {
		var m Meter
		sequence := uint32(1 << 31)
		var highest uint64
		for i, step := range steps {
			sequence += uint32(int32(int8(step)))
			highest += uint64(step)
			m.Shown(
				Frame{
					Sequence: sequence,
					Shown:    start.Add(time.Duration(i) * period),
					Delay:    time.Duration(step) * time.Millisecond,
				},
			)
		}
		s := m.Snapshot(start.Add(time.Hour))
		if s.Frames+s.FramesDuplicate != uint64(len(steps)) || s.FramesLost > highest {
			t.Fatalf("%d frames shown became %+v", len(steps), s)
		}
	})
}

// Frames skipped or repeated by seeking in a recording are neither lost nor late.
func TestMeterJump(t *testing.T) {
	var m Meter
	show(&m, span(100, 110)...)
	m.Jump()
	show(&m, span(5000, 5010)...)
	m.Jump()
	end := show(&m, 100, 101, 104)
	s := m.Snapshot(end)
	if s.Frames != 23 || s.FramesLost != 2 || s.FramesLate != 0 || s.FramesDuplicate != 0 || s.PublisherRestarts != 0 {
		t.Errorf("%+v", s)
	}
}
