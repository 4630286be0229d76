package synthetic

import (
	"math"
	"testing"
	"time"

	"holocast/capture-server/source/pace"
)

// gap returns the distance between the hands at a phase, in metres.
func gap(phase float64) float32 {
	m := pose(phase)
	palm := vec{0.6, 0.99, 0}
	return m[handL].apply(palm).sub(m[handR].apply(mirror(palm))).length()
}

// TestClap checks that the hands meet at ClapPhase only and that arms keep their length and do not
// jump.
func TestClap(t *testing.T) {
	if at, next := gap(ClapPhase), gap(ClapPhase+1.0/90); at > 0.11 || next-at < 0.03 {
		t.Errorf("hands are %.3f m apart in the clap, %.3f m in the next frame", at, next)
	}
	const n = 900
	before := pose(0)
	for k := 1; k <= n; k++ {
		phase := float64(k) / n
		if d := gap(phase); math.Abs(phase-ClapPhase) > 2.0/90 && d < 0.13 {
			t.Errorf("hands are %.3f m apart at phase %.3f", d, phase)
		}
		m := pose(phase)
		wrist, elbow := m[handL].apply(wristJoint), m[upperArmL].apply(elbowJoint)
		d := wrist.sub(m[foreArmL].apply(wristJoint)).length() + elbow.sub(m[foreArmL].apply(elbowJoint)).length()
		if d > 1e-3 {
			t.Fatalf("joints are %.4f m apart at phase %.3f", d, phase)
		}
		for _, p := range [2]vec{
			m[handL].apply(wristJoint).sub(before[handL].apply(wristJoint)),
			m[handR].apply(mirror(wristJoint)).sub(before[handR].apply(mirror(wristJoint))),
		} {
			if p.length() > 0.03 {
				t.Fatalf("a hand jumps by %.3f m at phase %.3f", p.length(), phase)
			}
		}
		before = m
	}
}

// TestSoundOfClap checks that sound begins to exceed ClapThreshold at the time of each clap.
func TestSoundOfClap(t *testing.T) {
	clock, err := pace.NewClock(30)
	if err != nil {
		t.Fatal(err)
	}
	s := newSound(clock, 90)
	samples := make([]float32, 10*SoundRate)
	for i := 0; i < len(samples); i += 480 {
		s.Fill(samples[i:i+480], int64(i))
	}
	claps, quiet := int64(0), SoundRate
	for i, x := range samples {
		if quiet++; max(x, -x) < ClapThreshold {
			continue
		}
		if quiet > SoundRate {
			want := s.Clap(claps)
			if at := time.Duration(i) * time.Second / SoundRate; (at - want).Abs() > time.Millisecond {
				t.Errorf("clap %d at %v, want %v", claps, at, want)
			}
			claps++
		}
		quiet = 0
	}
	if claps != 3 || s.Clap(0) != 1500*time.Millisecond {
		t.Errorf("%d claps in 10 s, the first at %v", claps, s.Clap(0))
	}
}
