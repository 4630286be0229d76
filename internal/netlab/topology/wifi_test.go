package topology

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestWifiModels(t *testing.T) {
	for _, name := range append(BuiltinWifis(), "wifi.yaml", "wifi-study.yaml") {
		if _, err := LoadWifi(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"office", "./missing.yaml", "lan.yaml"} {
		if _, err := LoadWifi(name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m, err := ParseWifi([]byte("standard: ac\nwidth: 80 MHz\nstreams: 2\nguard: 400ns"))
	if err != nil {
		t.Fatal(err)
	}
	w := m.Wire()
	// VHT-MCS 9 with two streams at 80 MHz is 866.7 Mbit/s; the preamble is 44 µs.
	if top := w.Rates[9].Bits / w.Symbol * 1e3; top < 866.6 || top > 866.7 || w.Preamble != 44*time.Microsecond {
		t.Errorf("%.1f Mbit/s, preamble %v", top, w.Preamble)
	}
	if w.AIFS != 43*time.Microsecond || w.WindowMin != 15 || w.MaxFrames != 64 {
		t.Errorf("%+v", *w)
	}
}

func TestWifiErrorsNameTheField(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "empty"},
		{"standard: b", `standard: "b"`},
		{"standard: n\nspeed: 1", "field speed is not known"},
		{"standard: n\nwidth: 80MHz", `width: "80MHz": want 20MHz, 40MHz`},
		{"standard: a\nguard: 400ns", `guard: "400ns"`},
		{"standard: a\nstreams: 2", "streams: 2"},
		{"standard: n\nrate: 8", `rate: "8"`},
		{"standard: n\nrate: fast", `rate: "fast"`},
		{"standard: n\nheader: 5", "header: 5"},
		{"standard: n\naggregation: {frames: 65}", "aggregation.frames: 65"},
		{"standard: n\naggregation: {bytes: 70000}", "aggregation.bytes: 70000"},
		{"standard: n\naggregation: {duration: 6ms}", `aggregation.duration: "6ms"`},
		{"standard: n\ncontention: {slot: 0s}", `contention.slot: "0s"`},
		{"standard: n\ncontention: {sifs: x}", `contention.sifs: "x"`},
		{"standard: n\ncontention: {aifsn: 16}", "contention.aifsn: 16"},
		{"standard: n\ncontention: {window: 31-15}", `contention.window: "31-15"`},
		{"standard: n\ncontention: {attempts: 300}", "contention.attempts: 300"},
		{"standard: n\nsignal: {snr: 30}", `signal.snr: "30"`},
		{"standard: n\nsignal: {fading: 30dB}", `signal.fading: "30dB"`},
		{"standard: n\nsignal: {coherence: 1us}", `signal.coherence: "1us"`},
		{"standard: n\nsignal: {slope: 11}", "signal.slope: 11"},
		{"standard: n\nbursts: {average: 100%, length: 1ms}", "bursts.average: "},
		{"standard: n\nbursts: {average: 5%, length: 1us}", `bursts.length: "1us"`},
		{"standard: n\nbursts: {average: 5%, length: 1ms, inBad: 2}", `bursts.inBad: "2"`},
		{"standard: n\nstations: [{rate: lots}]", `stations[0].rate (or "saturated"): "lots"`},
		{"standard: n\nstations: [{rate: 2Gbit}]", `stations[0].rate: "2Gbit"`},
		{"standard: n\nstations: [{rate: saturated, size: 9}]", "stations[0].size: 9"},
		{"standard: n\nstations: [{rate: saturated, count: 40}, {rate: saturated, count: 40}]", "stations: 80"},
		{"standard: n\nstations: [{rate: saturated, count: 99}]", "stations[0].count: 99"},
	} {
		if _, err := ParseWifi([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, not %s", c.text, err, c.want)
		}
	}
	for _, c := range []struct{ lines, want string }{
		{"wifi: home", `paths[0].wifi: "home"`},
	} {
		if _, err := parsed(c.lines); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, not %s", c.lines, err, c.want)
		}
	}
	head := "name: x\nhosts: [a, b]\nwifi: {home: {standard: n}}\npaths: [{name: p, between: [a, b], wifi: home"
	for _, c := range []struct{ text, want string }{
		{head + ", rate: 1Mbit}]", "paths[0]: rate: the channel"},
		{head + ", queue: 10ms}]", "paths[0]: queue: "},
		{strings.Replace(head, "standard: n", "standard: x", 1) + "}]", `wifi.home.standard: "x"`},
	} {
		if _, err := Parse([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, not %s", c.text, err, c.want)
		}
	}
}

func TestOverWifi(t *testing.T) {
	m, err := LoadWifi("study")
	if err != nil {
		t.Fatal(err)
	}
	path, err := Builtin("path1")
	if err != nil {
		t.Fatal(err)
	}
	over, err := path.OverWifi("", m)
	if err != nil {
		t.Fatal(err)
	}
	if len(over.Links) != 1 || len(over.Paths) != 2 || over.Paths[1].Name != "wifi" || over.Paths[1].Wifi == nil ||
		over.Paths[1].Between != [2]string{"eb", "b"} || over.Paths[1].Forward[0].QueuePackets != 1000 {
		t.Errorf("%+v", over)
	}
	if len(path.Links) != 2 || len(path.Paths) != 1 {
		t.Error("the original changed")
	}
	text, err := over.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Parse(text); err != nil || !reflect.DeepEqual(over, again) {
		t.Errorf("%v: changed by YAML and Parse:\n%s", err, text)
	}
	if _, err := over.OverWifi("b", m); err == nil || !strings.Contains(err.Error(), `host "b"`) {
		t.Errorf("twice: %v", err)
	}
	if _, err := over.OverWifi("a", m); err == nil || !strings.Contains(err.Error(), "channel named wifi") {
		t.Errorf("a second channel of this name: %v", err)
	}
}

// TestOverWifiKeepsChannels puts a host on Wi-Fi whose topology has another channel.
func TestOverWifiKeepsChannels(t *testing.T) {
	m, err := LoadWifi("home")
	if err != nil {
		t.Fatal(err)
	}
	two, err := Parse([]byte("name: two\nhosts: [a, b]\nedges: [e]\nwifi: {near: {standard: n}}\n" +
		"links: [{between: [e, b]}]\npaths: [{name: p, between: [a, e], wifi: near}]"))
	if err != nil {
		t.Fatal(err)
	}
	over, err := two.OverWifi("", m)
	if err != nil {
		t.Fatal(err)
	}
	if len(over.Paths) != 2 || !reflect.DeepEqual(over.Paths[0].Wifi, two.Paths[0].Wifi) ||
		!reflect.DeepEqual(over.Paths[1].Wifi, m.Wire()) {
		t.Errorf("%+v", over)
	}
}
