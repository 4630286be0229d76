package cluster

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// ms converts milliseconds to nanoseconds.
func ms(t float64) int64 { return int64(t * 1e6) }

// film returns frames sent every 100 ms until end, in milliseconds.
func film(end float64) (list []sentFrame) {
	for i := range int(end / 100) {
		list = append(list, sentFrame{uint64(i), ms(float64(i) * 100)})
	}
	return list
}

// received returns the arrivals of the frames that keep accepts, each with a delay of 20 ms.
func received(sent []sentFrame, keep func(t float64) bool) (list []arrival) {
	for _, f := range sent {
		if keep(float64(f.at) / 1e6) {
			list = append(list, arrival{f.frame, f.at, f.at + ms(20)})
		}
	}
	return list
}

func TestOutage(t *testing.T) {
	sent := film(10_000)
	all := func(float64) bool { return true }
	for _, tt := range []struct {
		name        string
		got         []arrival
		began, end  float64 // of the fault
		until       float64
		lost        int
		gap         float64
		unrecovered bool
	}{
		{"nothing happens", received(sent, all), 3000, 4000, 9000, 0, 100, false},
		{
			"five frames missing",
			received(sent, func(t float64) bool { return t < 3000 || t >= 3500 }),
			3000, 4000, 9000, 5, 600, false,
		},
		{
			"loss before the fault is not counted, loss in flight is",
			received(sent, func(t float64) bool { return t != 1000 && t != 2900 }),
			3000, 4000, 9000, 1, 200, false,
		},
		{
			"frames of the last second may be in flight",
			received(sent, func(t float64) bool { return t < 8000 }),
			3000, 4000, 9000, 0, 1080, false,
		},
		{
			"not recovered",
			received(sent, func(t float64) bool { return t < 3000 }),
			3000, 4000, 9000, 50, 6080, true,
		},
		{
			"frames sent during the fault arrive after it: no recovery",
			received(sent, func(t float64) bool { return t < 3500 }),
			3000, 4000, 9000, 45, 5580, true,
		},
		{
			"arrivals after the end",
			received(sent, func(t float64) bool { return t < 3000 || t >= 9000 }),
			3000, 4000, 9000, 50, 6080, true,
		},
		{"no arrivals at all", nil, 3000, 4000, 9000, 60, 6000, true},
		{
			"arrivals twice and out of order",
			append(received(sent, all), received(sent, all)[:40]...),
			3000, 4000, 9000, 0, 100, false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			slices.Reverse(tt.got)
			o := outageOf(sent, tt.got, ms(tt.began), ms(tt.end), ms(tt.until))
			if o.lost != tt.lost || o.gap != time.Duration(ms(tt.gap)) || o.recovered == tt.unrecovered {
				t.Errorf("%+v, want %d lost, gap %v ms", o, tt.lost, tt.gap)
			}
		})
	}
}

func TestHopDelays(t *testing.T) {
	near := []arrival{{1, 0, ms(3)}, {1, 0, ms(2)}, {2, ms(33), ms(36)}, {3, ms(66), ms(70)}}
	far := []arrival{{1, 0, ms(22)}, {2, ms(33), ms(66)}, {2, ms(33), ms(57)}, {4, ms(99), ms(120)}}
	got := hopDelays(near, far)
	slices.Sort(got)
	if want := []time.Duration{20 * time.Millisecond, 21 * time.Millisecond}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := between(far, ms(33), ms(99)); len(got) != 2 {
		t.Errorf("%v", got)
	}
}

func TestCopies(t *testing.T) {
	for _, tt := range []struct{ publisher, relay, want float64 }{{100, 100, 1}, {100, 200, 2}, {0, 100, 0}, {100, 0, 0}} {
		if got := copies(tt.publisher, tt.relay); got != tt.want {
			t.Errorf("%v of %v: %v, want %v", tt.relay, tt.publisher, got, tt.want)
		}
	}
}

// TestJSON checks the figures of a fault, with and without affected viewers.
func TestJSON(t *testing.T) {
	second := outage{lost: 30, gap: time.Second, recovered: true}
	r := Result{Copies: 1, Failover: map[string]*Failover{
		killedRelay: {
			Repetitions: 1, Wrong: 3, atAll: []outage{second, {lost: 40, gap: 2 * time.Second}},
			othersAll: []outage{{gap: 33 * time.Millisecond}},
		},
		cutBus: {Repetitions: 1, othersAll: []outage{second}, settled: []time.Duration{7 * time.Second}},
	}}
	for _, f := range r.Failover {
		f.summarize()
	}
	b, err := json.Marshal(&r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"copies":1`, `"killed_relay":{"repetitions":1,"not_recovered":2,"wrong_frames":3,"samples":2,"frames_lost_p50":40`,
		`"gap_ms_p50":2000,"gap_ms_p95":2000`, `"gap_ms_p95_others":33`,
		`"cut_bus":{"repetitions":1,"not_recovered":0,"wrong_frames":0,"one_owner_ms_p95":7000,"samples_others":1,"frames_lost_p50_others":30`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in %s", want, b)
		}
	}
	md := r.Markdown()
	for _, want := range []string{
		"| relay B killed, restarted after 3 s | 1 | 40 / 40 | 2000 / 2000 | 0 / 0 | 33 / 33 | 2 |",
		"| NATS gone (cluster ports blocked) for 30 s | 1 | – | – | 30 / 30 | 1000 / 1000 | 0 |",
	} {
		if !strings.Contains(md, want) {
			t.Errorf("no %s in\n%s", want, md)
		}
	}
}

func TestOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"no part": {Client: []string{"x"}, Parts: []string{"killed_moon"}},
		"Client":  {},
	} {
		if _, err := o.withDefaults(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := RunClient(t.Context(), `{"role": "none"}`, strings.NewReader(""), t.Output()); err == nil {
		t.Error("ran an unknown client")
	}
}
