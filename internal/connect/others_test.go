package connect

import (
	"slices"
	"testing"
	"time"
)

// TestSilence checks how long a peer counts as silent, and when it is probed.
func TestSilence(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := Silence{ProbeAfter: probeAfter}
	probes := 0
	observe := func(after time.Duration, bytes uint64) time.Duration {
		now = now.Add(after)
		silent, probe := s.Observe(now, bytes)
		if probe {
			probes++
		}
		return silent
	}
	observe(0, 100)
	for i := range uint64(10) {
		if silent := observe(look, 200+i); silent != 0 {
			t.Fatalf("silent for %v while bytes arrive", silent)
		}
	}
	for i := range 20 {
		if silent, want := observe(look, 209), time.Duration(i+1)*look; silent != want {
			t.Fatalf("silent for %v, want %v", silent, want)
		}
	}
	if probes != 1 {
		t.Errorf("%d probes of one silence, want 1", probes)
	}
	if silent := observe(look, 210); silent != 0 {
		t.Errorf("silent for %v after an answer", silent)
	}
	observe(look, 210)
	if silent := observe(10*time.Second, 210); silent != 0 {
		t.Errorf("silent for %v while this process was stalled", silent)
	}
}

// TestOthers checks which relays follow the one in use, and with which address, token and certificate.
func TestOthers(t *testing.T) {
	var o others
	home := Target{
		URL: "https://a.example:4443/demo#token=t", Relays: []string{"https://d.example", "https://a.example:4443"},
	}
	if !o.none(Target{}) || o.none(home) {
		t.Error("relays given by hand are not counted")
	}
	o.set([]byte(`{"relays":[{"url":"moqt://c.example:1","cost":1},{"url":"moqt://b.example:1","sha256":"` +
		"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff" + `"}]}`))
	o.set([]byte(`{"relays":[{"url":"https://wrong.example"}]}`)) // ignored
	var got []string
	for _, other := range o.of(home, home) {
		got = append(got, other.URL+" "+other.pin[:min(4, len(other.pin))])
	}
	want := []string{
		"https://b.example:1/demo#token=t 0011", "https://c.example:1/demo#token=t ", "https://d.example/demo#token=t ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("others %q, want %q", got, want)
	}
	at := o.of(home, home)[0]
	if list := o.of(home, at); len(list) != 3 || list[2].URL != home.URL || list[2].pin != "" {
		t.Errorf("after a move: %+v", list)
	}
	first := map[string]bool{}
	o.set([]byte(`{"relays":[{"url":"moqt://b.example"},{"url":"moqt://c.example"}]}`))
	for range 100 {
		first[o.of(home, home)[0].URL] = true
	}
	if len(first) != 2 {
		t.Errorf("of two equal relays, one always comes first: %v", first)
	}
}
