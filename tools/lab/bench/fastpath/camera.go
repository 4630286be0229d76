package fastpath

import (
	"fmt"
	"strings"
	"time"

	"holocast/tools/lab/bench/internal/quantile"
)

// The camera part sends frames in datagrams to near and far viewers.
const (
	cameraFPS = 30

	// CameraTimeout is the track's delivery timeout. Data that arrives later is useless.
	CameraTimeout = 500 * time.Millisecond
	nearViewers   = 3 // over links without emulated delay

	// FarPath leads to the far viewer: path 1 of Table I of Qian et al., without its variation.
	FarPath = "rate: 400Mbit, delay: 20ms, loss: 0.05%"
)

// CameraRun holds the figures of four viewers for one forwarding mode: of one turn, or the medians of
// several.
type CameraRun struct {
	Way     string  `json:"way"`
	TCP     bool    `json:"tcp"`  // with a TCP flow to the far viewer
	Busy    bool    `json:"busy"` // with a busy thread per processor
	Turns   int     `json:"turns"`
	Seconds float64 `json:"seconds"` // of a turn
	Near    Shown   `json:"near"`    // the near viewer with the lowest frame rate
	Far     Shown   `json:"far"`
	TCPMbps float64 `json:"tcp_mbit_per_s,omitempty"` // rate of the TCP flow

	// Forwarded counts packets sent by the kernel, Lost the forwarded packets that were lost, and
	// Fallback packets left to user space, by reason.
	Forwarded float64            `json:"forwarded"`
	Fallback  map[string]float64 `json:"fallback,omitempty"`
	Lost      float64            `json:"lost"`

	// UnregisteredMax is the maximum, over Samples, of the bytes that the kernel had sent to all
	// viewers but that congestion control did not know of yet. UnregisteredEnd is the value after
	// the camera stopped.
	UnregisteredMax float64 `json:"unregistered_max_bytes"`
	UnregisteredEnd float64 `json:"unregistered_end_bytes"`
	Samples         int     `json:"samples"`

	// ProcessMs and ProgramsMs are the CPU time of the relay's process and of its eBPF programs at
	// ingress, which includes sending the copies. Precomputed is the share of Forwarded with a
	// precomputed key stream.
	ProcessMs   float64 `json:"process_ms_per_frame"`
	ProgramsMs  float64 `json:"programs_ms_per_frame"`
	Precomputed float64 `json:"precomputed_part"`

	// Failures report a late emulator.
	Failures []string `json:"failures,omitempty"`
}

// medians merges the turns of one mode: medians of rates and delays, sums of counts, and the maximum of
// unregistered bytes.
func medians(turns []CameraRun) CameraRun {
	all := turns[0]
	all.Turns, all.Fallback, all.Failures = len(turns), map[string]float64{}, nil
	all.Forwarded, all.Lost, all.Samples = 0, 0, 0
	for _, t := range turns {
		all.Forwarded += t.Forwarded
		all.Lost += t.Lost
		all.Samples += t.Samples
		all.UnregisteredMax = max(all.UnregisteredMax, t.UnregisteredMax)
		all.UnregisteredEnd = max(all.UnregisteredEnd, t.UnregisteredEnd)
		all.Failures = append(all.Failures, t.Failures...)
		for reason, n := range t.Fallback {
			all.Fallback[reason] += n
		}
	}
	for _, field := range []func(*CameraRun) *float64{
		func(r *CameraRun) *float64 { return &r.Near.FPS },
		func(r *CameraRun) *float64 { return &r.Near.DelayP50 },
		func(r *CameraRun) *float64 { return &r.Near.DelayP99 },
		func(r *CameraRun) *float64 { return &r.Far.FPS },
		func(r *CameraRun) *float64 { return &r.Far.DelayP50 },
		func(r *CameraRun) *float64 { return &r.Far.DelayP99 },
		func(r *CameraRun) *float64 { return &r.TCPMbps },
		func(r *CameraRun) *float64 { return &r.ProcessMs },
		func(r *CameraRun) *float64 { return &r.ProgramsMs },
		func(r *CameraRun) *float64 { return &r.Precomputed },
	} {
		var values []float64
		for i := range turns {
			values = append(values, *field(&turns[i]))
		}
		*field(&all) = quantile.Of(values, 0.5)
	}
	all.Far.Repaired = quantile.Of(repaired(turns), 0.5)
	return all
}

// repaired returns the frames of the far viewer that were completed by FETCH, by turn.
func repaired(turns []CameraRun) (n []uint64) {
	for _, t := range turns {
		n = append(n, t.Far.Repaired)
	}
	return n
}

// Shown holds a viewer's figures for frames sent during the measurement.
type Shown struct {
	FPS      float64 `json:"fps"` // complete within CameraTimeout
	DelayP50 float64 `json:"delay_p50_ms"`
	DelayP99 float64 `json:"delay_p99_ms"`
	Repaired uint64  `json:"repaired"` // frames completed by FETCH
}

// cameraMarkdown returns the camera part's table.
func (r Result) cameraMarkdown() string {
	if len(r.Camera) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, `## A camera

%s, %.0f Mbit/s in datagrams, 30 frames a second, through the relay to %d near viewers and one behind a path of %s;
then with an additional bulk TCP flow (CUBIC) from the relay's host over that path; then with a busy thread per
processor instead. The modes alternate; rates, delays, repaired frames and CPU times are medians of %d turns of
%.0f s, other figures sums. Frames/s counts frames complete within %d ms, for the near viewers the lowest.
Unregistered is data that the kernel had sent and congestion control did not know of yet: the maximum over samples,
and the value after the camera stopped. CPU time per frame is that of the relay's process and of its eBPF programs,
with the sending of their copies. **auto** and **single** leave connections that carry frames to user space;
**single** prefers ChaCha20 in TLS, as **chacha20** does, and **auto** leaves the choice to the clients, here AES.
Load average before the run: %.1f. Measured at %s UTC.

`, r.CameraSource, r.CameraMbps, nearViewers, FarPath, max(r.Camera[0].Turns, 1), r.Camera[0].Seconds,
		CameraTimeout.Milliseconds(), r.CameraLoad, r.CameraBegan.UTC().Format("2006-01-02 15:04"))
	b.WriteString("| way | load | near: frames/s | delay p50 / p99 ms | far: frames/s | delay p50 / p99 ms | repaired | " +
		"TCP Mbit/s | CPU ms per frame: process | programs | sent by the kernel | precomputed | lost | fallback: " +
		"window | unregistered kB |\n" +
		"| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, c := range r.Camera {
		condition, tcp, mark := "", "", ""
		switch {
		case c.TCP:
			condition, tcp = "TCP", fmt.Sprintf("%.0f", c.TCPMbps)
		case c.Busy:
			condition = "busy threads"
		}
		if len(c.Failures) > 0 {
			mark = "*"
		}
		cpu, kernel := " | ", " | | | | "
		if c.ProcessMs > 0 {
			cpu = fmt.Sprintf(" %.1f | %.1f ", c.ProcessMs, c.ProgramsMs)
		}
		if c.Way != User {
			kernel = fmt.Sprintf(" %.0f | %.0f %% | %.0f | %.0f | %.0f in %d samples, finally %.0f ",
				c.Forwarded, 100*c.Precomputed, c.Lost, c.Fallback["budget"], c.UnregisteredMax/1000, c.Samples,
				c.UnregisteredEnd/1000)
		}
		fmt.Fprintf(&b, "| %s%s | %s | %.1f | %.1f / %.1f | %.1f | %.1f / %.1f | %d | %s |%s|%s|\n", c.Way, mark,
			condition,
			c.Near.FPS, c.Near.DelayP50, c.Near.DelayP99, c.Far.FPS, c.Far.DelayP50, c.Far.DelayP99, c.Far.Repaired,
			tcp, cpu, kernel)
	}
	b.WriteString("\nRows marked * were measured while the emulator was late.\n")
	return b.String()
}
