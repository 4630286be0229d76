// Package fastpath measures how long packets take through the relay, in user space and
// in the kernel, as in Figures 4.2 to 4.5 of Pfeifer, "eBPF-Assisted Relays for Multimedia
// Streaming": publisher, relay and viewers are in network namespaces, and packet sockets
// on the relay's two interfaces stamp each packet as it comes and as it leaves. The keys
// of publisher and viewers, which are in this process, tell which is which.
package fastpath

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Ways that packets go.
const (
	User     = "user"     // through the relay's process
	ChaCha20 = "chacha20" // the relay's kernel fast path
	None     = "none"     // the programs of the fast path alone, without packet protection
	Forward  = "forward"  // the kernel's IP forwarding
)

// Ways lists them in the order of a turn.
var Ways = []string{User, None, ChaCha20, Forward}

// Loads of the machine: nothing of ours, and as many busy threads as it has processors.
const (
	Idle = "idle"
	Busy = "busy"
)

// Loads lists them.
var Loads = []string{Idle, Busy}

// Parts of the benchmark.
const (
	packetsPart = "packets" // one by one
	cameraPart  = "camera"  // a camera's frames
)

// Parts lists them.
func Parts() []string { return []string{packetsPart, cameraPart} }

// Options say what to measure.
type Options struct {
	Data  string    // folder with recordings of real cameras; "" where there is none
	Parts []string  // some of Parts; nil = all
	Quick bool      // under a minute
	Log   io.Writer // progress, a line each; nil for none
	Relay string    // its binary; "" means the one beside this program or, in the source tree, one built for this run
}

// What is sent: objects of one datagram each, at the pace of a timer.
const (
	payloadSize = 1150
	packetsPerS = 1000
)

// Cell is one way under one load.
type Cell struct {
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
	JitterUs float64 `json:"jitter_us"` // mean difference of successive packets' delays (RFC 3550 without the smoothing)
	// CPU is the processor time of the relay's process and of the eBPF programs, for what
	// viewers were sent. nil: not known apart from the rest of the machine.
	CPU *float64 `json:"cpu_s_per_gbit"`
	// Syscalls are those of the relay's process; nil without one.
	Syscalls  *float64 `json:"syscalls_per_s"`
	Packets   int      `json:"packets"`     // measured, of all viewers together
	Lost      int      `json:"lost"`        // that came and did not leave within the run
	Forwarded float64  `json:"kernel_part"` // of the packets that left, those the kernel made; of user space 0
	// Left are packets that the fast path left to user space, by reason.
	Left map[string]float64 `json:"left,omitempty"`
}

// Result is what a run measured, by load and way, for the fewest viewers; All has the
// others, by number of viewers.
type Result struct {
	Idle map[string]Cell                    `json:"idle"`
	Busy map[string]Cell                    `json:"busy"`
	All  map[int]map[string]map[string]Cell `json:"by_viewers"`

	Processors int     `json:"processors"`
	Seconds    float64 `json:"seconds"` // of each cell
	Turns      int     `json:"turns"`
	// LoadAverage is the kernel's, of one minute, before the first cell.
	LoadAverage float64 `json:"load_average"`

	Camera       []CameraRun `json:"camera,omitempty"`
	CameraSource string      `json:"camera_source,omitempty"` // of the frames
	CameraMbps   float64     `json:"camera_mbit_per_s,omitempty"`
	CameraBegan  time.Time   `json:"camera_began,omitzero"`
	CameraLoad   float64     `json:"camera_load_average,omitempty"`
}

// With adds to the result of some parts what an earlier one has of the others.
func (r Result) With(earlier []byte) (interface{ Markdown() string }, error) {
	var old Result
	if err := json.Unmarshal(earlier, &old); err != nil {
		return nil, err
	}
	if len(r.All) == 0 {
		old.Camera, old.CameraSource, old.CameraMbps, old.CameraBegan, old.CameraLoad = r.Camera, r.CameraSource, r.CameraMbps, r.CameraBegan, r.CameraLoad
		return old, nil
	}
	if len(r.Camera) == 0 {
		r.Camera, r.CameraSource, r.CameraMbps, r.CameraBegan, r.CameraLoad = old.Camera, old.CameraSource, old.CameraMbps, old.CameraBegan, old.CameraLoad
	}
	return r, nil
}

// Measured returns the parts that the result has.
func (r Result) Measured() (parts []string) {
	if len(r.All) > 0 {
		parts = append(parts, packetsPart)
	}
	if len(r.Camera) > 0 {
		parts = append(parts, cameraPart)
	}
	return parts
}

// Markdown is the result for people.
func (r Result) Markdown() string { return r.packetsMarkdown() + r.cameraMarkdown() }

// packetsMarkdown is the tables of single packets.
func (r Result) packetsMarkdown() string {
	if len(r.All) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, `A publisher sends %d objects a second of %d B, each in a datagram, through a relay to viewers; all three are in network
namespaces of one machine with %d processors. Delay is from the arrival of a packet at the relay's interface to the departure
of each copy, by the kernel's time stamps of packet sockets. Each row is the packets of %d turns of %.0f s; the rows of a table took turns.

* **user**: the relay in user space, with AES-128-GCM, as TLS agrees on it.
* **chacha20**: the relay with its kernel fast path, packets opened and sealed by eBPF.
* **none**: the programs of the fast path without packet protection, which reproduces the thesis; the packets are made for it, as no
  session of QUIC exists without. Its processor time is that of the programs alone.
* **forward**: IP forwarding in the kernel, one packet sent for each viewer. Its processor time cannot be told from the rest's.

A packet that exceeds a viewer's congestion window, or finds no packet number, is left to user space and waits there: such packets
are the tail of **chacha20** where they are more than 1 %%. On a network without delay BBR's window is a few packets, and
the relay's process must get the processor to learn of an ACK. The load average before the run, by other work, was %.1f.

`, packetsPerS, payloadSize, r.Processors, r.Turns, r.Seconds, r.LoadAverage)
	for _, viewers := range slices.Sorted(maps.Keys(r.All)) {
		for _, load := range Loads {
			title := "idle"
			if load == Busy {
				title = fmt.Sprintf("%d busy threads beside it", r.Processors)
			}
			fmt.Fprintf(&b, "## %d viewer%s, %s\n\n| way | p50 µs | p99 µs | jitter µs | CPU s/Gbit | system calls/s | made by the kernel | left for the window | left otherwise | packets | lost |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
				viewers, map[bool]string{false: "s"}[viewers == 1], title)
			for _, way := range Ways {
				c, ok := r.All[viewers][load][way]
				if !ok {
					continue
				}
				cpu, calls := "–", "–"
				if c.CPU != nil {
					cpu = fmt.Sprintf("%.2f", *c.CPU)
				}
				if c.Syscalls != nil {
					calls = fmt.Sprintf("%.0f", *c.Syscalls)
				}
				var other float64
				for reason, n := range c.Left {
					if reason != "budget" {
						other += n
					}
				}
				fmt.Fprintf(&b, "| %s | %.0f | %.0f | %.0f | %s | %s | %.1f %% | %.0f | %.0f | %d | %d |\n",
					way, c.P50, c.P99, c.JitterUs, cpu, calls, 100*c.Forwarded, c.Left["budget"], other, c.Packets, c.Lost)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}
