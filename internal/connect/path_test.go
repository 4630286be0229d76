package connect

import (
	"net/netip"
	"strings"
	"testing"

	"holocast/internal/moqt"
)

func TestParsePath(t *testing.T) {
	for text, want := range map[string]moqt.Path{
		"wifi=10.0.1.2": {Name: "wifi", Local: netip.MustParseAddr("10.0.1.2")},
		"10.0.1.2":      {Name: "10.0.1.2", Local: netip.MustParseAddr("10.0.1.2")},
		"5g=fd00::2":    {Name: "5g", Local: netip.MustParseAddr("fd00::2")},
		"mmwave=wlan1":  {Name: "mmwave", Device: "wlan1"},
		"wlan0":         {Name: "wlan0", Device: "wlan0"},
	} {
		if p, err := ParsePath(text); err != nil || p != want {
			t.Errorf("%s: %+v, %v", text, p, err)
		}
	}
	for _, text := range []string{"", "=wlan0", "wifi=", strings.Repeat("x", 33) + "=wlan0", "wlan\xff"} {
		if p, err := ParsePath(text); err == nil {
			t.Errorf("%q: %+v, want an error", text, p)
		}
	}
}
