// Package congestion measures congestion control over the paths of the network lab:
// throughput, queueing delay, the delay of a live stream of frames and fairness, of
// our controllers, of quic-go's own NewReno and of the kernel's TCP in the same run.
package congestion

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Options say what to measure.
type Options struct {
	Parts []string  // of Parts; none: all
	Quick bool      // path 1 alone, a few seconds each
	Log   io.Writer // progress, a line each; nil for none
}

// Parts are what a run can be divided into.
func Parts() []string { return []string{"path1", "matrix", "fairness"} }

// Result is what a run measured. The fields with a name of their own are medians
// of the repetitions; NewReno is quic-go's own.
type Result struct {
	Controllers  []string      `json:"controllers"` // that were in the program
	Path1        Comparison    `json:"path1"`
	Path1Varying Comparison    `json:"path1_varying"` // its delay drawn anew from 20 to 70 ms all the time
	LiveNFOV     Live          `json:"live_nfov"`
	LiveVarying  Live          `json:"live_nfov_varying"`
	Runs         []Measurement `json:"runs"`
}

// Comparison is bulk data over one path.
type Comparison struct {
	BBRMbps         float64 `json:"bbr_mbps"`
	NewRenoMbps     float64 `json:"newreno_mbps"`
	TCPBBRMbps      float64 `json:"tcp_bbr_mbps"`
	TCPCubicMbps    float64 `json:"tcp_cubic_mbps"`
	QueueDelayP50Ms float64 `json:"queue_delay_ms_p50"` // of BBR
	QueueDelayP99Ms float64 `json:"queue_delay_ms_p99"`
}

// Live is one camera's frames: 375 kB, 30 times a second.
type Live struct {
	BBRFPS          float64 `json:"bbr_fps"` // of frames that arrived within a second
	NewRenoFPS      float64 `json:"newreno_fps"`
	BBRDelayP50Ms   float64 `json:"bbr_frame_delay_ms_p50"`
	BBRDelayP99Ms   float64 `json:"bbr_frame_delay_ms_p99"`
	NewRenoDelayP50 float64 `json:"newreno_frame_delay_ms_p50"`
}

// Measurement is one run of one or more flows over a path.
type Measurement struct {
	Path           string   `json:"path"`
	Load           string   `json:"load"` // bulk or frames
	Seconds        float64  `json:"seconds"`
	Flows          []Flow   `json:"flows"`
	Mbps           float64  `json:"mbps"`           // of all flows
	Jain           float64  `json:"jain,omitempty"` // Jain's fairness index of several
	QueueP50Ms     float64  `json:"queue_delay_ms_p50"`
	QueueP99Ms     float64  `json:"queue_delay_ms_p99"`
	QueueDrops     uint64   `json:"queue_drops"`            // packets
	Lost           uint64   `json:"path_losses"`            // packets, by the path's own loss
	DepartureP99Us float64  `json:"departure_error_p99_us"` // of the emulator
	Failures       []string `json:"emulator_failures,omitempty"`
}

// Flow is one flow of a measurement.
type Flow struct {
	Transport  string  `json:"transport"`
	Mbps       float64 `json:"mbps"`
	FPS        float64 `json:"fps,omitempty"` // frames that arrived within a second of their capture
	FrameP50Ms float64 `json:"frame_delay_ms_p50,omitempty"`
	FrameP99Ms float64 `json:"frame_delay_ms_p99,omitempty"`

	series series
}

// Markdown is the result for people.
func (r Result) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Congestion controllers in this build: %s. `stock` is quic-go's own NewReno, `tcp-` the kernel's TCP.\n", strings.Join(r.Controllers, ", "))
	b.WriteString("Queueing delay is that of all packets from the first on, with slow start. A measurement marked * has an emulator that was late.\n")
	r.table(&b, "Bulk data", func(m *Measurement) bool { return m.Load == "bulk" && len(m.Flows) == 1 },
		"| path | transport | Mbit/s | queue p50 / p99 ms | queue drops |\n| --- | --- | ---: | ---: | ---: |\n",
		func(m *Measurement) string {
			return fmt.Sprintf("| %s%s | %s | %.0f | %.1f / %.1f | %d |\n", m.Path, m.mark(), m.Flows[0].Transport, m.Mbps, m.QueueP50Ms, m.QueueP99Ms, m.QueueDrops)
		})
	r.table(&b, "One camera, 375 kB 30 times a second", func(m *Measurement) bool { return m.Load == "frames" },
		"| path | transport | frames/s within 1 s | frame delay p50 / p99 ms | Mbit/s |\n| --- | --- | ---: | ---: | ---: |\n",
		func(m *Measurement) string {
			f := m.Flows[0]
			return fmt.Sprintf("| %s%s | %s | %.1f | %.0f / %.0f | %.0f |\n", m.Path, m.mark(), f.Transport, f.FPS, f.FrameP50Ms, f.FrameP99Ms, f.Mbps)
		})
	r.table(&b, "Flows that share a path", func(m *Measurement) bool { return m.Load == "bulk" && len(m.Flows) > 1 },
		"| path | flows, Mbit/s | Jain's index | queue p50 / p99 ms |\n| --- | --- | ---: | ---: |\n",
		func(m *Measurement) string {
			var flows []string
			for _, f := range m.Flows {
				flows = append(flows, fmt.Sprintf("%s %.0f", f.Transport, f.Mbps))
			}
			return fmt.Sprintf("| %s%s | %s | %.3f | %.1f / %.1f |\n", m.Path, m.mark(), strings.Join(flows, ", "), m.Jain, m.QueueP50Ms, m.QueueP99Ms)
		})
	return b.String()
}

func (r Result) table(b *strings.Builder, title string, of func(*Measurement) bool, head string, row func(*Measurement) string) {
	if !slices.ContainsFunc(r.Runs, func(m Measurement) bool { return of(&m) }) {
		return
	}
	fmt.Fprintf(b, "\n### %s\n\n%s", title, head)
	for i := range r.Runs {
		if m := &r.Runs[i]; of(m) {
			b.WriteString(row(m))
		}
	}
}

func (m *Measurement) mark() string {
	if len(m.Failures) > 0 {
		return "*"
	}
	return ""
}
