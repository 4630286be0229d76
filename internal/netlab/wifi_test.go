//go:build linux

package netlab

import (
	"testing"
	"time"

	"holocast/internal/netlab/probe"
)

// TestWifi sends packets in both directions over a channel in real time.
func TestWifi(t *testing.T) {
	l := start(t, `
name: wireless
late: 1m # the tests share their machine
hosts: [a, b]
wifi: {home: {standard: n, rate: 0, stations: [{rate: 1Mbit}]}}
paths: [{name: air, between: [a, b], wifi: home, delay: 5ms}]
`)
	there := flow(t, l, "a", "b", "10.77.1.1", "10.77.1.2",
		probe.Flow{Size: 1000, PacketRate: 2000, Duration: time.Second})
	back := flow(t, l, "b", "a", "10.77.1.2", "10.77.1.1", probe.Flow{Size: 100, PacketRate: 50, Duration: time.Second})
	// 16 Mbit/s do not fit into 6.5 (MCS 0 at 20 MHz), less the other station's share.
	if there.Received == 0 || there.Received > 900 || there.DelayMin < 6 || back.Received < 25 || back.DelayMin < 5 {
		t.Errorf("%+v, %+v", there, back)
	}
	r, err := l.Finish()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Paths {
		if p.Wifi == nil || p.Wifi.Exchanges == 0 || p.Wifi.Delivered == 0 || p.Faults.Any() > 0 {
			t.Errorf("%s: %+v, %+v", p.Name, p.Wifi, p.Faults)
		}
	}
}
