package fbdt

import (
	"fmt"
	"slices"
	"strings"
)

// published holds the paper's throughputs in Mbit/s, from sections 2.2 (Fig. 3b) and 6.2 (Fig. 6c); 0 means not
// given.
var published = []struct {
	conditions                       string
	wifi, wigig, mptcp, musher, fbdt float64
	ours                             string // our scenario
}{
	{"nothing changes (2.2)", 630, 1800, 2200, 0, 0, static},
	{"5 % loss on WiGig (2.2)", 630, 30, 147, 0, 0, loss},
	{"+500 ms on WiGig (2.2)", 630, 0, 30, 0, 0, delay},
	{"LoS (6.2)", 470, 1400, 1550, 1920, 1920, static},
	{"nLoS (6.2)", 470, 700, 930, 814, 1300, ""},
	{"mobility (6.2)", 0, 0, 0, 0, 0, mobile},
}

// Markdown returns the report.
func (r Result) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "A client with two or three radios receives from one server. `quic` and `tcp` use one path alone; "+
		"`mptcp` is the kernel's with its default scheduler; `minrtt`, `roundrobin`, `blest`, `ecf` and `musher` follow "+
		"the schedulers of multipath TCP on our bundle of QUIC connections; `%s` is FBDT as printed, `%s` "+
		"Holocast's. QUIC uses BBR. Bulk data are windows of 1 MiB as fast as possible; `of the sum` compares with QUIC "+
		"over each path alone. Windows are %d kB each %d ms, %.0f Mbit/s; their time ends with in-order delivery to the "+
		"application.\n\n",
		paper, ours, pacedWindow/1000, pacedEvery.Milliseconds(), float64(pacedWindow)*8e-6/pacedEvery.Seconds())
	fmt.Fprintf(&b, "Measured at %s UTC in %.0f s. %d measurements were repeated because the emulator was late; rows "+
		"marked * were late in every attempt.\n\n", r.Began.UTC().Format("2006-01-02 15:04"), r.Seconds, r.Repeated)
	r.summary(&b)
	r.againstPaper(&b)
	for _, name := range []string{coursePlot, windowsPlot} {
		if r.plotted(name) {
			fmt.Fprintf(&b, "![%s](%s)\n\n", plotTitles[name], name)
		}
	}
	for _, s := range r.Scenarios {
		r.scenario(&b, s)
	}
	r.duplicateOrSplit(&b)
	r.sessions(&b)
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// duplicateOrSplit compares duplication with splitting.
func (r Result) duplicateOrSplit(b *strings.Builder) {
	var rows [][]string
	for _, a := range r.DuplicateOrSplit {
		cell := func(p95, p99 float64) string { return fmt.Sprintf("%.0f / %.0f", p95, p99) }
		rows = append(rows, []string{
			a.Objects + ", " + a.Scenario, cell(a.SingleP95Ms, a.SingleP99Ms), cell(a.DuplicateP95Ms, a.DuplicateP99Ms),
			cell(a.SplitP95Ms, a.SplitP99Ms), fmt.Sprintf("%.0f", 100*a.DuplicateWaste), fmt.Sprintf("%.1f", 100*a.SplitWaste),
		})
	}
	if rows == nil {
		return
	}
	fmt.Fprintf(b, "### Duplicate or split\n\nSmall objects of %d bytes each %d ms, and large frames of %d kB each %d ms "+
		"(%.0f Mbit/s): p95 / p99 of their delivery in ms over the better path alone, with everything over both paths "+
		"(`%s`), and divided between them (`%s`).\n\n", smallObject, smallEvery.Milliseconds(), largeFrame/1000,
		largeEvery.Milliseconds(), float64(largeFrame)*8e-6/largeEvery.Seconds(), duplicate, ours)
	table(b, []string{"", "better path", "duplicate", "split", "sent twice, %: duplicate", "split"}, rows)
}

// summary writes the table of the benchmark's main figures.
func (r Result) summary(b *strings.Builder) {
	var rows [][]string
	for _, name := range []string{static, loss, delay, mobile} {
		if v, ok := r.SumRatio[name]; ok {
			rows = append(rows, []string{"throughput, " + name, fmt.Sprintf("%.1f %% of the sum", 100*v)})
		}
	}
	for _, name := range []string{ours, paper, "mptcp", "minrtt", "single"} {
		if v, ok := r.WindowP95Ms[name]; ok {
			rows = append(rows, []string{"windows where paths differ fivefold, p95, " + name, fmt.Sprintf("%.0f ms", v)})
		}
	}
	if len(r.SumRatio) > 0 {
		rows = append(rows, []string{"bytes sent twice", fmt.Sprintf("%.1f %%", 100*r.Waste)})
	}
	if rows != nil {
		table(b, []string{"", ""}, rows)
	}
}

// againstPaper writes the paper's throughputs next to ours.
func (r Result) againstPaper(b *strings.Builder) {
	of := func(v, sum float64) string {
		if v == 0 || sum == 0 {
			return ""
		}
		return fmt.Sprintf("%.2f", v/sum)
	}
	var rows [][]string
	for _, p := range published {
		sum := p.wifi + p.wigig
		row := []string{p.conditions, of(p.mptcp, sum), of(p.musher, sum), of(p.fbdt, sum)}
		i := slices.IndexFunc(r.Scenarios, func(s Scenario) bool { return s.Name == p.ours })
		if i < 0 {
			rows = append(rows, append(row, "", "", "", ""))
			continue
		}
		s := r.Scenarios[i]
		for _, names := range [][]string{{"mptcp bbr", "mptcp cubic"}, {"musher"}, {paper}, {ours}} {
			best := 0.0
			for _, name := range names {
				v, _ := r.median(throughputPart, s.Name, name, mbps)
				best = max(best, v)
			}
			row = append(row, of(best, r.sum(s)))
		}
		rows = append(rows, row)
	}
	if len(r.SumRatio) == 0 {
		return
	}
	b.WriteString("Throughput as a share of the sum of single paths, in the paper and here. With +500 ms the paper gives " +
		"WiFi alone, and its MPTCP reaches a twentieth of it. In mobility it gives no rates: FBDT gets slightly less than " +
		"the sum, 2.5 times as much as MuSher, and 1.41 times as much as MPTCP in its published logs.\n\n")
	table(b, []string{"", "paper: MPTCP", "MuSher", "FBDT", "here: MPTCP", "MuSher", "FBDT as printed", "ours"}, rows)
}

// scenario writes a scenario's table.
func (r Result) scenario(b *strings.Builder, s Scenario) {
	var rows [][]string
	for _, c := range contenders(s, load{part: throughputPart}, false) {
		rate, bulk := r.median(throughputPart, s.Name, c.name, mbps)
		p95, paced := r.median(windowsPart, s.Name, c.name, p95)
		if !bulk && !paced {
			continue
		}
		row := []string{"", "", "", "", "", ""}
		marked := func(part string) bool {
			return slices.ContainsFunc(r.Runs, func(m Measurement) bool {
				return m.Part == part && m.Scenario == s.Name && m.Contender == c.name && len(m.Failures) > 0
			})
		}
		row[0] = c.name
		if bulk {
			row[1] = fmt.Sprintf("%.1f", rate)
			if sum := r.sum(s); sum > 0 {
				row[2] = fmt.Sprintf("%.1f %%", 100*rate/sum)
			}
			if marked(throughputPart) {
				row[1] += "*"
			}
		}
		if paced {
			p50, _ := r.median(windowsPart, s.Name, c.name, func(m *Measurement) float64 { return m.Delivery.P50Ms })
			p99, _ := r.median(windowsPart, s.Name, c.name, func(m *Measurement) float64 { return m.Delivery.P99Ms })
			row[3] = fmt.Sprintf("%.0f / %.0f / %.0f", p50, p95, p99)
			if marked(windowsPart) {
				row[3] += "*"
			}
		}
		if c.kind == kindBundle {
			var twice, peak []string
			for _, part := range []string{throughputPart, windowsPart} {
				if w, ok := r.median(part, s.Name, c.name, func(m *Measurement) float64 { return 100 * m.Waste }); ok {
					v, _ := r.median(part, s.Name, c.name, func(m *Measurement) float64 { return float64(m.ReorderPeak) })
					twice, peak = append(twice, fmt.Sprintf("%.1f", w)), append(peak, fmt.Sprintf("%.2f", v*1e-6))
				}
			}
			row[4], row[5] = strings.Join(twice, " / "), strings.Join(peak, " / ")
		}
		rows = append(rows, row)
	}
	if rows == nil {
		return
	}
	fmt.Fprintf(b, "### %s\n\n%s:", strings.ToUpper(s.Name[:1])+s.Name[1:], strings.ToUpper(s.About[:1])+s.About[1:])
	for i, radio := range s.Radios {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(b, " %s %.0f Mbit/s, %g ms one way", radio.Name, radio.Mbps, radio.DelayMs)
	}
	b.WriteString(". Sent twice and reorder buffer: of bulk data / of windows.\n\n")
	table(b, []string{
		"", "Mbit/s", "of the sum", "windows p50 / p95 / p99 ms", "sent twice, %", "reorder buffer, MB",
	}, rows)
}
