package study

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holocast/internal/netlab/chart"
)

// A figure is one of the paper's, with our plot.
type paperFigure struct {
	number int
	file   string // of the plot
	title  string
	paper  string // its finding
	panels func(Result) []chart.Panel
	ours   func(Result) string // our finding in numbers
	why    string              // reasons for a difference

	buffers string // path of a table of throughput by buffers
}

// overTime lists the transports in plots over time. The paper plots YeAH alone.
var overTime = []string{udpPaced, "tcp-yeah", "tcp-cubic", "quic-yeah", "quic-bbr"}

func paperFigures() []paperFigure {
	mbps := func(c Cell) float64 { return c.Mbps }
	delay := func(c Cell) float64 { return c.DelayMs }
	jitter := func(c Cell) float64 { return c.JitterMs }
	delivery := func(c Cell) float64 { return 100 * c.Delivery }
	wired := []string{"wan"}
	return []paperFigure{
		{
			number: 3, file: "study-retrieval.svg", title: "Retrieval time by size of the object",
			paper: "UDP takes the least time for 400 Mbit; QUIC-YeAH and -Vegas take less than TCP-YeAH and -Vegas (figure " +
				"without numbers), because of several streams and their buffers",
			panels: func(r Result) (panels []chart.Panel) {
				for _, path := range Paths() {
					panels = append(panels, r.bySize(path+": seconds", path,
						func(c Cell) float64 { return notZero(c.RetrievalS) }))
				}
				return nonEmpty(panels)
			},
			ours: func(r Result) string {
				return r.compare(fmt.Sprintf("%d Mbit", r.largest()), "s", Paths(),
					[]string{udpPaced, "quic-yeah", "quic-vegas", "quic-bbr", "tcp-yeah", "tcp-vegas", "tcp-cubic", "tcp-bbr"},
					func(c Cell) float64 { return notZero(c.RetrievalS) })
			},
			why: "UDP repairs nothing, so its time covers only the packets that arrived. At 20 ms one way, small objects wait " +
				"for the handshake and the growth of the window, not for the rate.",
		},
		{
			number: 4, file: "study-throughput.svg", title: "Throughput",
			paper: "LAN: UDP 374, QUIC-YeAH 316, TCP-YeAH 288 Mbit/s, Vegas less. WAN: TCP grows with its buffers up to 2 MB, " +
				"QUIC does not depend on them",
			panels: func(r Result) []chart.Panel {
				return nonEmpty(r.byBuffer(wired, "Mbit/s", mbps))
			},
			ours: func(r Result) string {
				return r.compare(fmt.Sprintf("%d Mbit", r.largest()), "Mbit/s", []string{"lan", "wan"},
					[]string{udpPaced, "quic-yeah", "quic-vegas", "quic-bbr", "tcp-yeah", "tcp-vegas", "tcp-cubic", "tcp-bbr"}, mbps)
			},
			why: "The paper explains QUIC's gain by its buffers for each stream. Here a window below the path's " +
				"product limits QUIC as it limits TCP, and `-segments` has 16 such windows, as the paper's QUIC has one for each stream.",
			buffers: "wan",
		},
		{
			number: 5, file: "study-delay.svg", title: "Delay of packets",
			paper: "LAN: UDP 247 ms, QUIC-YeAH above TCP-YeAH. A queue of 100 packets at 400 Mbit/s holds 3 ms, so the " +
				"paper's delay includes more than it",
			panels: func(r Result) []chart.Panel {
				return nonEmpty(r.byBuffer(wired, "mean delay, ms", delay))
			},
			ours: func(r Result) string {
				return r.compare(fmt.Sprintf("%d Mbit", r.largest()), "ms", []string{"lan", "wan"},
					[]string{udp, udpPaced, "quic-yeah", "quic-bbr", "tcp-yeah", "tcp-cubic", "tcp-bbr", moqtName}, delay)
			},
			why: "The queue bounds the delay of all transports alike; they differ by how full they keep it.",
		},
		{
			number: 6, file: "study-jitter.svg", title: "Jitter of packets",
			paper: "QUIC above TCP, UDP lowest; jitter follows throughput (figure without numbers)",
			panels: func(r Result) []chart.Panel {
				return nonEmpty(r.byBuffer(wired, "mean jitter, ms", jitter))
			},
			ours: func(r Result) string {
				return r.compare(fmt.Sprintf("%d Mbit", r.largest()), "ms", []string{"lan", "wan"},
					[]string{udpPaced, "quic-yeah", "quic-bbr", "tcp-yeah", "tcp-cubic", "tcp-bbr", moqtName}, jitter)
			},
		},
		{
			number: 7, file: "study-queue.svg", title: "Queue over time",
			paper: "QUIC-YeAH keeps the 100 packets nearly full, TCP-YeAH half, UDP full",
			panels: func(r Result) []chart.Panel {
				return r.timeline("queue, packets", func(s *Series) ([]float64, []float64) { return s.QueueT, s.Queue })
			},
			why: "The plots show the largest queue of each 50 ms, at the first path.",
		},
		{
			number: 8, file: "study-window.svg", title: "Congestion window over time",
			paper: "YeAH grows exponentially and falls steeply when it detects congestion",
			panels: func(r Result) []chart.Panel {
				return r.timeline("congestion window, KiB", func(s *Series) ([]float64, []float64) { return s.T, gaps(s.Window) })
			},
		},
		{
			number: 9, file: "study-rtt.svg", title: "Round-trip time over time",
			paper: "WAN: TCP's a little above QUIC's, because a loss stalls the packets behind it",
			panels: func(r Result) []chart.Panel {
				return r.timeline("smoothed round-trip time, ms", func(s *Series) ([]float64, []float64) {
					return s.T, gaps(s.RTT)
				})
			},
			why: "Round-trip times are measured on packets, not on streams: a loss delays the data behind it, but " +
				"no sample. What differs is the queue that each controller builds.",
		},
		{
			number: 10, file: "study-wifi.svg", title: "Wireless client: throughput and delay",
			paper: "UDP falls from 340 to 76 Mbit/s; TCP and QUIC fall alike; delays grow by about 15 ms",
			panels: func(r Result) []chart.Panel {
				return nonEmpty(append(r.byBuffer([]string{"wifi"}, "Mbit/s", mbps),
					r.byBuffer([]string{"wifi"}, "mean delay, ms", delay)...))
			},
			ours: func(r Result) string {
				list := []string{
					udpPaced, "quic-yeah", "quic-bbr", "tcp-yeah", "tcp-cubic", "tcp-bbr", moqtName, webTransport,
				}
				size := fmt.Sprintf("%d Mbit", r.largest())
				return r.compare(size, "Mbit/s", []string{"wan", "wifi"}, list, mbps) + ". " +
					r.compare("Delay", "ms", []string{"wan", "wifi"}, list, delay)
			},
			why: "The channel repeats lost frames, so its losses show as delay and rate. Its " +
				"queue of 1000 packets is a multiple of the path's product: controllers that fill queues wait in it.",
			buffers: "wifi",
		},
		{
			number: 11, file: "study-delivery.svg", title: "Delivery ratio",
			paper: "TCP and QUIC 100 %; UDP 94 % to the wired client, worst to the wireless one (figure without numbers)",
			panels: func(r Result) []chart.Panel {
				return nonEmpty(r.byBuffer([]string{"wan", "wifi"}, "delivered, %", delivery))
			},
			ours: func(r Result) string {
				return r.compare(fmt.Sprintf("%d Mbit", r.largest()), "%", Paths(), []string{udp, udpPaced}, delivery)
			},
			why: "Paced, 398 Mbit/s of payload are 416 of Ethernet frames; the path carries 400, 96 %. " +
				"More arrives if a busy machine's sender falls behind. The paper's 94 % are the same overload.",
		},
	}
}

func notZero(v float64) float64 {
	if v == 0 {
		return math.NaN()
	}
	return v
}

func gaps(v []float64) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = notZero(v[i])
	}
	return out
}

func nonEmpty(panels []chart.Panel) (kept []chart.Panel) {
	for _, p := range panels {
		if len(p.Series) > 0 {
			kept = append(kept, p)
		}
	}
	return kept
}

// compare lists a figure of transports with large buffers, for the largest object.
func (r Result) compare(what, unit string, paths, names []string, value func(Cell) float64) string {
	var parts []string
	for _, path := range paths {
		var list []string
		for _, name := range names {
			cells := r.find(path, name, r.largest(), largeBuffer)
			if v := median(cells, value); !math.IsNaN(v) {
				list = append(list, fmt.Sprintf("%s %s%s", name, figure(v), mark(cells)))
			}
		}
		if len(list) > 0 {
			parts = append(parts, heading(path)+": "+strings.Join(list, ", "))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return what + ", " + unit + ". " + strings.Join(parts, ". ")
}

// figure writes three digits.
func figure(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

func mark(cells []Cell) string {
	for _, c := range cells {
		if len(c.Failures) > 0 {
			return "*"
		}
	}
	return ""
}

// line is a transport's figure over some quantity, in ascending order.
func line(name string, at []int, cells func(int) []Cell, value func(Cell) float64) (s chart.Series) {
	s.Name = name
	for _, x := range slices.Sorted(slices.Values(at)) {
		if v := median(cells(x), value); !math.IsNaN(v) {
			s.T, s.Y = append(s.T, float64(x)), append(s.Y, v)
		}
	}
	return s
}

// plotted lists the transports of plots by size and buffer.
var plotted = []string{
	udpPaced, "tcp-cubic", "tcp-bbr", "tcp-vegas", "tcp-yeah", "quic-bbr", "quic-cubic", "quic-vegas", "quic-yeah",
	"quic-yeah-segments", moqtName, webTransport,
}

func (r Result) bySize(title, path string, value func(Cell) float64) chart.Panel {
	p := chart.Panel{Title: title, X: "object, Mbit"}
	for _, name := range plotted {
		s := line(name, of(r, func(c Cell) int { return c.Mbit }), func(mbit int) []Cell {
			return r.find(path, name, mbit, largeBuffer)
		}, value)
		if len(s.T) > 1 {
			p.Series = append(p.Series, s)
		}
	}
	return p
}

func (r Result) byBuffer(paths []string, title string, value func(Cell) float64) (panels []chart.Panel) {
	for _, path := range paths {
		p := chart.Panel{
			Title: fmt.Sprintf("%s: %s, object of %d Mbit, by buffers", path, title, sweptMbit), X: "buffers, KiB",
		}
		for _, name := range plotted {
			s := line(name, of(r, func(c Cell) int { return c.KiB }), func(kib int) []Cell {
				return r.find(path, name, sweptMbit, kib)
			}, value)
			if len(s.T) > 1 {
				p.Series = append(p.Series, s)
			}
		}
		panels = append(panels, p)
	}
	return panels
}

func (r Result) timeline(title string, of func(*Series) (t, y []float64)) (panels []chart.Panel) {
	for _, path := range Paths() {
		p := chart.Panel{Title: path + ": " + title}
		for _, name := range overTime {
			for _, c := range r.find(path, name, r.largest(), largeBuffer) {
				if c.Series == nil {
					continue
				}
				s := chart.Series{Name: name}
				s.T, s.Y = of(c.Series)
				if hasValues(s.Y) {
					p.Series = append(p.Series, s)
				}
				break
			}
		}
		panels = append(panels, p)
	}
	return nonEmpty(panels)
}

func hasValues(y []float64) bool {
	for _, v := range y {
		if !math.IsNaN(v) {
			return true
		}
	}
	return false
}

// SavePlots draws a plot for each figure into dir.
func (r Result) SavePlots(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range paperFigures() {
		panels := f.panels(r)
		if len(panels) == 0 {
			continue
		}
		panels[len(panels)-1].X = panels[0].X
		if err := chart.Save(filepath.Join(dir, f.file), panels); err != nil {
			return err
		}
	}
	return nil
}
