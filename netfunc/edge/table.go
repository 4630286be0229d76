//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"holocast/netfunc/api"
)

// print writes the status as text.
func (s *Status) print(w io.Writer) {
	fmt.Fprintf(w, "edge %s", s.Name)
	if s.Role != "" {
		fmt.Fprintf(w, " (%s)", s.Role)
	}
	if s.Running {
		fmt.Fprintf(w, ", running since %s as process %d\n", s.Started.Format(time.DateTime), s.PID)
	} else {
		fmt.Fprintf(w, ", not running; its kernel programs are\n")
	}
	for _, a := range s.Attached {
		fmt.Fprintf(w, "  %s on %s: %s\n", a.Program, a.Interface, a.Mode)
	}
	if c := s.Controller; c != nil {
		switch {
		case c.Connected:
			fmt.Fprintf(w, "controller %s, connected since %s: %d reports, %d observations of the uplink\n", c.URL,
				c.Since.Format(time.DateTime), c.Reports, c.Uplink)
		default:
			fmt.Fprintf(w, "controller %s, not connected since %s: %s\n", c.URL, c.Since.Format(time.DateTime), c.Error)
		}
	}
	s.printPaths(w)
	if s.Sender != nil {
		s.Sender.print(w)
	}
	if s.Receiver != nil {
		s.Receiver.print(w)
	}
}

// table writes aligned columns.
func table(w io.Writer, rows ...[]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	_ = t.Flush()
}

// roundTrip formats a round-trip time in milliseconds. 0 means that no probe was answered.
func roundTrip(rtt float64) string {
	if rtt == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f ms", rtt)
}

func (s *Status) printPaths(w io.Writer) {
	rows := [][]string{{"PATH", "INTERFACE", "STATE", "RTT", "LEAST", "LOSS", "SENT", "FIRST", "LATE", "LOST", "ROGUE"}}
	var problems []string
	for _, p := range s.Paths {
		var state string
		switch {
		case p.Up:
			state = "up"
		case p.Unknown:
			state = "unknown"
		default:
			state = "down"
		}
		rtt, least, loss := "-", "-", "-"
		if p.Probed {
			rtt, least, loss = roundTrip(p.RTT), roundTrip(p.MinRTT), fmt.Sprintf("%.1f %%", 100*p.Loss)
		}
		rows = append(rows, append([]string{fmt.Sprint(p.Index), dash(p.Interface), state, rtt, least, loss},
			numbers(p.Sent, p.First, p.Late, p.Lost, p.Rogue)...))
		if p.Problem != "" {
			problems = append(problems, fmt.Sprintf("path %d is down: %s", p.Index, p.Problem))
		}
		if p.Refused > 0 && !p.Probed {
			problems = append(problems, fmt.Sprintf("path %d: %d probes refused: check that signal.key is the same "+
				"at both edges, and that peer is the other edge's address", p.Index, p.Refused))
		}
		if n := p.Errors + p.TooBig; n > 0 {
			problems = append(problems, fmt.Sprintf("path %d: %d replicas not sent, %d of them longer than the MTU",
				p.Index, n, p.TooBig))
		}
	}
	fmt.Fprintln(w)
	table(w, rows...)
	for _, p := range problems {
		fmt.Fprintln(w, p)
	}
}

func (k *SenderStatus) print(w io.Writer) {
	p := k.Passed
	fmt.Fprintf(w, "\nduplicated %d; passed plain: %d no usable path, %d expiring, %d tagged, %d truncated, %d "+
		"failed\n",
		k.Duplicated, p.Unusable, p.Expiring, p.Tagged, p.Short, p.Failed)
	g := k.Signals
	fmt.Fprintf(w, "signalling: %d applied, %d malformed, %d spoofed, %d of another version, %d replayed, %d without "+
		"room; uplink: %d packets seen\n",
		g.Applied, g.Malformed, g.Spoofed, g.OtherVersion, g.Replayed, g.Full, k.Uplink)
	rows := [][]string{{"POLICY", "PATHS", "SET BY"}}
	for _, p := range k.Policies {
		by := "configuration"
		if p.Signalled {
			by = "controller"
		}
		rows = append(rows, []string{p.Destination.String(), p.Paths.String(), by})
	}
	if len(rows) > 1 {
		table(w, rows...)
	}
}

func (k *ReceiverStatus) print(w io.Writer) {
	fmt.Fprintf(w, "\npassed: %d of no flow, %d to other Ethernet addresses, %d truncated, %d races; %d evicted; %d "+
		"arrivals dropped\n", k.Unknown, k.Misaddressed, k.Short, k.Races, k.Evicted, k.RingFull)
	rows := [][]string{{"FLOW", "PATHS", "STATE", "GENERATION", "REWARDS", "LATENT", "FIRST", "LATE", "LOST"}}
	for _, f := range k.Flows {
		var first, late, lost uint64
		for _, p := range f.PerPath {
			first, late, lost = first+p.First, late+p.Late, lost+p.Lost
		}
		state, generation, rewards, latent := "-", "-", "-", "-"
		if a := f.Elimination; a != nil {
			state, generation, latent = dash(string(a.State)), fmt.Sprint(a.Generation), a.Latent.String()
			rewards = rewardsText(a.Rewards, a.Window)
		}
		rows = append(rows, append([]string{
			f.Destination.String(), f.Paths.String(), state, generation, rewards,
			latent,
		}, numbers(first, late, lost)...))
	}
	if len(rows) > 1 {
		table(w, rows...)
	}
	for _, f := range k.Flows {
		if a := f.Elimination; a != nil && a.Last != nil {
			fmt.Fprintf(w, "%s: %d eliminations, the last at %s took out %s: %s\n",
				f.Destination, a.Decisions, a.LastAt.Format(time.TimeOnly), a.Last.Removed, a.Last.Reason)
		}
	}
}

func rewardsText(rewards []api.Reward, window uint32) string {
	if window == 0 {
		return "-"
	}
	parts := make([]string, 0, len(rewards))
	for _, r := range rewards {
		parts = append(parts, fmt.Sprintf("%d:%d", r.Path, r.Reward))
	}
	return fmt.Sprintf("%s of %d", strings.Join(parts, " "), window)
}

func numbers(of ...uint64) []string {
	out := make([]string, 0, len(of))
	for _, n := range of {
		out = append(out, fmt.Sprint(n))
	}
	return out
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
