package policy

import (
	"testing"
	"time"
)

// at returns the times of packets separated by gaps in milliseconds.
func at(gaps ...int) []int64 {
	t := int64(time.Hour)
	out := []int64{t}
	for _, g := range gaps {
		t += int64(g) * int64(time.Millisecond)
		out = append(out, t)
	}
	return out
}

func TestMeter(t *testing.T) {
	for name, c := range map[string]struct {
		packets []int64
		fires   []int // indices of the packets that fire the trigger
	}{
		"steady":             {at(33, 33, 33, 34, 33, 33), nil},
		"just below":         {at(150, 150, 150, 150, 150), nil},
		"three running":      {at(151, 151, 151), []int{3}},
		"only two":           {at(33, 160, 160, 33, 160, 160, 33), nil},
		"counts anew":        {at(160, 160, 160, 160, 160, 160), []int{3, 6}},
		"a bunch is one":     {at(160, 1, 1, 160, 2, 160), []int{6}},
		"a bunch has an end": {at(160, 4, 4, 4, 156, 160, 160), []int{7}},
		"out of order":       {at(160, -3, 160, -3, 166), []int{5}},
		"end of the flow":    {at(160, 160, 10_000, 160, 160), nil},
		"the edge rebooted":  {at(160, 160, -3_000_000, 160, 160, 160), []int{6}},
	} {
		t.Run(name, func(t *testing.T) {
			var m meter
			var fires []int
			for i, p := range c.packets {
				if m.observe(DefaultConfig().Trigger, strain{}, 10*time.Second, p, time.Unix(0, p)) != "" {
					fires = append(fires, i)
				}
			}
			if len(fires) != len(c.fires) {
				t.Fatalf("fired at %v, want %v", fires, c.fires)
			}
			for i := range fires {
				if fires[i] != c.fires[i] {
					t.Fatalf("fired at %v, want %v", fires, c.fires)
				}
			}
		})
	}
}

func TestMeterSilence(t *testing.T) {
	conf := DefaultConfig().Trigger
	start := time.Unix(1000, 0)
	feed := func(m *meter, n int, from time.Time) time.Time {
		for i := range n {
			from = from.Add(33 * time.Millisecond)
			m.observe(conf, strain{}, 10*time.Second, from.UnixNano(), from)
			_ = i
		}
		return from
	}
	t.Run("of a live flow", func(t *testing.T) {
		var m meter
		last := feed(&m, 5, start)
		if why := m.silence(conf, strain{}, last.Add(449*time.Millisecond)); why != "" {
			t.Error("too early:", why)
		}
		why := m.silence(conf, strain{}, last.Add(450*time.Millisecond))
		if why != "no uplink packet of a live flow for 450 ms" {
			t.Errorf("%q", why)
		}
		if why := m.silence(conf, strain{}, last.Add(5*time.Second)); why != "" {
			t.Error("twice:", why)
		}
		last = feed(&m, 1, last.Add(5*time.Second))
		if m.silence(conf, strain{}, last.Add(time.Second)) == "" {
			t.Error("not after another packet")
		}
	})
	t.Run("before it is live", func(t *testing.T) {
		var m meter
		last := feed(&m, 4, start)
		if why := m.silence(conf, strain{}, last.Add(time.Second)); why != "" {
			t.Error(why)
		}
	})
	t.Run("switched off", func(t *testing.T) {
		off := conf
		off.Silence = 0
		var m meter
		last := feed(&m, 9, start)
		if why := m.silence(off, strain{}, last.Add(time.Hour)); why != "" {
			t.Error(why)
		}
	})
}

func TestOrdinal(t *testing.T) {
	for n, want := range map[int]string{
		1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th",
		21: "21st", 111: "111th",
	} {
		if got := ordinal(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}
