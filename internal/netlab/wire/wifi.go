//go:build linux

package wire

// #include "wifi.h"
import "C"

import (
	"errors"
	"time"
)

// A Medium is a Wi-Fi channel that links share. It is not safe for concurrent use.
type Medium struct{ wifi *C.struct_wifi }

// NewMedium returns a medium with the stations that load it. Equal seeds and packets give equal
// results.
func NewMedium(w *Wifi, seed uint64) (*Medium, error) {
	c := C.struct_wifi_config{
		slot: C.int64_t(w.Slot), sifs: C.int64_t(w.SIFS), aifs: C.int64_t(w.AIFS),
		cw_min: C.int(w.WindowMin), cw_max: C.int(w.WindowMax), attempts: C.int(w.Attempts),
		preamble: C.int64_t(w.Preamble), symbol: C.double(w.Symbol),
		ack: C.int64_t(w.Ack), block_ack: C.int64_t(w.BlockAck), longest: C.int64_t(w.MaxDuration),
		frames: C.int(w.MaxFrames), bytes: C.int64_t(w.MaxBytes), header: C.int(w.Header),
		rates: C.int(len(w.Rates)), adaptation: C.enum_wifi_adaptation(w.Adaptation), fixed: C.int(w.Fixed),
		snr: C.double(w.SNR), fading: C.double(w.Fading), coherence: C.int64_t(w.Coherence), slope: C.double(w.Slope),
		burst_share: C.double(w.BurstShare), burst_length: C.int64_t(w.BurstLength), burst_loss: C.double(w.BurstLoss),
	}
	if len(w.Rates) > C.WIFI_RATES {
		return nil, errors.New("too many Wi-Fi rates")
	}
	for i, r := range w.Rates {
		c.rate[i].bits, c.rate[i].snr = C.double(r.Bits), C.double(r.SNR)
	}
	m := &Medium{C.wifi_new(&c, C.uint64_t(seed))}
	if m.wifi == nil {
		return nil, errors.New("out of memory for a Wi-Fi medium")
	}
	for i, l := range w.Loads {
		if !C.wifi_load(m.wifi, C.double(l.Rate), C.uint32_t(l.Length), C.uint64_t(seed+uint64(i)+1)) {
			m.Close()
			return nil, errors.New("too many Wi-Fi stations")
		}
	}
	return m, nil
}

// NewLink is like the function NewLink, for a link that sends over m. The rates of timeline do not
// apply.
func (m *Medium) NewLink(timeline []Change, seed uint64) (*Link, error) {
	l, err := NewLink(timeline, seed)
	if err != nil {
		return nil, err
	}
	if err := m.attach(l); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (m *Medium) attach(l *Link) error {
	if !C.wifi_attach(m.wifi, l.link) {
		return errors.New("too many Wi-Fi stations")
	}
	return nil
}

// Close frees the medium. Its links must be closed before.
func (m *Medium) Close() {
	C.wifi_free(m.wifi)
	m.wifi = nil
}

// Run advances the medium.
func (m *Medium) Run(until time.Duration) { C.wifi_run(m.wifi, C.int64_t(until)) }

// Load reports the stations in Wifi.Loads, in their order.
func (m *Medium) Load(i int) WifiReport { return report(C.wifi_statistics(m.wifi, C.int(i))) }

// A WifiReport covers a station over a whole run.
type WifiReport struct {
	Exchanges  uint64  `json:"exchanges"`
	Collisions uint64  `json:"collisions"` // exchanges
	Frames     uint64  `json:"frames"`     // transmitted
	Retried    uint64  `json:"retried"`    // of those, not for the first time
	Dropped    uint64  `json:"dropped"`    // lost after the last attempt
	AirSeconds float64 `json:"air_s"`      // taken by the station's frames, with preambles
	PHYMbps    float64 `json:"phy_mbps"`   // bits of frames by AirSeconds
	Delivered  uint64  `json:"delivered"`  // bytes of Ethernet frames
}

func report(s *C.struct_wifi_stats) WifiReport {
	r := WifiReport{
		Exchanges: uint64(s.exchanges), Collisions: uint64(s.collisions),
		Frames: uint64(s.frames), Retried: uint64(s.retried), Dropped: uint64(s.dropped),
		AirSeconds: float64(s.air) / 1e9, Delivered: uint64(s.delivered),
	}
	if s.air > 0 {
		r.PHYMbps = float64(s.sent) * 8e3 / float64(s.air)
	}
	return r
}

// Wifi reports on a link's station. It returns nil without a medium.
func (l *Link) Wifi() *WifiReport { return wifiReport(l.link) }

func wifiReport(l *C.struct_link) *WifiReport {
	s := C.wifi_link_statistics(l)
	if s == nil {
		return nil
	}
	r := report(s)
	return &r
}
