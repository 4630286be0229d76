package study

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Markdown returns the report.
func (r Result) Markdown() string {
	var b strings.Builder
	late := 0
	for _, c := range r.Cells {
		if len(c.Failures) > 0 {
			late++
		}
	}
	fmt.Fprintf(&b, "The study's own figures (I. Ali et al., arXiv 2306.16692, a simulation in ns-3) next to ours, of the "+
		"kernel's TCP, quic-go with our controllers, and MOQT, over emulated paths. %s discusses the paper.\n\n",
		"[The paper's page](../papers/transport-study.md)")
	fmt.Fprintf(&b, "Measured at %s UTC in %.0f s: %d cells, %d repeated because the emulator was late, %d still late and "+
		"marked *.", r.Began.UTC().Format("2006-01-02 15:04"), r.Seconds, len(r.Cells), r.Repeated, late)
	fmt.Fprintf(&b, " Cameras were measured %d at a time.", framesAtOnce)
	if r.Resumed > 0 {
		fmt.Fprintf(&b, " %d cells are from an earlier, interrupted run.", r.Resumed)
	}
	if r.Quick {
		b.WriteString(" A quick run repeats nothing: each figure is one transfer.")
	} else {
		b.WriteString(" Figures of the largest object and of frames are medians of three turns.")
	}
	if len(r.Missing) > 0 {
		fmt.Fprintf(&b, " This kernel lacks the congestion control of %s.", strings.Join(r.Missing, " and "))
	}
	if len(r.Added) > 0 {
		fmt.Fprintf(&b, " This kernel lacks the congestion control of %s; it is [ours](../../tools/lab/tcpcc/doc.go), in eBPF.",
			strings.Join(r.Added, " and "))
	}
	fmt.Fprintf(&b, " The machine has %d processors, and its load average before the run was %.1f.", r.Processors,
		r.LoadAverage)
	if r.LoadAverage >= float64(r.Processors)/2 {
		b.WriteString("\n\n**Noisy**: other programs used the machine.")
	}
	fmt.Fprintf(&b, "\n\n* `lan`: %s. `wan`: %s. The paper gives rate and queue but no delays; its TCP stops growing at "+
		"buffers of 2 MB, the product of 400 Mbit/s and 40 ms. `wifi`: the WAN and, at its end, the Wi-Fi model `%s` "+
		"([assumptions](../../internal/netlab/README.md#wi-fi)).\n", lanPath, wanPath, r.Wifi)
	fmt.Fprintf(&b, "* The server sends as soon as the client has connected. Retrieval counts from dialing to the last "+
		"byte, Mbit/s are the object's bits by that time. Delay and jitter are means over the packets towards the client: "+
		"one-way delay, and difference between successive packets, summed over `wifi`'s two paths.\n")
	fmt.Fprintf(&b, "* `udp` sends without pauses, `udp-paced` at %.0f Mbit/s, the paper's rate (374 Mbit/s arrive, 94 %%). "+
		"`-segments`: a stream for each %d kB, with %d stream windows in the connection's. Buffers are 4 MiB unless a "+
		"figure varies them.\n", udpRate/1e6, segmentBytes/1000, streams)
	seconds := slices.Max(append(of(r, func(c Cell) int { return c.Seconds }), 0))
	fmt.Fprintf(&b, "* Frames: %d kB, %d times a second (40 Mbit/s, the paper's figure for one compressed sensor), for %d s "+
		"after the first second, on time within %d ms, which is the delivery timeout of `moqt` and `webtransport`.\n",
		frameBytes/1000, framesPerS, seconds, frameDeadline.Milliseconds())
	sizes := slices.DeleteFunc(of(r, func(c Cell) int { return c.Mbit }), func(mbit int) bool {
		return mbit == 0 || mbit > r.largest()
	})
	slices.Sort(sizes)
	for _, path := range Paths() {
		r.table(&b, path, sizes)
	}
	r.acceptance(&b)
	r.reordering(&b)
	for _, f := range paperFigures() {
		panels := f.panels(r)
		if len(panels) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n### Figure %d: %s\n\nThe paper: %s.\n", f.number, strings.ToLower(f.title[:1])+f.title[1:],
			f.paper)
		if f.ours != nil {
			if text := f.ours(r); text != "" {
				fmt.Fprintf(&b, "\nHere: %s.\n", text)
			}
		}
		if f.buffers != "" {
			b.WriteString(r.buffers(f.buffers))
		}
		if f.why != "" {
			fmt.Fprintf(&b, "\n%s\n", f.why)
		}
		fmt.Fprintf(&b, "\n![%s](%s)\n", f.title, f.file)
	}
	return b.String()
}

func (r Result) table(b *strings.Builder, path string, sizes []int) {
	head, rule := "| transport |", "| --- |"
	for _, mbit := range sizes {
		head += fmt.Sprintf(" %d Mbit, s |", mbit)
		rule += " ---: |"
	}
	head += " Mbit/s | delay ms | jitter ms | delivered % | frames on time % | frame delay p50 / p99 ms |\n"
	rule += " ---: | ---: | ---: | ---: | ---: | ---: |\n"
	rows := ""
	for _, name := range r.names() {
		s, ok := r.summary(path, name)
		if !ok {
			continue
		}
		cells := r.find(path, name, r.largest(), largeBuffer)
		rows += "| " + name + mark(cells) + " |"
		for _, mbit := range sizes {
			v := median(r.find(path, name, mbit, largeBuffer), func(c Cell) float64 { return notZero(c.RetrievalS) })
			rows += " " + figure(v) + " |"
		}
		rows += fmt.Sprintf(" %s | %s | %s | %.1f |", figure(s.Mbps), figure(s.DelayMs), figure(s.JitterMs), 100*s.Delivery)
		if f, ok := r.camera(path, name); ok {
			rows += fmt.Sprintf(" %.1f%s | %.0f / %.0f |\n", 100*f.OnTime, mark(r.framesOf(path, name)), f.P50Ms, f.P99Ms)
		} else {
			rows += " | |\n"
		}
	}
	if rows != "" {
		fmt.Fprintf(b, "\n### %s\n\n%s%s%s", heading(path), head, rule, rows)
	}
}

// reordering compares throughput with and without reordering.
func (r Result) reordering(b *strings.Builder) {
	mbps := func(c Cell) float64 { return c.Mbps }
	rows, size := "", Options{Quick: r.Quick}.reorderMbit()
	for _, name := range reordered {
		calm := r.find(reordering[0], name, size, largeBuffer)
		row, any := fmt.Sprintf("| %s | %s%s |", name, figure(median(calm, mbps)), mark(calm)), false
		for _, path := range reordering[1:] {
			cells := r.find(path, name, size, largeBuffer)
			v := median(cells, mbps)
			any = any || !math.IsNaN(v)
			row += fmt.Sprintf(" %s%s (%.0f %%) |", figure(v), mark(cells), 100*v/median(calm, mbps))
		}
		if any {
			rows += row + "\n"
		}
	}
	if rows != "" {
		fmt.Fprintf(b, "\n### Reordering\n\nThe WAN, with a share of the packets 5 ms late, and later ones overtake them. "+
			"Mbit/s for %d Mbit, and the share of the figure without reordering.\n\n| transport | none | 1 %% | 5 %% | 20 %% "+
			"|\n| --- | ---: | ---: | ---: | ---: |\n%s", size, rows)
	}
}

// acceptance compares MOQT's frames with those of the best other reliable transport, and the delay of
// its packets with that of the fastest TCP.
func (r Result) acceptance(b *strings.Builder) {
	b.WriteString("\n### MOQT with BBR against the other reliable transports\n\n| path | MOQT frames on time % | best other " +
		"% | MOQT packet delay ms | … of the fastest TCP |\n| --- | ---: | ---: | ---: | ---: |\n")
	for _, path := range Paths() {
		ours, ok := r.camera(path, moqtName)
		if !ok {
			continue
		}
		best, who, fastest := 0.0, "", figures{}
		fastestWho := ""
		for _, name := range r.names() {
			if f, ok := r.camera(path, name); ok && reliable(name) && name != moqtName && name != webTransport &&
				f.OnTime > best {
				best, who = f.OnTime, name
			}
			if f, ok := r.summary(path, name); ok && strings.HasPrefix(name, tcpPrefix) && f.Mbps > fastest.Mbps {
				fastest, fastestWho = f, name
			}
		}
		delay := math.NaN()
		if f, ok := r.summary(path, moqtName); ok {
			delay = f.DelayMs
		}
		fmt.Fprintf(b, "| %s | %.1f | %.1f (%s) | %s | %s (%s) |\n", heading(path), 100*ours.OnTime, 100*best, who,
			figure(delay), figure(fastest.DelayMs), fastestWho)
	}
}

// heading is a path's name in titles.
func heading(path string) string {
	if path == "wifi" {
		return "Wi-Fi"
	}
	return strings.ToUpper(path)
}

// buffers is a table of throughput by buffer size.
func (r Result) buffers(path string) string {
	sizes := of(r, func(c Cell) int { return c.KiB })
	slices.Sort(sizes)
	head, rule, rows := "| Mbit/s by buffers, KiB |", "| --- |", ""
	for _, kib := range sizes {
		head += fmt.Sprintf(" %d |", kib)
		rule += " ---: |"
	}
	for _, name := range r.names() {
		row, values := "| "+name+" |", 0
		for _, kib := range sizes {
			cells := r.find(path, name, sweptMbit, kib)
			v := median(cells, func(c Cell) float64 { return c.Mbps })
			if !math.IsNaN(v) {
				values++
			}
			row += " " + figure(v) + mark(cells) + " |"
		}
		if values > 1 {
			rows += row + "\n"
		}
	}
	if rows == "" {
		return ""
	}
	return fmt.Sprintf("\n%s, %d Mbit:\n\n%s\n%s\n%s", heading(path), sweptMbit, head, rule, rows)
}
