// Package congestion measures congestion control over emulated paths. In one run it compares the
// throughput, queueing delay, frame delay and fairness of our controllers, quic-go's NewReno and
// the kernel's TCP.
package congestion

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"holocast/tools/lab/bench/internal/quantile"
)

// Options configure Run.
type Options struct {
	Parts []string  // some of Parts; nil = all
	Quick bool      // path 1 only, a few seconds each
	Log   io.Writer // progress lines; nil discards them
}

// Parts lists the parts: path 1 in detail, each controller over each path, a camera over each path,
// flows sharing a path, and CPU time.
func Parts() []string { return []string{"path1", "matrix", "frames", "fairness", "cpu"} }

// Transports other than our controllers.
const (
	// stock is quic-go's published NewReno.
	stock = "stock"

	// tcpPrefix followed by a name selects the kernel's TCP with that congestion control.
	tcpPrefix = "tcp-"
)

// Result holds the measurements. The fields from Path1 to CPU are medians over the repetitions;
// NewReno is quic-go's.
type Result struct {
	Controllers  []string         `json:"controllers"` // in this build
	Path1        Comparison       `json:"path1"`
	Path1Varying Comparison       `json:"path1_varying"` // delay varying continuously between 20 and 70 ms
	LiveNFOV     Live             `json:"live_nfov"`
	LiveVarying  Live             `json:"live_nfov_varying"`
	Fairness     map[string]Share `json:"fairness,omitempty"` // by path and flows
	CPU          *CPU             `json:"cpu,omitempty"`
	Measured     []Part           `json:"measured"`
	Runs         []Measurement    `json:"runs"`
}

// Part is a measured part.
type Part struct {
	Name     string    `json:"part"`
	Began    time.Time `json:"began"`
	Seconds  float64   `json:"seconds"`  // duration of the run
	Repeated int       `json:"repeated"` // measurements repeated because the emulator was late
	Plots    []string  `json:"plots,omitempty"`
}

// Comparison holds bulk transfers over one path.
type Comparison struct {
	BBRMbps         float64 `json:"bbr_mbps"`
	NewRenoMbps     float64 `json:"newreno_mbps"`
	TCPBBRMbps      float64 `json:"tcp_bbr_mbps"`
	TCPCubicMbps    float64 `json:"tcp_cubic_mbps,omitempty"`
	QueueDelayP50Ms float64 `json:"queue_delay_ms_p50"` // with BBR
	QueueDelayP99Ms float64 `json:"queue_delay_ms_p99"`
}

// Live holds the figures of one camera with 375 kB frames at 30 frames per second.
type Live struct {
	BBRFPS          float64 `json:"bbr_fps"` // frames that arrive within one second
	NewRenoFPS      float64 `json:"newreno_fps"`
	BBRDelayP50Ms   float64 `json:"bbr_frame_delay_ms_p50"`
	BBRDelayP99Ms   float64 `json:"bbr_frame_delay_ms_p99"`
	NewRenoDelayP50 float64 `json:"newreno_frame_delay_ms_p50"`
}

// Share holds the rates of flows sharing a path.
type Share struct {
	Jain float64   `json:"jain"` // Jain's fairness index
	Mbps []float64 `json:"mbps"`
}

// CPU is the CPU time of both ends over loopback, in seconds per gigabit.
type CPU struct {
	BBR   float64 `json:"bbr_s_per_gbit"`
	Stock float64 `json:"stock_s_per_gbit"`
	Turns int     `json:"turns"` // repetitions that the medians cover
}

// Measurement is one run of one or more flows over a path.
type Measurement struct {
	Part           string   `json:"part"`
	Path           string   `json:"path"`
	Load           string   `json:"load"` // bulk or frames
	Seconds        float64  `json:"seconds"`
	Flows          []Flow   `json:"flows"`
	Mbps           float64  `json:"mbps"`               // of all flows
	Jain           float64  `json:"jain,omitempty"`     // Jain's fairness index of several flows
	QueueP50Ms     float64  `json:"queue_delay_ms_p50"` // after the warm-up, in the forward direction
	QueueP99Ms     float64  `json:"queue_delay_ms_p99"`
	DelayP50Ms     float64  `json:"one_way_delay_ms_p50"`
	DelayP99Ms     float64  `json:"one_way_delay_ms_p99"`
	QueueDrops     uint64   `json:"queue_drops"`            // packets, including the warm-up
	Lost           uint64   `json:"path_losses"`            // packets lost by the path itself, also during the warm-up
	DepartureP99Us float64  `json:"departure_error_p99_us"` // of the emulator
	Failures       []string `json:"emulator_failures,omitempty"`
	Warnings       []string `json:"emulator_warnings,omitempty"`
}

// Flow is one flow of a measurement.
type Flow struct {
	Transport  string  `json:"transport"`
	Mbps       float64 `json:"mbps"`
	FPS        float64 `json:"fps,omitempty"` // captured during the measurement and arrived within one second
	FrameP50Ms float64 `json:"frame_delay_ms_p50,omitempty"`
	FrameP99Ms float64 `json:"frame_delay_ms_p99,omitempty"`

	series          series
	frameT, frameMs []float64 // arrival in seconds, delay
}

// Markdown returns the report.
func (r Result) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Congestion controllers in this build: %s. `stock` is quic-go's own NewReno, `tcp-` the "+
		"kernel's TCP. Mbit/s count application data that arrived during the measurement, each byte once, in any "+
		"order: data behind a gap counts on arrival, not when the gap closes, which could exceed the path's "+
		"rate over a short time. Of 400 Mbit/s of Ethernet frames that is at most 381 over QUIC and 383 over "+
		"TCP, briefly more while the path's delay falls.\n", strings.Join(r.Controllers, ", "))
	repeated := 0
	b.WriteString("\nMeasured")
	for i, p := range r.Measured {
		repeated += p.Repeated
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %s at %s UTC in %.0f s", p.Name, p.Began.UTC().Format("2006-01-02 15:04"), p.Seconds)
	}
	fmt.Fprintf(&b, ".\n\nDelays cover all packets after the warm-up, drops and losses the whole measurement. %d "+
		"measurements were repeated because the emulator was late; rows marked * were late in every attempt. "+
		"The column s is the length of a measurement, in seconds: a row of 2.5 s covers 12 round trips of paths 3 "+
		"and 4, and its loss-based controllers may not have settled.\n",
		repeated)
	if c := r.CPU; c != nil {
		fmt.Fprintf(&b, "\nCPU time of both ends over loopback: %.3f s per gigabit with BBR, %.3f with quic-go's "+
			"own NewReno, %+.1f %% (medians of %d turns).\n", c.BBR, c.Stock, 100*(c.BBR/c.Stock-1), c.Turns)
	}
	for _, p := range r.Measured {
		for _, name := range p.Plots {
			fmt.Fprintf(&b, "\n![%s](%s)\n", plotTitles[name], name)
		}
	}
	r.medians(&b)
	r.table(&b, "Bulk data", func(m *Measurement) bool { return m.Load == "bulk" && len(m.Flows) == 1 },
		"| path | transport | s | Mbit/s | queue p50 / p99 ms | one-way delay p50 / p99 ms | queue drops | path "+
			"losses |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
		func(m *Measurement) string {
			return fmt.Sprintf("| %s%s | %s | %.1f | %.1f | %.1f / %.1f | %.1f / %.1f | %d | %d |\n", m.Path, m.mark(),
				m.Flows[0].Transport, m.Seconds,
				m.Mbps, m.QueueP50Ms, m.QueueP99Ms, m.DelayP50Ms, m.DelayP99Ms, m.QueueDrops, m.Lost)
		})
	if slices.ContainsFunc(r.Runs, func(m Measurement) bool { return m.Part == "matrix" }) {
		b.WriteString("\n* Vegas on `lan`: it takes every delay above the least for its own queue, and stops growing at 2 " +
			"to 4 packets. With a round trip of 0.3 ms, the time that the hosts take to process packets and ACKs is " +
			"that long; the path's own queue stays empty.\n" +
			"* Bursts: the emulator's state advances with each packet, so a burst lasts for 10 packets however long " +
			"that takes. A sender that has only one packet to repeat, at doubling timeouts, needs ten of them: TCP " +
			"does not recover within the run after a loss of its first window, while BBR over QUIC keeps sending.\n")
	}
	r.table(&b, "One camera, 375 kB 30 times a second", func(m *Measurement) bool { return m.Load == "frames" },
		"| path | transport | s | frames/s within 1 s | frame delay p50 / p99 ms | Mbit/s |\n| --- | --- | ---: | "+
			"---: | ---: | ---: |\n",
		func(m *Measurement) string {
			f := m.Flows[0]
			return fmt.Sprintf("| %s%s | %s | %.1f | %.1f | %.0f / %.0f | %.0f |\n", m.Path, m.mark(), f.Transport,
				m.Seconds, f.FPS,
				f.FrameP50Ms, f.FrameP99Ms, f.Mbps)
		})
	r.table(&b, "Flows sharing a path", func(m *Measurement) bool { return m.Load == "bulk" && len(m.Flows) > 1 },
		"| path | s | flows, Mbit/s | Jain's index | queue p50 / p99 ms |\n| --- | ---: | --- | ---: | ---: |\n",
		func(m *Measurement) string {
			var flows []string
			for _, f := range m.Flows {
				flows = append(flows, fmt.Sprintf("%s %.1f", f.Transport, f.Mbps))
			}
			return fmt.Sprintf("| %s%s | %.1f | %s | %.3f | %.1f / %.1f |\n", m.Path, m.mark(), m.Seconds,
				strings.Join(flows, ", "), m.Jain, m.QueueP50Ms, m.QueueP99Ms)
		})
	return b.String()
}

// medians writes the summary for path 1.
func (r Result) medians(b *strings.Builder) {
	if r.Path1.BBRMbps == 0 {
		return
	}
	b.WriteString("\n### Path 1, medians\n\n| path | BBR | quic-go's NewReno | TCP BBR | TCP CUBIC | BBR's queue " +
		"p50 / p99 ms |\n| --- | ---: | ---: | ---: | ---: | ---: |\n")
	for _, row := range []struct {
		name string
		c    Comparison
	}{{"path1, Mbit/s", r.Path1}, {"path1-varying, Mbit/s", r.Path1Varying}} {
		cubic := ""
		if row.c.TCPCubicMbps > 0 {
			cubic = fmt.Sprintf("%.1f", row.c.TCPCubicMbps)
		}
		fmt.Fprintf(b, "| %s | %.1f | %.1f | %.1f | %s | %.1f / %.1f |\n", row.name, row.c.BBRMbps, row.c.NewRenoMbps,
			row.c.TCPBBRMbps, cubic, row.c.QueueDelayP50Ms, row.c.QueueDelayP99Ms)
	}
	b.WriteString("\n| one camera | BBR frames/s | NewReno frames/s | BBR delay p50 / p99 ms | NewReno delay p50 ms " +
		"|\n| --- | ---: | ---: | ---: | ---: |\n")
	for _, row := range []struct {
		name string
		l    Live
	}{{"path1", r.LiveNFOV}, {"path1-varying", r.LiveVarying}} {
		fmt.Fprintf(b, "| %s | %.1f | %.1f | %.0f / %.0f | %.0f |\n", row.name, row.l.BBRFPS, row.l.NewRenoFPS,
			row.l.BBRDelayP50Ms, row.l.BBRDelayP99Ms, row.l.NewRenoDelayP50)
	}
}

func (r Result) table(b *strings.Builder, title string, of func(*Measurement) bool, head string,
	row func(*Measurement) string,
) {
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

// With returns r, completed with the parts of an earlier result that r lacks.
func (r Result) With(earlier []byte) (interface{ Markdown() string }, error) {
	var old Result
	if err := json.Unmarshal(earlier, &old); err != nil {
		return nil, fmt.Errorf("read earlier result: %w", err)
	}
	has := func(part string) bool {
		return slices.ContainsFunc(r.Measured, func(p Part) bool { return p.Name == part })
	}
	if r.CPU == nil {
		r.CPU = old.CPU
	}
	var runs []Measurement
	var measured []Part
	for _, part := range Parts() {
		from := &r
		if !has(part) {
			from = &old
		}
		for _, p := range from.Measured {
			if p.Name == part {
				measured = append(measured, p)
			}
		}
		for _, m := range from.Runs {
			if m.Part == part {
				runs = append(runs, m)
			}
		}
	}
	r.Runs, r.Measured = runs, measured
	r.summarize()
	return r, nil
}

// summarize computes the named fields.
func (r *Result) summarize() {
	r.Path1, r.Path1Varying = r.compare("path1"), r.compare("path1-varying")
	r.LiveNFOV, r.LiveVarying = r.live("path1"), r.live("path1-varying")
	r.Fairness = map[string]Share{}
	for _, m := range r.Runs {
		if len(m.Flows) < 2 {
			continue
		}
		s := Share{Jain: m.Jain}
		var transports []string
		for _, f := range m.Flows {
			s.Mbps, transports = append(s.Mbps, f.Mbps), append(transports, f.Transport)
		}
		r.Fairness[m.Path+" "+strings.Join(transports, "+")] = s
	}
}

// median returns a figure's median over the runs of a single transport over a path.
func (r *Result) median(path, load, transport string, of func(*Measurement) float64) float64 {
	var v []float64
	for i := range r.Runs {
		if m := &r.Runs[i]; m.Part == "path1" && m.Path == path && m.Load == load && len(m.Flows) == 1 &&
			m.Flows[0].Transport == transport {
			v = append(v, of(m))
		}
	}
	return quantile.Of(v, 0.5)
}

func (r *Result) compare(path string) Comparison {
	mbps := func(transport string) float64 {
		return r.median(path, "bulk", transport, func(m *Measurement) float64 { return m.Mbps })
	}
	return Comparison{
		BBRMbps: mbps("bbr"), NewRenoMbps: mbps(stock), TCPBBRMbps: mbps("tcp-bbr"), TCPCubicMbps: mbps("tcp-cubic"),
		QueueDelayP50Ms: r.median(path, "bulk", "bbr", func(m *Measurement) float64 { return m.QueueP50Ms }),
		QueueDelayP99Ms: r.median(path, "bulk", "bbr", func(m *Measurement) float64 { return m.QueueP99Ms }),
	}
}

func (r *Result) live(path string) Live {
	of := func(transport string, f func(*Flow) float64) float64 {
		return r.median(path, "frames", transport, func(m *Measurement) float64 { return f(&m.Flows[0]) })
	}
	fps := func(f *Flow) float64 { return f.FPS }
	p50 := func(f *Flow) float64 { return f.FrameP50Ms }
	return Live{
		BBRFPS: of("bbr", fps), NewRenoFPS: of(stock, fps),
		BBRDelayP50Ms: of("bbr", p50), NewRenoDelayP50: of(stock, p50),
		BBRDelayP99Ms: of("bbr", func(f *Flow) float64 { return f.FrameP99Ms }),
	}
}
