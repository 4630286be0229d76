package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/multipath"
	"holocast/internal/qoe"
)

// pathReport describes a path of the session.
type pathReport struct {
	Name          string  `json:"name"`
	RTTMS         float64 `json:"rtt_ms"`
	MbitPerS      float64 `json:"mbit_per_s"` // received
	Share         float64 `json:"share"`      // of the bytes received
	ReceivedBytes uint64  `json:"received_bytes"`
	TwiceBytes    uint64  `json:"twice_bytes"` // received, though another path had brought them
	Down          bool    `json:"down"`
}

// pathReports describes the paths of a multipath session.
type pathReports []pathReport

// String returns the paths as one line, which begins with two spaces if there are any.
func (l pathReports) String() string {
	var b strings.Builder
	for _, p := range l {
		if p.Down {
			fmt.Fprintf(&b, "  %s down", p.Name)
			continue
		}
		fmt.Fprintf(&b, "  %s %.1f Mbit/s (%.0f %%, %.0f ms", p.Name, p.MbitPerS, 100*p.Share, p.RTTMS)
		if share := 100 * float64(p.TwiceBytes) / float64(max(p.ReceivedBytes, 1)); share >= 0.5 {
			fmt.Fprintf(&b, ", %.0f %% twice", share)
		}
		b.WriteString(")")
	}
	return b.String()
}

// pathMeter measures the paths of the newest session.
type pathMeter struct {
	mu      sync.Mutex
	session *moqt.Session // nil if none is open
	began   time.Time     // when the session opened
	last    pathSample    // shown by live, or the last of the session
}

// pathSample is a reading of the paths at one moment.
type pathSample struct {
	at    time.Time
	paths []multipath.PathStats
}

// measured wraps a function that uses a session, so that the meter follows that session.
func (m *pathMeter) measured(
	use func(context.Context, *moqt.Session) error,
) func(context.Context, *moqt.Session) error {
	return func(ctx context.Context, s *moqt.Session) error {
		m.mu.Lock()
		m.session, m.began = s, time.Now()
		m.last = pathSample{at: m.began}
		m.mu.Unlock()
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.session == s {
				m.session, m.last = nil, pathSample{time.Now(), s.Paths()}
			}
		}()
		return use(ctx, s)
	}
}

// live describes the paths since the last call.
func (m *pathMeter) live(now time.Time) pathReports {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session == nil {
		return nil
	}
	before := m.last
	m.last = pathSample{now, m.session.Paths()}
	return m.last.since(before)
}

// total describes the paths over the newest session.
func (m *pathMeter) total(now time.Time) pathReports {
	m.mu.Lock()
	defer m.mu.Unlock()
	end := m.last
	if m.session != nil {
		end = pathSample{now, m.session.Paths()}
	}
	return end.since(pathSample{at: m.began})
}

// since describes the paths between two samples of a session.
func (s pathSample) since(before pathSample) (list pathReports) {
	seconds := max(s.at.Sub(before.at).Seconds(), 1e-3)
	var sum uint64
	for _, p := range s.paths {
		for _, b := range before.paths {
			if b.Name == p.Name {
				p.Received -= b.Received
				p.Repeated -= b.Repeated
			}
		}
		sum += p.Received
		list = append(list, pathReport{
			Name: p.Name, RTTMS: qoe.Round(p.RTT.Seconds()*1e3, 2), MbitPerS: qoe.Round(8e-6*float64(p.Received)/seconds, 3),
			ReceivedBytes: p.Received, TwiceBytes: p.Repeated, Down: p.Down,
		})
	}
	for i := range list {
		list[i].Share = qoe.Round(float64(list[i].ReceivedBytes)/float64(max(sum, 1)), 4)
	}
	return list
}
