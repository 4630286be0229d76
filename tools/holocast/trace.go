package main

import (
	"context"
	"fmt"
	"html"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holocast/internal/service"
	"holocast/internal/trace/collector"
)

func traceCommand() *cobra.Command {
	var listen, svg string
	var frames int
	c := &cobra.Command{
		Use:   "trace",
		Short: "Show where frames spend their time, from capture to display",
		Long: `Receives the traces that capture-server, relay and holocast play send with
--trace-endpoint http://localhost:4318, and draws a timeline of each traced frame across the programs, on the
relay's clock. It is a small OpenTelemetry collector (OTLP over HTTP) that stores nothing.`,
		Example: `  holocast trace --svg frame.svg`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return showTraces(cmd.Context(), cmd.OutOrStdout(), listen, frames, svg)
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:4318", "TCP address for spans from the programs")
	c.Flags().IntVar(&frames, "frames", 0, "end after this many frames (default at Ctrl-C)")
	c.Flags().StringVar(&svg, "svg", "", "also draw the last frame into this file")
	return c
}

// showTraces prints traced frames until it has printed the given number or ctx is done.
func showTraces(ctx context.Context, stdout io.Writer, listen string, frames int, svg string) error {
	web, err := service.ListenHTTP("--listen", listen, slog.Default())
	if err != nil {
		return err
	}
	defer web.Close()
	traces := collector.New()
	web.Handle("POST /v1/traces", traces)
	web.Start()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for shown := 0; frames == 0 || shown < frames; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now := <-tick.C:
			for _, f := range traces.Settled(now) {
				if frames > 0 && shown == frames {
					break
				}
				shown++
				fmt.Fprintln(stdout, frameText(f))
				if svg != "" {
					err := writeFile(svg, func(w io.Writer) error {
						_, err := io.WriteString(w, frameSVG(f))
						return err
					})
					if err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// frameTitle identifies the frame and gives its size.
func frameTitle(f collector.Frame) string {
	root, _ := f.Root()
	return fmt.Sprintf(
		"%s, group %s: camera %s, frame %s, %s bytes", root.Attributes["holocast.track"],
		root.Attributes["holocast.group"], root.Attributes["holocast.camera"], root.Attributes["holocast.sequence"],
		root.Attributes["holocast.bytes"],
	)
}

// spanLabel names a span, its peer, its description if not the first, and the reason if it failed.
func spanLabel(s collector.Span) string {
	label := s.Name
	if peer := s.Attributes["network.peer.address"]; peer != "" {
		label += map[string]string{"send": " to ", "receive": " from "}[s.Name] + peer
	}
	if part := s.Attributes["holocast.subgroup"]; part != "" && part != "0" {
		label += ", description " + part
	}
	if s.Failed != "" {
		label += " (" + s.Failed + ")"
	}
	return label
}

// frameTime returns the start and end of a frame's spans.
func frameTime(f collector.Frame) (begin, end time.Time) {
	begin, end = f.Spans[0].Begin, f.Spans[0].End
	for _, s := range f.Spans {
		if s.End.After(end) {
			end = s.End
		}
	}
	return begin, end
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// frameText draws the frame for a terminal.
func frameText(f collector.Frame) string {
	const columns = 40
	begin, end := frameTime(f)
	total := max(end.Sub(begin), time.Microsecond)
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%9s %9s\n", frameTitle(f), "from ms", "took ms")
	for _, s := range f.Spans {
		from := min(columns-1, int(columns*s.Begin.Sub(begin)/total))
		wide := max(1, int(columns*s.End.Sub(s.Begin)/total))
		bar := strings.Repeat(" ", from) + strings.Repeat("█", min(wide, columns-from))
		fmt.Fprintf(
			&b, "%9.2f %9.2f  %-*s  %s: %s\n", ms(s.Begin.Sub(begin)), ms(s.End.Sub(s.Begin)), columns, bar, s.Program,
			spanLabel(s),
		)
	}
	return b.String()
}

// frameSVG draws the frame as a self-contained image.
func frameSVG(f collector.Frame) string {
	const (
		width, left, right = 960, 380, 80
		row, top           = 24, 64
	)
	begin, end := frameTime(f)
	total := max(end.Sub(begin), time.Microsecond)
	x := func(t time.Time) float64 {
		return left + (width-left-right)*float64(t.Sub(begin))/float64(total)
	}
	height := top + row*len(f.Spans) + 16
	var b strings.Builder
	fmt.Fprintf(
		&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n",
		width, height,
	)
	fmt.Fprintf(
		&b, `<rect width="%d" height="%d" fill="#fff"/><text x="16" y="24" fill="#1a2230">%s</text>`+"\n", width,
		height, html.EscapeString(frameTitle(f)),
	)
	step := tickStep(total)
	for at := time.Duration(0); at <= total; at += step {
		fmt.Fprintf(
			&b,
			`<path d="M%.1f %dV%d" stroke="#dde2e9"/><text x="%.1f" y="%d" text-anchor="middle" fill="#5b6675">%g ms</text>`+"\n",
			x(begin.Add(at)), top-8, height-12, x(begin.Add(at)), top-12, ms(at),
		)
	}
	colours := map[string]string{}
	palette := []string{"#3f51b5", "#00897b", "#e65100", "#8e24aa", "#5d4037", "#546e7a"}
	for i, s := range f.Spans {
		colour, ok := colours[s.Program]
		if !ok {
			colour = palette[len(colours)%len(palette)]
			colours[s.Program] = colour
		}
		if s.Failed != "" {
			colour = "#b3261e"
		}
		y := top + row*i
		fmt.Fprintf(
			&b,
			`<text x="16" y="%d" fill="%s">%s: %s</text><rect x="%.1f" y="%d" width="%.1f" height="%d" rx="2" fill="%s"/><text x="%.1f" y="%d" fill="#1a2230">%.1f</text>`+"\n",
			y+15, colour, html.EscapeString(s.Program), html.EscapeString(spanLabel(s)), x(s.Begin), y+3,
			max(1.5, x(s.End)-x(s.Begin)), row-8, colour, x(s.End)+5, y+15, ms(s.End.Sub(s.Begin)),
		)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// tickStep returns a round step that divides a duration into 4 to 10 parts.
func tickStep(total time.Duration) time.Duration {
	step := time.Microsecond
	for _, next := 0, []int{2, 5, 10}; ; {
		for _, n := range next {
			if total/(step*time.Duration(n)) < 10 {
				return step * time.Duration(n)
			}
		}
		step *= 10
	}
}
