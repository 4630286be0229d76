package config

import "testing"

func TestBitrate(t *testing.T) {
	for text, want := range map[string]Bitrate{
		"": 0, "16M": 16e6, "2.5M": 2.5e6, "500k": 500e3, "1G": 1e9, "4000000": 4e6,
		"16m": -1, "M": -1, "-4M": -1, "NaN": -1, "1": -1, "1e30": -1, "4 M": -1, "16Mbit": -1,
	} {
		var b Bitrate
		if err := b.UnmarshalText([]byte(text)); err != nil != (want < 0) || err == nil && b != want {
			t.Errorf("%q: %v, %v", text, b, err)
		}
		if want < 0 {
			continue
		}
		var again Bitrate
		text, _ := b.MarshalText()
		if err := again.UnmarshalText(text); err != nil || again != b {
			t.Errorf("%v became %q, then %v, %v", b, text, again, err)
		}
	}
}
