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

// Parts are what a run can be divided into: path 1 in detail, every controller over every
// path, a camera over every path, flows that share a path, and processor time.
func Parts() []string { return []string{"path1", "matrix", "frames", "fairness", "cpu"} }

// Transports that are not one of our controllers.
const (
	// stock is quic-go's own NewReno, as published.
	stock = "stock"
	// tcp- and a name is the kernel's TCP with that congestion control.
	tcpPrefix = "tcp-"
)

// Result is what a run measured. The fields with a name of their own are medians
// of the repetitions; NewReno is quic-go's own.
type Result struct {
	Controllers  []string         `json:"controllers"` // that were in the program
	Path1        Comparison       `json:"path1"`
	Path1Varying Comparison       `json:"path1_varying"` // its delay drawn anew from 20 to 70 ms all the time
	LiveNFOV     Live             `json:"live_nfov"`
	LiveVarying  Live             `json:"live_nfov_varying"`
	Fairness     map[string]Share `json:"fairness,omitempty"` // by path and flows
	CPU          *CPU             `json:"cpu,omitempty"`
	Repeated     int              `json:"repeated"` // measurements made anew because the emulator was late
	Seconds      float64          `json:"seconds"`  // that the run took
	Runs         []Measurement    `json:"runs"`
}

// Comparison is bulk data over one path.
type Comparison struct {
	BBRMbps         float64 `json:"bbr_mbps"`
	NewRenoMbps     float64 `json:"newreno_mbps"`
	TCPBBRMbps      float64 `json:"tcp_bbr_mbps"`
	TCPCubicMbps    float64 `json:"tcp_cubic_mbps,omitempty"`
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

// Share is what flows had of a path that they shared.
type Share struct {
	Jain float64   `json:"jain"` // Jain's fairness index
	Mbps []float64 `json:"mbps"`
}

// CPU is processor time of both ends over the loopback interface, seconds for a gigabit.
type CPU struct {
	BBR   float64 `json:"bbr_s_per_gbit"`
	Stock float64 `json:"stock_s_per_gbit"`
	Turns int     `json:"turns"` // that the medians are of
}

// Measurement is one run of one or more flows over a path.
type Measurement struct {
	Path           string   `json:"path"`
	Load           string   `json:"load"` // bulk or frames
	Seconds        float64  `json:"seconds"`
	Flows          []Flow   `json:"flows"`
	Mbps           float64  `json:"mbps"`               // of all flows
	Jain           float64  `json:"jain,omitempty"`     // Jain's fairness index of several
	QueueP50Ms     float64  `json:"queue_delay_ms_p50"` // after the warm-up, as the one-way delay
	QueueP99Ms     float64  `json:"queue_delay_ms_p99"`
	DelayP50Ms     float64  `json:"one_way_delay_ms_p50"`
	DelayP99Ms     float64  `json:"one_way_delay_ms_p99"`
	QueueDrops     uint64   `json:"queue_drops"`            // packets, with the warm-up
	Lost           uint64   `json:"path_losses"`            // packets, by the path's own loss, with the warm-up
	DepartureP99Us float64  `json:"departure_error_p99_us"` // of the emulator
	Failures       []string `json:"emulator_failures,omitempty"`
	Warnings       []string `json:"emulator_warnings,omitempty"`
}

// Flow is one flow of a measurement.
type Flow struct {
	Transport  string  `json:"transport"`
	Mbps       float64 `json:"mbps"`
	FPS        float64 `json:"fps,omitempty"` // frames captured in the time measured that arrived within a second
	FrameP50Ms float64 `json:"frame_delay_ms_p50,omitempty"`
	FrameP99Ms float64 `json:"frame_delay_ms_p99,omitempty"`

	series          series
	frameT, frameMs []float64 // seconds of arrival, delay
}

// Markdown is the result for people.
func (r Result) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Congestion controllers in this build: %s. `stock` is quic-go's own NewReno, `tcp-` the kernel's TCP. Mbit/s are of what the application received: of 400 Mbit/s of Ethernet frames, 379 at most over QUIC and 382 over TCP.\n", strings.Join(r.Controllers, ", "))
	fmt.Fprintf(&b, "Delays are those of all packets after the warm-up, drops and losses those of the whole measurement. %d measurements were made anew because the emulator was late; one marked * was late all the same.\n", r.Repeated)
	if c := r.CPU; c != nil {
		fmt.Fprintf(&b, "\nProcessor time of both ends over the loopback interface: %.3f s a gigabit with BBR, %.3f with quic-go's own NewReno, %+.1f %% (medians of %d turns).\n", c.BBR, c.Stock, 100*(c.BBR/c.Stock-1), c.Turns)
	}
	for _, p := range r.plots() {
		if len(p.panels) > 0 {
			fmt.Fprintf(&b, "\n![%s](%s)\n", p.about, p.file)
		}
	}
	r.medians(&b)
	r.table(&b, "Bulk data", func(m *Measurement) bool { return m.Load == "bulk" && len(m.Flows) == 1 },
		"| path | transport | Mbit/s | queue p50 / p99 ms | one-way delay p50 / p99 ms | queue drops | path losses |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |\n",
		func(m *Measurement) string {
			return fmt.Sprintf("| %s%s | %s | %.1f | %.1f / %.1f | %.1f / %.1f | %d | %d |\n", m.Path, m.mark(), m.Flows[0].Transport,
				m.Mbps, m.QueueP50Ms, m.QueueP99Ms, m.DelayP50Ms, m.DelayP99Ms, m.QueueDrops, m.Lost)
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
				flows = append(flows, fmt.Sprintf("%s %.1f", f.Transport, f.Mbps))
			}
			return fmt.Sprintf("| %s%s | %s | %.3f | %.1f / %.1f |\n", m.Path, m.mark(), strings.Join(flows, ", "), m.Jain, m.QueueP50Ms, m.QueueP99Ms)
		})
	return b.String()
}

// medians is the comparison that the other tables are the detail of.
func (r Result) medians(b *strings.Builder) {
	if r.Path1.BBRMbps == 0 {
		return
	}
	b.WriteString("\n### Path 1, medians\n\n| path | BBR | quic-go's NewReno | TCP BBR | TCP CUBIC | BBR's queue p50 / p99 ms |\n| --- | ---: | ---: | ---: | ---: | ---: |\n")
	for _, row := range []struct {
		name string
		c    Comparison
	}{{"path1, Mbit/s", r.Path1}, {"path1-varying, Mbit/s", r.Path1Varying}} {
		cubic := ""
		if row.c.TCPCubicMbps > 0 {
			cubic = fmt.Sprintf("%.1f", row.c.TCPCubicMbps)
		}
		fmt.Fprintf(b, "| %s | %.1f | %.1f | %.1f | %s | %.1f / %.1f |\n", row.name, row.c.BBRMbps, row.c.NewRenoMbps, row.c.TCPBBRMbps, cubic, row.c.QueueDelayP50Ms, row.c.QueueDelayP99Ms)
	}
	b.WriteString("\n| one camera | BBR frames/s | NewReno frames/s | BBR delay p50 / p99 ms | NewReno delay p50 ms |\n| --- | ---: | ---: | ---: | ---: |\n")
	for _, row := range []struct {
		name string
		l    Live
	}{{"path1", r.LiveNFOV}, {"path1-varying", r.LiveVarying}} {
		fmt.Fprintf(b, "| %s | %.1f | %.1f | %.0f / %.0f | %.0f |\n", row.name, row.l.BBRFPS, row.l.NewRenoFPS, row.l.BBRDelayP50Ms, row.l.BBRDelayP99Ms, row.l.NewRenoDelayP50)
	}
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
