package duplication

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// named returns the measured levels in the paper's order.
func (r *Result) named() (names []string, ls []*Level) {
	for i, l := range []*Level{r.NFOV, r.HD, r.FHD} {
		if l != nil {
			names, ls = append(names, strings.ToUpper(levels[i].name)), append(ls, l)
		}
	}
	return names, ls
}

// run returns the run of a level in a mode, or nil.
func (r *Result) run(level string, m Mode) *Measurement {
	for _, x := range r.Runs {
		if strings.EqualFold(x.Level, level) && x.Mode == m {
			return x
		}
	}
	return nil
}

// Markdown returns the report.
func (r *Result) Markdown() string {
	switch r.App {
	case LiveScan:
		return r.livescanMarkdown()
	case Uplink:
		return r.uplinkMarkdown()
	case Reordered, LiveScanReordered:
		return r.reorderedMarkdown()
	}
	var b strings.Builder
	names, _ := r.named()
	fmt.Fprintf(
		&b,
		`Capture server, relay and player stream %d frames a second over the five paths of Table I of Qian et al., "Enabling
eBPF-based packet duplication for robust volumetric video streaming", emulated; %.0f s per run, all on one machine
with %d processors. Delays vary from %.0f s to %.0f s; figures cover that time, as in the paper. Source: %s.

* *reference*: path 1 only, without variation
* *single*: path 1 only
* *redirect*: the controller moves the flow to the path with the lowest round-trip time
* *duplicate*: all paths, reduced by elimination

The session's programs are unaware of the pair. NFOV is captured and encoded live from files; HD and FHD are encoded
beforehand, so their frame delay starts when the encoded frame enters the network. The frame delay ends with decoding;
the paper's includes drawing. The source has few still frames, which repeat; the paper's is a moving person.

`,
		fps,
		r.Seconds,
		r.Processors,
		r.From,
		r.To,
		r.Source,
	)
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
	b.WriteString("| level | points per frame | mode | FPS | frame delay p50 / p95 / p99 ms | p95 ÷ reference | " +
		"throughput Mbit/s | bytes sent ÷ one path |\n" +
		"| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |\n")
	names, ls := r.named()
	for i, l := range ls {
		first := fmt.Sprintf("%s, %.0f Mbit/s | %.0f", names[i], l.Mbps, l.Points)
		for _, mode := range r.App.modes() {
			m := r.run(names[i], mode)
			if m == nil {
				continue
			}
			against := "–"
			if reference := l.DelayP95[Reference]; reference > 0 {
				against = fmt.Sprintf("%.2f", l.DelayP95[mode]/reference)
			}
			fmt.Fprintf(b, "| %s | %s%s | %.1f | %.0f / %.0f / %.0f | %s | %.0f | %.2f |\n", first, mode, m.mark(),
				m.FPS,
				m.Delay.P50, m.Delay.P95, m.Delay.P99, against, m.Mbps, m.Cost)
			first = " | "
		}
	}
	b.WriteString("\nBytes are counted at the edges' interfaces in both directions over the whole run: sent on all " +
		"paths, divided by received from source and viewer.\n\n")
	r.times(b)
	for _, f := range []struct{ file, about string }{
		{"nfov", "NFOV over time (Fig. 5)"},
		{"hd", "HD over time"},
		{"fhd", "FHD over time"},
		{"paths", "Path delays and rewards, NFOV with duplication (Fig. 6)"},
		{"gain", "Throughput ÷ that of the single path (Fig. 7)"},
	} {
		if r.draws(f.file) {
			fmt.Fprintf(b, "![%s](%s)\n", f.about, r.plotName(f.file))
		}
	}
}

// times lists the runs' start times, as a result may hold runs from several days.
func (r *Result) times(b *strings.Builder) {
	var began []string
	for _, m := range r.Runs {
		if !m.Began.IsZero() {
			began = append(began, fmt.Sprintf("%s %s %s", strings.ToUpper(m.Level), m.Mode,
				m.Began.Format("2006-01-02 15:04")))
		}
	}
	if began != nil {
		fmt.Fprintf(b, "Start of the runs, UTC: %s.\n\n", strings.Join(began, ", "))
	}
}

func (r *Result) compare(b *strings.Builder) {
	b.WriteString("\n## Comparison with the paper\n\n")
	r.comparison(b)
	b.WriteString(`
Differences from the paper, and their reasons:

* The single path keeps more of its frame rate. The paper's viewer requests each frame over TCP, so a longer round
  trip means fewer frames; ours receives every captured frame on its own QUIC stream, and BBR tolerates an
  application-limited sender. Varying delays show in the frame delay instead. Throughput, which the camera
  determines, gains little for the same reason.
* The trigger observes receipts, one per frame shown; the paper's observes requests. Late frames still produce
  receipts, so the paper's trigger, 150 ms three times in a row, does not fire. Ours compares receipts with the frame
  interval, and probes of the path with their own minimum.
* Packets to the viewer are duplicated, as in the paper; those from the viewer, a hundredth of the bytes, use path 1.
* The elimination window is a duration, not 100 packets. Table I is emulated with delays that hold for 50 to 200 ms
  and packets in order; 100 packets pass in 13 ms at NFOV and see only one delay. See netfunc/elimination.
* The second-to-last path is removed only after twice that time, and returns as soon as the trigger fires again: a
  single path of Table I, which loses one packet in 2000, delays every third of the largest frames.
* Redirection follows round-trip time. When path 1 varies, path 5 has the lowest, but an eighth of the rate. The
  flow fills its queue until the next trigger moves it to path 2, where it stays.
* At FHD the latest frames are later with duplication than without: the spells with all five paths exceed paths 3 to 5
  and the machine's two processors.
* FHD is at the limit of two processors. In 20 s runs on a machine where other programs took 0.6 to 0.9 processors,
  a run used 1.6 with path 1 only and 1.8 with duplication, 0.5 of it by the player. While all five paths carry the
  stream, two seconds after each trigger, its bytes are fivefold and its frames later. Paths 3 to 5 cannot carry it:
  once the receiver notices, they stay excluded for 16 re-arm times.
`)
	if r.Trigger != "" {
		fmt.Fprintf(b, "\n%s\n", r.Trigger)
	}
	b.WriteString("\nSee also: [the whole paper, claim by claim](../papers/duplication.md); [the paper's kind of " +
		"application](duplication-livescan.md), over TCP; [the uplink](duplication-uplink.md), from a publisher.\n")
}

// comparison writes the paper's figures and ours.
func (r *Result) comparison(b *strings.Builder) {
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
	kept := func(mode Mode) func(*Level) (any, bool) {
		return func(l *Level) (any, bool) {
			for _, m := range r.Runs {
				if m.Mode == mode && r.levelOf(m) == l {
					return m.kept(r.From, r.To)
				}
			}
			return "", false
		}
	}
	rows := []struct{ what, paper, here string }{
		{"FPS with duplication", "almost full at all levels", each("%.1f", of(rate, Duplicate))},
		{"FPS of the single path", "falls with the level; FHD as low as 3", each("%.1f", of(rate, Single))},
		{"throughput of duplication ÷ single path", "about 7 at FHD, less at NFOV", each("%.2f", of(gain, Duplicate))},
		{"throughput of redirection ÷ single path", "less than duplication", each("%.2f", of(gain, Redirect))},
		{
			"frame delay of duplication ÷ single path, p95 / p99", "low at all levels",
			each("%s", func(l *Level) (any, bool) {
				var of [2]*Measurement
				for _, m := range r.Runs {
					if r.levelOf(m) != l {
						continue
					}
					switch m.Mode {
					case Duplicate:
						of[0] = m
					case Single:
						of[1] = m
					}
				}
				if of[0] == nil || of[1] == nil || of[1].Delay.P95 <= 0 {
					return "", false
				}
				a, b := of[0].Delay, of[1].Delay
				return fmt.Sprintf("%.2f / %.2f", a.P95/b.P95, a.P99/b.P99), true
			}),
		},
		{
			"bandwidth cost of duplication while delays vary", "NFOV 1.8, FHD 2.4",
			each("%.2f", func(l *Level) (any, bool) { return l.CostVarying, l.CostVarying > 0 }),
		},
		{
			"bandwidth cost, whole run", "–",
			each("%.2f", func(l *Level) (any, bool) { return l.Cost, l.Cost > 0 }),
		},
		{"paths kept while delays vary", "1 and 2", each("%s", kept(Duplicate))},
		{
			"paths removed after the first start (Fig. 6b)", "4, after 200 windows; later 3 and 5",
			each("%s", func(l *Level) (any, bool) {
				for _, m := range r.Runs {
					if m.Mode == Duplicate && r.levelOf(m) == l {
						return m.removed()
					}
				}
				return "", false
			}),
		},
	}
	for _, row := range rows {
		fmt.Fprintf(b, "| %s | %s | %s |\n", row.what, row.paper, row.here)
	}
	if r.App.reorders() {
		fmt.Fprintf(b, "| paths kept by the printed elimination | 1 and 2 | %s |\n", each("%s", kept(Printed)))
	}
}

func (r *Result) levelOf(m *Measurement) *Level {
	return map[string]*Level{"nfov": r.NFOV, "hd": r.HD, "fhd": r.FHD}[m.Level]
}

// kept returns the reduced path set that duplication used longest while delays varied. ok is false
// if elimination removed no path.
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

// removed describes the removal of paths after the first start. ok is false if no path was removed.
func (m *Measurement) removed() (removed string, ok bool) {
	i := slices.IndexFunc(m.Decisions, func(d Decision) bool { return d.Kind == "start" })
	if i < 0 {
		return "", false
	}
	began, before := m.Decisions[i].T, m.Decisions[i].Paths
	var steps []string
	for _, d := range m.Decisions[i+1:] {
		if d.Kind != "trim" {
			break
		}
		gone := slices.DeleteFunc(slices.Clone(before), func(p int) bool { return slices.Contains(d.Paths, p) })
		steps = append(steps, fmt.Sprintf("%s after %.1f s", join(gone), d.T-began))
		before = d.Paths
	}
	return strings.Join(steps, ", then "), steps != nil
}

func join(indices []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(indices), " ", "+"), "[]")
}

func (r *Result) decisions(b *strings.Builder) {
	for _, m := range r.Runs {
		if len(m.Decisions) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n### Decisions, %s %s\n\n| s | | paths | reason |\n| ---: | --- | --- | --- |\n",
			strings.ToUpper(m.Level), m.Mode)
		for _, d := range m.Decisions {
			fmt.Fprintf(b, "| %.2f | %s | %s | %s |\n", d.T, d.Kind, join(d.Paths), d.Reason)
		}
	}
}

// processors writes the processor use of each run by program.
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
	fmt.Fprintf(b, "\n### Processors used\n\nOf %d. *network* is the emulation, *interrupts* the kernel's packet "+
		"processing, which includes the pair's programs.\n\n| run | %s |\n| --- |%s\n",
		r.Processors, strings.Join(parts, " | "), strings.Repeat(" ---: |", len(parts)))
	for _, m := range r.Runs {
		fmt.Fprintf(b, "| %s %s |", strings.ToUpper(m.Level), m.Mode)
		for _, who := range parts {
			fmt.Fprintf(b, " %.2f |", m.Processors[who])
		}
		b.WriteString("\n")
	}
}

// exactness writes the emulation's lateness, the load from other programs, the repetitions and the
// failures.
func (r *Result) exactness(b *strings.Builder) {
	late, busy, again := 0.0, 0.0, 0
	for _, m := range r.Runs {
		late, busy = max(late, m.LateUs), max(busy, m.Processors["others"])
		again += m.Attempts - 1
	}
	fmt.Fprintf(b, "\nDeparture error of the emulation, 99th percentile, worst path of all runs: %.0f µs. Other "+
		"programs used at most %.2f processors; %d runs were repeated because the machine was busy.\n", late, busy,
		again)
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

// livescanMarkdown returns LiveScan's report.
func (r *Result) livescanMarkdown() string {
	var b strings.Builder
	fmt.Fprintf(
		&b,
		`The paper's kind of application (Qian et al., "Enabling eBPF-based packet duplication for robust volumetric video
streaming"): the viewer requests each frame over TCP, as LiveScan3D's viewers do. `+"`holocast bridge`"+` serves a session of %d frames a second
over the five paths of Table I, emulated; %.0f s per run, all on one machine with %d processors. Delays vary from
%.0f s to %.0f s; figures cover that time, as in the paper. Source: %s.

* *reference*: path 1 only, without variation
* *single*: path 1 only
* *redirect*: the controller moves the flow to the path with the lowest round-trip time
* *duplicate*: all paths, reduced by elimination

The protocol does not compress: a point takes 9 bytes. The levels' numbers of points yield the bit rates of our
session: NFOV 33,000, HD 53,000, FHD 100,000. The viewer requests 8 frames in advance: LiveScan3D's viewers request
one at a time, which allows one frame per round trip, at most 25 a second on path 1 even without variation. The
frame delay is from the encoded frame's arrival at the relay to its last byte at the viewer. The viewer never
receives a frame twice and never requests a missed one.

`,
		fps,
		r.Seconds,
		r.Processors,
		r.From,
		r.To,
		r.Source,
	)
	r.byCongestion(&b)
	b.WriteString(`## Why

* The paper states that its TCP uses BBR (Section IV-A). Its figures resemble a loss-based congestion control on
  these paths: at one loss in 2,000 packets, CUBIC's window stays at about fifty packets, which is 15 Mbit/s at a
  round trip of 40 ms and half that at 90. BBR ignores such losses.
* Duplication hides losses, since a packet is lost only if all its replicas are, and keeps the round trip near that
  of path 2. CUBIC's window then grows, but with the cube of time: reaching a window that carries NFOV at a round
  trip of 60 ms takes 10 s.
* Delays change here every 50 to 200 ms and packets stay in order. Background traffic, as in the paper, also changes
  them from packet to packet and may reorder packets, which slows BBR, too. That is not measured here.
* A loss delays all following frames: TCP delivers in order, while our session uses a stream per frame.

`)
	fmt.Fprintf(&b, "%s\n", r.Trigger)
	return b.String()
}

// byCongestion writes the measurements, under a heading for each congestion control.
func (r *Result) byCongestion(b *strings.Builder) {
	for _, x := range []*Result{r, r.BBR} {
		if x == nil {
			continue
		}
		if x.Congestion != "" {
			fmt.Fprintf(b, "## The kernel's TCP with %s\n\n", strings.ToUpper(string(x.Congestion)))
		}
		x.table(b)
		b.WriteString("\n### Comparison with the paper\n\n")
		x.comparison(b)
		x.decisions(b)
		x.processors(b)
		x.exactness(b)
		b.WriteString("\n")
	}
}

// reorderedMarkdown returns the report of applications whose packets overtake each other.
func (r *Result) reorderedMarkdown() string {
	var b strings.Builder
	app := "capture server, relay, edges, controller and player stream %d frames a second"
	if r.App.requests() {
		app = "a viewer requests %d frames a second over TCP, as LiveScan3D's viewers do, 8 in advance"
	}
	fmt.Fprintf(&b, "The five paths of Table I of Qian et al., with a new delay every %d µs, almost for each packet, so "+
		"packets overtake each other: "+app+"; %.0f s per run on one machine with %d processors. Delays vary from %.0f s to "+
		"%.0f s; figures cover that time. Source: %s. [Delays that hold](duplication%s.md) for 50 to 200 ms have their own "+
		"page, which describes the levels.\n", eachPacket.Microseconds(), fps, r.Seconds, r.Processors, r.From, r.To,
		r.Source, strings.TrimSuffix(r.App.Suffix(), "-"+string(Reordered)))
	b.WriteString(`
* *reference*: path 1 only, without variation
* *single*: path 1 only
* *redirect*: the controller moves the flow to the path with the lowest round-trip time
* *duplicate*: all paths, reduced by elimination
* *printed*: the same, with the paper's Algorithm 1 as printed: a window of 100 packets of any duration

`)
	r.byCongestion(&b)
	return strings.TrimSuffix(b.String(), "\n")
}

// uplinkMarkdown returns Uplink's report.
func (r *Result) uplinkMarkdown() string {
	var b strings.Builder
	fmt.Fprintf(
		&b,
		`The other direction: a capture server publishes %d frames a second to a relay on the far side of the five paths of
Table I of Qian et al., emulated; %.0f s per run, all on one machine with %d processors. The viewer is on the relay's
side. Delays vary from %.0f s to %.0f s; figures cover that time. Source: %s.

* *reference*: path 1 only, without variation
* *single*: path 1 only
* *duplicate*: paths 1 and 2, set by an operator

The capture server synchronizes its clock with the relay's over the varying paths, so frame delays include an error
from their asymmetry.

`,
		fps,
		r.Seconds,
		r.Processors,
		r.From,
		r.To,
		r.Source,
	)
	r.table(&b)
	r.processors(&b)
	r.exactness(&b)
	fmt.Fprintf(&b, "\n%s\n", r.Trigger)
	return b.String()
}
