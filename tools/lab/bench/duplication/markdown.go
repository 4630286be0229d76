package duplication

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// named returns the levels that were measured, in the paper's order.
func (r *Result) named() (names []string, ls []*Level) {
	for i, l := range []*Level{r.NFOV, r.HD, r.FHD} {
		if l != nil {
			names, ls = append(names, strings.ToUpper(levels[i].name)), append(ls, l)
		}
	}
	return names, ls
}

// run returns the run of a level in a mode, nil if there was none.
func (r *Result) run(level string, m Mode) *Measurement {
	for _, x := range r.Runs {
		if strings.EqualFold(x.Level, level) && x.Mode == m {
			return x
		}
	}
	return nil
}

// Markdown is the result for people.
func (r *Result) Markdown() string {
	switch r.App {
	case LiveScan:
		return r.livescanMarkdown()
	case Uplink:
		return r.uplinkMarkdown()
	}
	var b strings.Builder
	names, _ := r.named()
	fmt.Fprintf(&b, `Capture server, relay and player stream %d frames a second over the five paths of Table I of Qian et al., "Enabling
eBPF-based packet duplication for robust volumetric video streaming", in the network lab, %.0f s a run, all on one machine with
%d processors. Delays vary from %.0f s to %.0f s; what is measured is measured then, as in the paper. Source: %s.

* *reference*: path 1 alone, nothing varies
* *single*: path 1 alone
* *redirect*: the controller moves the flow to the path with the least round-trip time
* *duplicate*: all paths, trimmed by the elimination

The programs of the session know nothing of the pair. NFOV is captured and encoded as it is sent; HD and FHD were encoded
before, so their frame delay begins when the encoded frame is handed to the network.

`, fps, r.Seconds, r.Processors, r.From, r.To, r.Source)
	for _, l := range levels {
		if slices.Contains(names, strings.ToUpper(l.name)) {
			fmt.Fprintf(&b, "* %s\n", l.about)
		}
	}
	b.WriteString("\n")
	r.table(&b)
	r.compare(&b)
	r.decisions(&b)
	r.processors(&b)
	r.exactness(&b)
	return b.String()
}

func (r *Result) table(b *strings.Builder) {
	b.WriteString("| level | points a frame | mode | FPS | frame delay p50 / p95 / p99 ms | p95 by reference | throughput Mbit/s | bytes sent, by those of one path |\n" +
		"| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |\n")
	names, ls := r.named()
	for i, l := range ls {
		first := fmt.Sprintf("%s, %.0f Mbit/s | %.0f", names[i], l.Mbps, l.Points)
		for _, mode := range Modes {
			m := r.run(names[i], mode)
			if m == nil {
				continue
			}
			against := "–"
			if reference := l.DelayP95[Reference]; reference > 0 {
				against = fmt.Sprintf("%.2f", l.DelayP95[mode]/reference)
			}
			fmt.Fprintf(b, "| %s | %s%s | %.1f | %.0f / %.0f / %.0f | %s | %.0f | %.2f |\n", first, mode, m.mark(), m.FPS,
				m.Delay.P50, m.Delay.P95, m.Delay.P99, against, m.Mbps, m.Cost)
			first = " | "
		}
	}
	b.WriteString("\nBytes are counted at the edges' interfaces, both ways, over the whole run: sent on all paths, by received from source and viewer.\n\n")
	r.times(b)
	for _, f := range []struct{ file, about string }{
		{"nfov", "NFOV over time (Fig. 5)"},
		{"hd", "HD over time"},
		{"fhd", "FHD over time"},
		{"paths", "Packets and rewards of the paths, NFOV with duplication (Fig. 6)"},
		{"gain", "Throughput by that of the single path (Fig. 7)"},
	} {
		if r.draws(f.file) {
			fmt.Fprintf(b, "![%s](%s)\n", f.about, r.plotName(f.file))
		}
	}
}

// times says when each run began, for a result may hold runs of several days.
func (r *Result) times(b *strings.Builder) {
	var began []string
	for _, m := range r.Runs {
		if !m.Began.IsZero() {
			began = append(began, fmt.Sprintf("%s %s %s", strings.ToUpper(m.Level), m.Mode, m.Began.Format("2006-01-02 15:04")))
		}
	}
	if began != nil {
		fmt.Fprintf(b, "Runs began, UTC: %s.\n\n", strings.Join(began, ", "))
	}
}

func (r *Result) compare(b *strings.Builder) {
	b.WriteString("\n## Beside the paper\n\n")
	r.beside(b)
	b.WriteString(`
Where this differs from the paper, and why:

* The single path keeps more of its frame rate. The paper's viewer asks for each frame over TCP, so a longer round trip means fewer
  frames; ours is sent every frame as it is captured, each on a QUIC stream of its own, and BBR is not limited by what the
  application does not send. What varying delays cost is seen in the frame delay. For the same reason throughput, which is
  what the camera makes, gains little.
* The trigger watches receipts, one for every frame shown, where the paper's watches requests. Frames that are late but not lost
  keep them coming, so the paper's 150 ms three times running do not occur; the thresholds that were set are below.
* Packets to the viewer are duplicated, as in the paper; those from it, a hundredth of the bytes, take path 1.
* The window of the elimination is a time, not 100 packets. Table I is emulated with delays that hold for 50 to 200 ms and packets
  in order; 100 packets pass in 13 ms at NFOV and see one delay only. See netfunc/elimination.
* The last path but one is given up on evidence of twice that time, and comes back at once when the trigger fires again: alone, a
  path of Table I holds up every third of the largest frames, for it loses a packet in 2000.
* Redirection goes by round-trip time, and path 5 has the least when path 1 varies, but an eighth of its rate. The flow fills
  its queue before the next trigger moves it to path 2, where it stays well.
* FHD is at the limit of two processors. In 20 s runs on a machine where other programs took 0.6 to 0.9 processors, the parts of a run
  used 1.6 with path 1 alone and 1.8 with duplication, of which the player 0.5. While all five paths carry the stream, which is two
  seconds whenever the trigger starts all, its bytes are fivefold and its frames later. Paths 3 to 5 do not carry it: once the receiver
  has found so, they stay out for 16 re-arm times.
`)
	if r.Trigger != "" {
		fmt.Fprintf(b, "\n%s\n", r.Trigger)
	}
	b.WriteString("\nBeside this: [the paper's own kind of application](duplication-livescan.md), over TCP; [the uplink](duplication-uplink.md), from a publisher.\n")
}

// beside is the paper's figures beside ours.
func (r *Result) beside(b *strings.Builder) {
	b.WriteString("| | paper | here |\n| --- | --- | --- |\n")
	each := func(format string, value func(*Level) (any, bool)) string {
		var parts []string
		names, ls := r.named()
		for i, l := range ls {
			if v, ok := value(l); ok {
				parts = append(parts, fmt.Sprintf("%s "+format, names[i], v))
			}
		}
		if parts == nil {
			return "–"
		}
		return strings.Join(parts, ", ")
	}
	of := func(m func(*Level) map[Mode]float64, mode Mode) func(*Level) (any, bool) {
		return func(l *Level) (any, bool) { v, ok := m(l)[mode]; return v, ok }
	}
	rate := func(l *Level) map[Mode]float64 { return l.FPS }
	gain := func(l *Level) map[Mode]float64 { return l.Gain }
	rows := []struct{ what, paper, here string }{
		{"FPS with duplication", "almost full at all levels", each("%.1f", of(rate, Duplicate))},
		{"FPS of the single path", "falls with the level; FHD as low as 3", each("%.1f", of(rate, Single))},
		{"throughput of duplication, by that of the single path", "about 7 at FHD, less at NFOV", each("%.2f", of(gain, Duplicate))},
		{"the same of redirection", "less than duplication", each("%.2f", of(gain, Redirect))},
		{"bandwidth cost of duplication, whole run", "NFOV 1.8, FHD 2.4", each("%.2f", func(l *Level) (any, bool) { return l.Cost, l.Cost > 0 })},
		{"the same while delays vary", "–", each("%.2f", func(l *Level) (any, bool) { return l.CostVarying, l.CostVarying > 0 })},
		{"paths kept while delays vary", "1 and 2", each("%s", func(l *Level) (any, bool) {
			for _, m := range r.Runs {
				if m.Mode == Duplicate && r.levelOf(m) == l {
					return m.kept(r.From, r.To)
				}
			}
			return "", false
		})},
	}
	for _, row := range rows {
		fmt.Fprintf(b, "| %s | %s | %s |\n", row.what, row.paper, row.here)
	}
}

func (r *Result) levelOf(m *Measurement) *Level {
	return map[string]*Level{"nfov": r.NFOV, "hd": r.HD, "fhd": r.FHD}[m.Level]
}

// kept is the path set that duplication had for the longest while delays varied, of those
// that the elimination left; "" where it left none.
func (m *Measurement) kept(from, to float64) (kept string, ok bool) {
	length := map[string]float64{}
	for i, d := range m.Decisions {
		end := to
		if i+1 < len(m.Decisions) {
			end = min(to, m.Decisions[i+1].T)
		}
		if len(d.Paths) < paths && len(d.Paths) > 0 && d.Kind != "rearm" {
			length[join(d.Paths)] += max(0, end-max(from, d.T))
		}
	}
	for set, l := range length {
		if l > length[kept] {
			kept = set
		}
	}
	return kept, kept != ""
}

func join(indices []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(indices), " ", "+"), "[]")
}

func (r *Result) decisions(b *strings.Builder) {
	for _, m := range r.Runs {
		if len(m.Decisions) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n### Decisions, %s %s\n\n| s | | paths | reason |\n| ---: | --- | --- | --- |\n", strings.ToUpper(m.Level), m.Mode)
		for _, d := range m.Decisions {
			fmt.Fprintf(b, "| %.2f | %s | %s | %s |\n", d.T, d.Kind, join(d.Paths), d.Reason)
		}
	}
}

// processors is who used how much of the machine's processors in each run.
func (r *Result) processors(b *strings.Builder) {
	sums := map[string]float64{}
	for _, m := range r.Runs {
		for who, share := range m.Processors {
			sums[who] += share
		}
	}
	if len(sums) == 0 {
		return
	}
	parts := slices.SortedFunc(maps.Keys(sums), func(a, b string) int {
		return cmp.Or(cmp.Compare(sums[b], sums[a]), strings.Compare(a, b))
	})
	fmt.Fprintf(b, "\n### Processors used\n\nOf %d. *network* is the emulation, *interrupts* what the kernel does for packets, also the pair's programs.\n\n| run | %s |\n| --- |%s\n",
		r.Processors, strings.Join(parts, " | "), strings.Repeat(" ---: |", len(parts)))
	for _, m := range r.Runs {
		fmt.Fprintf(b, "| %s %s |", strings.ToUpper(m.Level), m.Mode)
		for _, who := range parts {
			fmt.Fprintf(b, " %.2f |", m.Processors[who])
		}
		b.WriteString("\n")
	}
}

// exactness says how far the runs can be trusted.
func (r *Result) exactness(b *strings.Builder) {
	late, busy, again := 0.0, 0.0, 0
	for _, m := range r.Runs {
		late, busy = max(late, m.LateUs), max(busy, m.Processors["others"])
		again += m.Attempts - 1
	}
	fmt.Fprintf(b, "\nDeparture error of the emulation, 99th percentile of the worst path of all runs: %.0f µs. Other programs of the machine took at most %.2f processors; %d runs were made again for want of quiet.\n", late, busy, again)
	for _, m := range r.Runs {
		for _, f := range m.Failures {
			fmt.Fprintf(b, "\\* %s, %s: %s.\n", strings.ToUpper(m.Level), m.Mode, f)
		}
	}
}

func (m *Measurement) mark() string {
	if len(m.Failures) > 0 {
		return "*"
	}
	return ""
}

// livescanMarkdown is the result of LiveScan for people.
func (r *Result) livescanMarkdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, `The paper's own kind of application (Qian et al., "Enabling eBPF-based packet duplication for robust volumetric video
streaming"): a viewer asks for each frame over TCP, as LiveScan3D's do. `+"`holocast bridge`"+` serves a session of %d frames a second
over the five paths of Table I in the network lab, %.0f s a run, all on one machine with %d processors. Delays vary from %.0f s to
%.0f s; what is measured is measured then, as in the paper. Source: %s.

* *reference*: path 1 alone, nothing varies
* *single*: path 1 alone
* *redirect*: the controller moves the flow to the path with the least round-trip time
* *duplicate*: all paths, trimmed by the elimination

A point takes 9 bytes, for the protocol does not compress, so the levels have as many points as make the bit rates of our
session: NFOV 33,000, HD 53,000, FHD 100,000. The viewer has 8 frames asked for ahead: one at a time, as LiveScan3D's viewers ask, is
one a round trip, at most 25 a second on path 1 even where nothing varies. The frame delay is from the moment the encoded frame is
handed to the relay to its last byte at the viewer. Each frame that the viewer gets is another; those it does not get in time
it never asks for.

`, fps, r.Seconds, r.Processors, r.From, r.To, r.Source)
	for _, x := range []*Result{r, r.BBR} {
		if x == nil {
			continue
		}
		fmt.Fprintf(&b, "## The kernel's TCP with %s\n\n", strings.ToUpper(string(x.Congestion)))
		x.table(&b)
		b.WriteString("\n### Beside the paper\n\n")
		x.beside(&b)
		x.decisions(&b)
		x.processors(&b)
		x.exactness(&b)
		b.WriteString("\n")
	}
	b.WriteString(`## Why

* The paper says that its TCP has BBR (section IV-A). Its figures look like those of a loss-based congestion control on these paths: with one
  packet in 2,000 lost, CUBIC's window stays at some fifty packets, which is 15 Mbit/s at a round trip of 40 ms and half that at 90.
  BBR does not heed such losses.
* Duplication hides losses, for a packet is lost only where all its replicas are, and holds the round trip near that of path 2. CUBIC's
  window then grows, but with the cube of the time: it takes 10 s to a window that carries NFOV at a round trip of 60 ms.
* A loss holds up all frames behind it: TCP delivers in order, where our session has a stream for each frame.

`)
	fmt.Fprintf(&b, "%s\n", r.Trigger)
	return b.String()
}

// uplinkMarkdown is the result of Uplink for people.
func (r *Result) uplinkMarkdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, `The other direction: a capture server publishes %d frames a second to a relay on the far side of the five paths of Table I of Qian
et al., in the network lab, %.0f s a run, all on one machine with %d processors; the viewer is beside the relay. Delays vary from %.0f s to
%.0f s; what is measured is measured then. Source: %s.

* *reference*: path 1 alone, nothing varies
* *single*: path 1 alone
* *duplicate*: paths 1 and 2, as an operator asks for

The capture server takes the relay's time over the paths that vary, so frame delays are off by as much as these are not alike both ways.

`, fps, r.Seconds, r.Processors, r.From, r.To, r.Source)
	r.table(&b)
	r.processors(&b)
	r.exactness(&b)
	fmt.Fprintf(&b, "\n%s\n", r.Trigger)
	return b.String()
}
