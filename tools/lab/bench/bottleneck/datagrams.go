package bottleneck

import (
	"fmt"
	"strings"

	"holocast/internal/parts"
)

// The lossy paths are path 1 of Table I of Qian et al. without its variation, at several loss
// rates.
const (
	datagramFrameBytes = 376_000 // a real NFOV frame of 238 k points in layout A
	datagramRate       = 400     // Mbit/s of Ethernet frames
	datagramDelay      = 20      // ms one way
)

// Lossy hops.
const (
	downstream = "relay to viewer"
	upstream   = "publisher to relay"
)

// DatagramRun holds one viewer's figures for one hop, transport and delivery mode.
type DatagramRun struct {
	Loss      float64 `json:"loss"` // fraction of packets, in each direction
	Hop       string  `json:"hop"`  // the emulated hop
	Transport string  `json:"transport"`
	Delivery  string  `json:"delivery"`
	Seconds   float64 `json:"seconds"`

	// FPS counts frames sent during the measurement and complete within Timeout.
	FPS      float64 `json:"fps"`
	DelayP50 float64 `json:"delay_p50_ms"` // from sending to completion
	DelayP95 float64 `json:"delay_p95_ms"`
	DelayP99 float64 `json:"delay_p99_ms"`

	// Overhead is the UDP payload received in excess of the frames' payload, as a fraction of the
	// frames' payload.
	Overhead float64     `json:"overhead"`
	Parts    parts.Stats `json:"parts"`            // of datagram delivery
	Unsent   uint64      `json:"datagrams_unsent"` // dropped by the publisher's session
	CPU      float64     `json:"relay_cpu_s_per_gbit"`

	// Failures report a late emulator.
	Failures []string `json:"failures,omitempty"`
}

// datagramMarkdown returns the datagram part's table.
func (r Result) datagramMarkdown() string {
	if len(r.Datagrams) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n## Frames in datagrams\n\n%d kB %d times a second from a publisher through the relay to one "+
		"viewer, on streams and in datagrams of up to %d bytes of payload, interleaved. One hop is a path of %d "+
		"Mbit/s, %d ms and a queue of 30 ms with loss in both directions; the other is local. Frames/s counts "+
		"frames sent in the %.0f s measured and complete within %d ms. Repaired frames were completed by FETCH; "+
		"overhead is data received in excess of the frames' payload. Measured at %s UTC.\n\n",
		datagramFrameBytes/1000, FramesPerS, parts.MaxPart, datagramRate, datagramDelay, r.Datagrams[0].Seconds,
		Timeout.Milliseconds(), r.DatagramsBegan.UTC().Format("2006-01-02 15:04"))
	b.WriteString("| loss | hop | transport | delivery | frames/s | delay p50 / p95 / p99 ms | repaired | parts " +
		"lost | overhead | relay CPU s/Gbit |\n| ---: | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, d := range r.Datagrams {
		mark := ""
		if len(d.Failures) > 0 {
			mark = "*"
		}
		repaired, lost := "", ""
		if d.Parts != (parts.Stats{}) {
			repaired, lost = fmt.Sprintf("%d of %d", d.Parts.Repaired, d.Parts.Frames+d.Parts.Abandoned),
				fmt.Sprint(d.Parts.PartsLost)
		}
		fmt.Fprintf(&b, "| %g %% | %s | %s | %s%s | %.1f | %.0f / %.0f / %.0f | %s | %s | %.1f %% | %.2f |\n",
			100*d.Loss, d.Hop, d.Transport, d.Delivery, mark,
			d.FPS, d.DelayP50, d.DelayP95, d.DelayP99, repaired, lost, 100*d.Overhead, d.CPU)
	}
	b.WriteString("\nRows marked * were measured while the emulator was late.\n")
	return b.String()
}
