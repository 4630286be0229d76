package fastpath

import (
	"fmt"
	"strings"
	"time"
)

// A camera's frames in datagrams, to viewers near and far.
const (
	cameraFPS = 30
	// CameraTimeout is the track's delivery timeout. What comes later is of no use.
	CameraTimeout = 500 * time.Millisecond
	nearViewers   = 3 // by cables of their own speed
	// FarPath leads to one more: the first path of Table I of Qian et al., without its variation.
	FarPath = "rate: 400Mbit, delay: 20ms, loss: 0.05%"
)

// CameraRun is a camera's frames at four viewers, one way.
type CameraRun struct {
	Way     string  `json:"way"`
	TCP     bool    `json:"tcp"`  // there was a TCP flow beside the far viewer
	Busy    bool    `json:"busy"` // there was a busy thread for each processor
	Seconds float64 `json:"seconds"`
	Near    Shown   `json:"near"` // the one of the near viewers that had the fewest frames
	Far     Shown   `json:"far"`
	TCPMbps float64 `json:"tcp_mbit_per_s,omitempty"` // what it carried beside them
	// Forwarded are packets that the kernel sent, Left those that it left to user space,
	// Lost those of the former that were lost on the way.
	Forwarded float64            `json:"forwarded"`
	Left      map[string]float64 `json:"left,omitempty"`
	Lost      float64            `json:"lost"`
	// UnregisteredMax is the most that the kernel had sent and congestion control did not
	// know of yet, bytes of all viewers, when it was looked at Samples times;
	// UnregisteredEnd what was left when the camera had stopped.
	UnregisteredMax float64 `json:"unregistered_max_bytes"`
	UnregisteredEnd float64 `json:"unregistered_end_bytes"`
	Samples         int     `json:"samples"`
	// Failures are those of the emulator, which was late.
	Failures []string `json:"failures,omitempty"`
}

// Shown is what a viewer had of the frames sent in the time measured.
type Shown struct {
	FPS      float64 `json:"fps"` // whole within CameraTimeout
	DelayP50 float64 `json:"delay_p50_ms"`
	DelayP99 float64 `json:"delay_p99_ms"`
	Repaired uint64  `json:"repaired"` // frames made whole by FETCH
}

// cameraMarkdown is the table of the camera.
func (r Result) cameraMarkdown() string {
	if len(r.Camera) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, `## A camera

%s, %.0f Mbit/s in datagrams, 30 frames a second, through the relay to %d viewers near it and one behind a path of %s; then with a bulk
TCP flow (CUBIC) from the relay's host over that path, too; then with a busy thread for each processor instead. Frames are those of %.0f s that came whole within %d ms; of the near viewers the
one with the fewest counts. "Not registered" is what the kernel had sent and congestion control did not know of yet, at most, at so many
looks during the run, and when the camera had stopped. The load average before the run, by other work, was %.1f. Measured at %s UTC.

| way | beside | near: frames/s | delay p50 / p99 ms | far: frames/s | delay p50 / p99 ms | repaired | TCP Mbit/s | sent by the kernel | lost | left for the window | not registered, kB |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
`, r.CameraSource, r.CameraMbps, nearViewers, FarPath, r.Camera[0].Seconds, CameraTimeout.Milliseconds(), r.CameraLoad, r.CameraBegan.UTC().Format("2006-01-02 15:04"))
	for _, c := range r.Camera {
		beside, tcp, mark := "", "", ""
		switch {
		case c.TCP:
			beside, tcp = "TCP", fmt.Sprintf("%.0f", c.TCPMbps)
		case c.Busy:
			beside = "busy threads"
		}
		if len(c.Failures) > 0 {
			mark = "*"
		}
		kernel := " | | | "
		if c.Way == ChaCha20 {
			kernel = fmt.Sprintf(" %.0f | %.0f | %.0f | %.0f of %d looks, then %.0f ", c.Forwarded, c.Lost, c.Left["budget"], c.UnregisteredMax/1000, c.Samples, c.UnregisteredEnd/1000)
		}
		fmt.Fprintf(&b, "| %s%s | %s | %.1f | %.0f / %.0f | %.1f | %.0f / %.0f | %d | %s |%s|\n", c.Way, mark, beside,
			c.Near.FPS, c.Near.DelayP50, c.Near.DelayP99, c.Far.FPS, c.Far.DelayP50, c.Far.DelayP99, c.Far.Repaired, tcp, kernel)
	}
	b.WriteString("\nWhat is marked * was measured while the emulator was late.\n")
	return b.String()
}
