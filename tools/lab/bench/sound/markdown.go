package sound

import (
	"fmt"
	"strings"
)

// targets are the delays aimed at, in ms, and the sound that may be concealed, in percent.
const (
	targetP50, targetP99, targetPath = 80, 120, 140
	targetConcealed                  = 1
)

// Markdown returns the tables.
func (r Result) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "A program plays chirps of 20 ms, %d to %d kHz, into a sink of a private PulseAudio server. "+
		"`capture-server` captures the sink's monitor, with a synthetic camera of 15 frames/s, and publishes to a relay. "+
		"`holocast play` plays into a second sink. Recorders on both monitors time every chirp, so the delay runs from "+
		"mouth to ear and excludes only that of sound hardware. Targets: %d ms at the median and %d ms at p99 on "+
		"loopback, %d ms at p99 over the path, at most %d %% concealed.\n\n",
		lowest/1000, highest/1000, targetP50, targetP99, targetPath, targetConcealed)
	b.WriteString("| part | p50 ms | p95 ms | p99 ms | worst ms | chirps spoken / heard | SNR p50 / p5 dB | concealed |\n" +
		"| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	rows := []struct {
		name string
		part *Part
	}{{loopbackPart, r.Loopback}, {pathPart, r.Path}}
	for _, row := range rows {
		if x := row.part; x != nil {
			fmt.Fprintf(&b, "| %s | %.0f | %.0f | %.0f | %.0f | %d / %d | %.1f / %.1f | %.2f %% |\n",
				row.name, x.P50, x.P95, x.P99, x.Worst, x.Spoken, x.Heard, x.SNR, x.SNRP5, x.Concealed)
		}
	}
	fmt.Fprintf(&b, "\nOn `%s`, all programs use the loopback interface. On `%s`, the player is behind an emulated "+
		"path: %s. SNR compares the heard chirps with the spoken ones after alignment, from their correlation; Opus's "+
		"coding of high tones and time stretching lower it.\n\n## Runs\n\nSound plays in step with the frames: its delay is the larger of the "+
		"jitter buffer's and the frames'. Frames wait up to 80 ms for it, which their delay includes. The player's own "+
		"figure is its delay from capture to sound; it, the jitter buffer and the lip offset are those at the end of the "+
		"run. The programs run with niceness −15, ahead of the machine's other programs; the last columns give the share "+
		"of the processors' time in use, and by other programs.\n\n", loopbackPart, pathPart, pathAbout)
	b.WriteString("| part | s | p50 / p99 ms | concealed | jitter buffer ms | player's own figure ms | lip offset ms | frame " +
		"delay p50 ms | recorders changed by ms | busy | other programs |\n" +
		"| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	var failures []string
	for _, row := range rows {
		if row.part == nil {
			continue
		}
		for _, x := range row.part.Runs {
			lip := ""
			if x.LipMs != nil {
				lip = fmt.Sprintf("%+.0f", *x.LipMs)
			}
			fmt.Fprintf(&b, "| %s | %.0f | %.0f / %.0f | %.2f %% | %.0f | %.0f | %s | %.0f | %.1f | %.0f %% | %.0f %% |\n",
				row.name, x.Seconds, x.P50, x.P99, x.Concealed, x.BufferMs, x.DelayMs, lip, x.FrameMs, x.Spread, x.Busy, x.Others)
			failures = append(failures, x.Failures...)
		}
	}
	if len(failures) > 0 {
		fmt.Fprintf(&b, "\nThe emulator was late: %s.\n", strings.Join(failures, "; "))
	}
	return b.String()
}
