package scale

import (
	"fmt"
	"strings"
)

// Markdown returns the result as a page.
func (r *Result) Markdown() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("%d relays in %d regions, simulated in fake time with the tables of routes that relays use. %d sessions at random "+
		"relays, each with %d viewers at random relays. Messages take %d ms within a region and %d ms between regions. Not "+
		"simulated: media, and the time to subscribe.", r.Relays, r.Regions, r.Sessions, r.Viewers, near*step.Milliseconds(),
		far*step.Milliseconds())
	line("")
	line("| figure | value |")
	line("| --- | ---: |")
	row := func(name, format string, args ...any) { line("| %s | %s |", name, fmt.Sprintf(format, args...)) }
	row("a session is known at another relay after, p50 / slowest", "%.0f / %.0f ms", r.AnnounceP50, r.AnnounceMax)
	row("a relay that joins knows all sessions after", "%.0f ms", r.StartMs)
	row("copies of a session that a region receives, mean / most", "%.2f / %d", r.Copies, r.MaxCopies)
	row("the same without gateways, mean", "%.2f", r.CopiesDirect)
	row("hops between relays, most", "%d", r.MaxHops)
	row("messages that an idle relay receives", "%.0f/s, %.0f kbit/s", r.Messages, r.KbitPerS)
	row(fmt.Sprintf("viewers without a picture while %.0f %% of the relays die per minute, mean", 100*r.Churn), "%.3f %%",
		100*r.Affected)
	for _, g := range []struct {
		name string
		Gaps
	}{{"viewers at a killed relay", r.AtKilled}, {"others, whose publisher's relay or gateway was killed", r.Elsewhere}} {
		row(g.name+": without a picture for, p50 / p95 / longest", "%.0f / %.0f / %.0f ms (%d viewers)", g.P50, g.P95, g.Max,
			g.Viewers)
	}
	row(fmt.Sprintf("region cut off for %.0f s: time with a picture, sessions within it / among the others", r.Cut),
		"%.1f / %.1f %%", 100*r.CutInside, 100*r.CutOthers)
	row("and afterwards: viewers have a picture again after, p50 / slowest", "%.0f / %.0f ms", r.HealP50, r.HealMax)
	line("")
	line("A killed relay is gone after %.0f ms of silence; its clients continue at another relay after %.0f ms.",
		ms(silence), ms(failover))
	return b.String()
}
