//go:build linux

package duplication

import (
	"fmt"
	"time"

	"holocast/internal/netlab"
	"holocast/internal/qoe"
)

// mostOthers limits how many processors other programs may use during a run.
const mostOthers = 0.3

// streamRate is the rate, in packets per second, from which a path counts as carrying more than
// probes.
const streamRate = 200

// judge copies the lab's failures and worst lateness to m, and for level nfov also the packet
// delays on the paths towards the viewer. It adds a failure if other programs used too much CPU
// time.
func (m *Measurement) judge(r *netlab.Report, length time.Duration) {
	m.Failures = r.Failures
	for i, p := range r.Paths {
		m.LateUs = max(m.LateUs, p.Late.P99)
		if p.From != near || m.Level != "nfov" {
			continue
		}
		for k := range paths {
			if p.Path != pathName(k+1) {
				continue
			}
			for _, s := range r.Series {
				if s.Seconds > length.Seconds() {
					break
				}
				if k == 0 {
					m.Delays.T = append(m.Delays.T, qoe.Round(s.Seconds, 2))
				}
				delay := 0.0
				if float64(s.Paths[i].PacketsOut) >= streamRate*s.Interval {
					delay = qoe.Round(s.Paths[i].DelayMean, 2)
				}
				m.Delays.Ms[k] = append(m.Delays.Ms[k], delay)
			}
		}
	}
	if n := m.Processors[others]; n > mostOthers {
		m.Failures = append(m.Failures, fmt.Sprintf("other programs used %.2f processors (limit %.2f)", n, mostOthers))
	}
}
