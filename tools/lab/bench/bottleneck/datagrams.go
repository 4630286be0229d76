package bottleneck

import (
	"fmt"
	"strings"

	"holocast/internal/parts"
)

// The lossy paths: path 1 of Table I of Qian et al. without its variation, at several loss rates.
const (
	datagramFrameBytes = 376_000 // a real NFOV frame of 238 k points in layout A
	datagramRate       = 400     // Mbit/s of Ethernet frames
	datagramDelay      = 20      // ms one way
)

// Hops that lose packets: from the relay to the viewer, or from the publisher to the relay.
const (
	downstream = "relay to viewer"
	upstream   = "publisher to relay"
)

// DatagramRun is one measurement of frames that one viewer receives.
type DatagramRun struct {
	Loss      float64 `json:"loss"` // share of the packets, either way
	Hop       string  `json:"hop"`  // that is emulated
	Transport string  `json:"transport"`
	Delivery  string  `json:"delivery"`
	Seconds   float64 `json:"seconds"`
	// FPS is of frames sent in the time measured that came whole within Timeout.
	FPS      float64 `json:"fps"`
	DelayP50 float64 `json:"delay_p50_ms"` // from sent to whole
	DelayP95 float64 `json:"delay_p95_ms"`
	DelayP99 float64 `json:"delay_p99_ms"`
	// Overhead is what the viewer received, UDP payload, above the payload of the frames
	// sent; a share.
	Overhead float64     `json:"overhead"`
	Parts    parts.Stats `json:"parts"`            // of datagrams
	Unsent   uint64      `json:"datagrams_unsent"` // by the publisher's session
	CPU      float64     `json:"relay_cpu_s_per_gbit"`
	// Failures are those of the emulator, which was late.
	Failures []string `json:"failures,omitempty"`
}

// datagramMarkdown is the table of the frames in datagrams.
func (r Result) datagramMarkdown() string {
	if len(r.Datagrams) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n## Frames in datagrams\n\n%d kB %d times a second from a publisher through the relay to one viewer, on streams and in datagrams of at most %d bytes of payload, in turns. One hop is a path of %d Mbit/s, %d ms and a queue of 30 ms that loses packets in both directions, the other the host's own. Frames are those sent in the %.0f s measured that came whole within %d ms. Repaired frames came whole by FETCH; overhead is what the viewer received above the frames' payload. Measured at %s UTC.\n\n",
		datagramFrameBytes/1000, FramesPerS, parts.MaxPart, datagramRate, datagramDelay, r.Datagrams[0].Seconds, Timeout.Milliseconds(), r.DatagramsBegan.UTC().Format("2006-01-02 15:04"))
	b.WriteString("| loss | hop | transport | delivery | frames/s | delay p50 / p95 / p99 ms | repaired | parts lost | overhead | relay CPU s/Gbit |\n| ---: | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, d := range r.Datagrams {
		mark := ""
		if len(d.Failures) > 0 {
			mark = "*"
		}
		repaired, lost := "", ""
		if d.Parts != (parts.Stats{}) {
			repaired, lost = fmt.Sprintf("%d of %d", d.Parts.Repaired, d.Parts.Frames+d.Parts.Abandoned), fmt.Sprint(d.Parts.PartsLost)
		}
		fmt.Fprintf(&b, "| %g %% | %s | %s | %s%s | %.1f | %.0f / %.0f / %.0f | %s | %s | %.1f %% | %.2f |\n", 100*d.Loss, d.Hop, d.Transport, d.Delivery, mark,
			d.FPS, d.DelayP50, d.DelayP95, d.DelayP99, repaired, lost, 100*d.Overhead, d.CPU)
	}
	b.WriteString("\nWhat is marked * was measured while the emulator was late.\n")
	return b.String()
}
