package ratecontrol

import (
	"testing"
	"time"
)

// TestTarget sends at the target over a link whose capacity falls from 20 to 6 Mbit/s and rises
// again.
func TestTarget(t *testing.T) {
	const step, base = 10 * time.Millisecond, 40 * time.Millisecond
	target := NewTarget(16e6)
	queue, rtt, delivered, fastest := 0.0, base, 1.0, 0.0 // bits
	rates := map[time.Duration]float64{}
	longest := time.Duration(0)
	for now := time.Duration(0); now < 15*time.Second; now += step {
		capacity := 20e6
		if now >= 5*time.Second && now < 10*time.Second {
			capacity = 6e6
		}
		// Congestion control takes a second to notice a lower bandwidth.
		if fastest = max(fastest, capacity); now%time.Second == 0 {
			fastest = capacity
		}
		rate := target.Update(now, Path{RTT: rtt, MinRTT: base, Bandwidth: fastest, Delivered: delivered})
		delivered += min(queue+rate*step.Seconds(), capacity*step.Seconds())
		queue = max(0, queue+(rate-capacity)*step.Seconds())
		delay := time.Duration(queue / capacity * float64(time.Second))
		longest = max(longest, delay)
		rtt += (base + delay - rtt) / 4
		rates[now] = rate
	}
	for at, want := range map[time.Duration][2]float64{
		4 * time.Second:          {16e6, 16e6},
		5500 * time.Millisecond:  {3e6, 7e6},
		9900 * time.Millisecond:  {4e6, 8e6},
		12 * time.Second:         {14e6, 16e6},
		14990 * time.Millisecond: {16e6, 16e6},
	} {
		if r := rates[at]; r < want[0] || r > want[1] {
			t.Errorf("%.1f Mbit/s after %v, want %.1f to %.1f", r/1e6, at, want[0]/1e6, want[1]/1e6)
		}
	}
	if longest > 300*time.Millisecond {
		t.Errorf("queueing delay of %v", longest)
	}
}

// TestTargetLimited checks that the target falls once congestion control has limited the sender for longer
// than a key frame takes, even though the path has no queue.
func TestTargetLimited(t *testing.T) {
	target := NewTarget(16e6)
	p := Path{RTT: 40 * time.Millisecond, MinRTT: 40 * time.Millisecond, Bandwidth: 10e6}
	for now, c := range []struct {
		limited     bool
		least, most float64
	}{
		{false, 16e6, 16e6},
		{true, 16e6, 16e6}, // a key frame
		{false, 16e6, 16e6},
		{true, 16e6, 16e6},
		{true, 8e6, 8e6},
		{false, 8e6, 10e6},
	} {
		p.Limited = c.limited
		if r := target.Update(time.Duration(now+1)*100*time.Millisecond, p); r < c.least || r > c.most {
			t.Errorf("step %d: %.1f Mbit/s, want %.1f to %.1f", now, r/1e6, c.least/1e6, c.most/1e6)
		}
	}
}

func TestTargetBounds(t *testing.T) {
	target := NewTarget(8e6)
	full := Path{RTT: time.Second, MinRTT: time.Millisecond, Bandwidth: 10}
	if r := target.Update(time.Second, full); r != 4e6 {
		t.Errorf("%v bit/s once a path of 10 is full, want half the limit", r)
	}
	for now := time.Second; now < 3*time.Second; now += recent {
		target.Update(now, full)
	}
	if r := target.Update(3*time.Second, full); r != least {
		t.Errorf("%v bit/s on a path of 10", r)
	}
	full.Bandwidth = 0
	if r := target.Update(time.Hour, full); r != 8e6 {
		t.Errorf("%v bit/s without an estimate, want the limit", r)
	}
}
