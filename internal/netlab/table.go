//go:build linux

package netlab

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteTable writes the report as a text table.
func (r *Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "path\tarrived\tdeparted\tMbit/s\tlost\tasked\tqueue full\tqueue wait ms p50\tp99\tdeparture "+
		"error µs p50\tp99\tmax\t")
	for _, p := range r.Paths {
		if p.Arrived == 0 {
			continue
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%.1f\t%d\t%.1f\t", p.Name, p.Arrived, p.Packets, p.Mbps, p.Lost+p.Burst, p.Asked)
		if r.Emulator.Kind == Netem.String() {
			fmt.Fprint(t, "?\t?\t?\t?\t?\t?\t\n")
			continue
		}
		fmt.Fprintf(t, "%d\t%.2f\t%.2f\t%.0f\t%.0f\t%.0f\t\n", p.Full, p.Wait.P50, p.Wait.P99, p.Late.P50, p.Late.P99,
			p.Late.Max)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s: %.1f s, %s, real-time %v, %.2f µs of CPU per packet\n",
		r.Topology, r.Seconds, r.Emulator.Kind, r.Emulator.RealTime, r.Emulator.CPUPerPacket)
	return err
}

// WriteTable writes requested and measured values as a text table.
func (c *Check) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "path\tMbit/s asked\tmeasured\tpackets/s\tdelay ms asked\terror µs p50\tp99\tloss % "+
		"asked\tmade\tunexplained\t")
	for _, f := range c.Flows {
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.0f\t%.3f\t%.0f\t%.0f\t%.3f\t%.3f\t%d\t\n",
			f.Path, f.AskedMbps, f.Mbps, f.Loaded.PacketRate, f.AskedDelay, f.DelayError, f.DelayErr99, 100*f.AskedLoss,
			100*f.Loss, f.Unexplained)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return c.Report.WriteTable(w)
}
