// Package fastpath measures the delay of packets through the relay in user space and in the kernel,
// as in Figures 4.2 to 4.5 of Pfeifer, "eBPF-Assisted Relays for Multimedia Streaming". The
// publisher, the relay and the viewers are in network namespaces. Packet sockets on the relay's two
// interfaces time-stamp each packet on arrival and departure. This process matches the packets by
// decrypting them with the keys of publisher and viewers.
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

// Ways of forwarding.
const (
	User     = "user"     // the relay's process
	ChaCha20 = "chacha20" // the relay's kernel fast path
	None     = "none"     // the fast path's programs alone, without packet protection
	Forward  = "forward"  // the kernel's IP forwarding

	// Auto and Single are the relay with the fast path's modes of these names, for the camera part only.
	Auto   = "auto"
	Single = "single"
)

// Ways lists the ways of forwarding in the order of measurement in each turn.
var Ways = []string{User, None, ChaCha20, Forward}

// Loads of the machine: idle, or one busy thread per processor.
const (
	Idle = "idle"
	Busy = "busy"
)

// Loads lists the loads.
var Loads = []string{Idle, Busy}

// Parts of the benchmark.
const (
	packetsPart = "packets" // single packets
	cameraPart  = "camera"  // a camera's frames
)

// Parts lists the parts of the benchmark.
func Parts() []string { return []string{packetsPart, cameraPart} }

// Options configure Run.
type Options struct {
	Data  string    // folder with recordings of real cameras; "" if missing
	Parts []string  // some of Parts; nil = all
	Quick bool      // under a minute
	Log   io.Writer // progress lines; nil discards them
	Relay string    // binary; "" selects the one next to this program, or builds one
}

// The traffic consists of paced objects of one datagram each.
const (
	payloadSize = 1130
	packetsPerS = 1000
)

// Cell holds the figures for one way of forwarding under one load.
type Cell struct {
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
	JitterUs float64 `json:"jitter_us"` // mean difference between successive delays (RFC 3550 without smoothing)

	// CPU is the CPU time of the relay's process and eBPF programs per amount of data sent to
	// viewers. It is nil for IP forwarding, whose CPU time is unknown.
	CPU *float64 `json:"cpu_s_per_gbit"`

	// Syscalls counts system calls of the relay's process; it is nil without a relay.
	Syscalls       *float64           `json:"syscalls_per_s"`
	SyscallsByName map[string]float64 `json:"syscalls_per_s_by_name,omitempty"`

	Packets   int     `json:"packets"`     // over all viewers
	Lost      int     `json:"lost"`        // arrived at the relay but not forwarded within the run
	Forwarded float64 `json:"kernel_part"` // share of packets forwarded by the kernel

	// Fallback counts packets that the fast path left to user space, by reason.
	Fallback map[string]float64 `json:"fallback,omitempty"`
}

// Result holds the measurements. Idle and Busy hold the figures for the lowest number of viewers,
// by way; All holds all figures, by number of viewers, load and way.
type Result struct {
	Idle map[string]Cell                    `json:"idle"`
	Busy map[string]Cell                    `json:"busy"`
	All  map[int]map[string]map[string]Cell `json:"by_viewers"`

	Processors int     `json:"processors"`
	Seconds    float64 `json:"seconds"` // per cell
	Turns      int     `json:"turns"`

	// LoadAverage is the kernel's one-minute load average before the first cell.
	LoadAverage float64 `json:"load_average"`

	Camera       []CameraRun `json:"camera,omitempty"`
	CameraSource string      `json:"camera_source,omitempty"` // of the frames
	CameraMbps   float64     `json:"camera_mbit_per_s,omitempty"`
	CameraBegan  time.Time   `json:"camera_began,omitzero"`
	CameraLoad   float64     `json:"camera_load_average,omitempty"`
}

// With returns r, completed with the parts of an earlier result that r lacks.
func (r Result) With(earlier []byte) (interface{ Markdown() string }, error) {
	var old Result
	if err := json.Unmarshal(earlier, &old); err != nil {
		return nil, err
	}
	if len(r.All) == 0 {
		old.Camera, old.CameraSource, old.CameraMbps, old.CameraBegan, old.CameraLoad = r.Camera, r.CameraSource,
			r.CameraMbps, r.CameraBegan, r.CameraLoad
		return old, nil
	}
	if len(r.Camera) == 0 {
		r.Camera, r.CameraSource, r.CameraMbps, r.CameraBegan, r.CameraLoad = old.Camera, old.CameraSource,
			old.CameraMbps, old.CameraBegan, old.CameraLoad
	}
	return r, nil
}

// Measured lists the parts present.
func (r Result) Measured() (parts []string) {
	if len(r.All) > 0 {
		parts = append(parts, packetsPart)
	}
	if len(r.Camera) > 0 {
		parts = append(parts, cameraPart)
	}
	return parts
}

// Markdown returns the tables.
func (r Result) Markdown() string { return r.packetsMarkdown() + r.cameraMarkdown() }

// packetsMarkdown returns the packets part's tables.
func (r Result) packetsMarkdown() string {
	if len(r.All) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(
		&b,
		`A publisher sends %d objects a second of %d B, one per datagram, through a relay to viewers; all three are in network
namespaces on one machine with %d processors. Delay is from a packet's arrival at the relay's interface to the
departure of each copy, by the kernel's time stamps on packet sockets. Each row covers %d turns of %.0f s; the rows
of a table alternate.

* **user**: the relay in user space, with AES-128-GCM as negotiated by TLS.
* **chacha20**: the relay with its kernel fast path; eBPF decrypts and encrypts packets.
* **none**: the fast path's programs without packet protection, as in the thesis, but without its QUIC connections:
  the packets are synthetic, as QUIC always protects packets, and nothing answers them. CPU time is that of the
  programs alone.
* **forward**: IP forwarding in the kernel, one packet sent per viewer. Its CPU time cannot be separated from the
  machine's.

Packets beyond a viewer's congestion window, or without a packet number, fall back to user space and wait there.
They form the tail of **chacha20** if they exceed 1 %%. On a network without delay, BBR's window is a few packets,
and the relay's process needs the processor to learn of an ACK. Load average before the run: %.1f.

`,
		packetsPerS,
		payloadSize,
		r.Processors,
		r.Turns,
		r.Seconds,
		r.LoadAverage,
	)
	for _, viewers := range slices.Sorted(maps.Keys(r.All)) {
		for _, load := range Loads {
			title := "idle"
			if load == Busy {
				title = fmt.Sprintf("%d busy threads", r.Processors)
			}
			fmt.Fprintf(&b, "## %d viewer%s, %s\n\n"+
				"| way | p50 µs | p99 µs | jitter µs | CPU s/Gbit | system calls/s | forwarded by the kernel | "+
				"fallback: window | other fallback | packets | lost |\n| --- | ---: | ---: | ---: | ---: | ---: "+
				"| ---: | ---: | ---: | ---: | ---: |\n",
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
				for reason, n := range c.Fallback {
					if reason != "budget" {
						other += n
					}
				}
				fmt.Fprintf(&b, "| %s | %.0f | %.0f | %.0f | %s | %s | %.1f %% | %.0f | %.0f | %d | %d |\n",
					way, c.P50, c.P99, c.JitterUs, cpu, calls, 100*c.Forwarded, c.Fallback["budget"], other, c.Packets,
					c.Lost)
			}
			b.WriteByte('\n')
		}
	}
	r.syscallsMarkdown(&b)
	return b.String()
}

// thesisCalls holds the system calls in the thesis's appendix, without and with forwarding in the
// kernel, in 30 s of video. All of its programs are counted.
var thesisCalls = []struct {
	name          string
	without, with float64
}{
	{"futex", 32940, 21666},
	{"epoll_pwait", 34149, 11289},
	{"nanosleep", 24716, 14293},
	{"sendmsg", 11862, 1133},
	{"recvmsg", 7719, 4898},
	{"recvmmsg", 0, 0},
	{"read", 30601, 30236},
	{"write", 1751, 1262},
	{"other", 0, 0},
}

// syscallsMarkdown writes the system calls by name, with those of the thesis.
func (r Result) syscallsMarkdown(b *strings.Builder) {
	user, kernel := r.Idle[User].SyscallsByName, r.Idle[ChaCha20].SyscallsByName
	if len(user) == 0 || len(kernel) == 0 {
		return
	}
	b.WriteString("## System calls by name\n\nOf the relay's process, idle, per second, with the fewest viewers. The " +
		"thesis counts all of its programs for 30 s, with strace.\n\n| | user | chacha20 | change | thesis |\n" +
		"| --- | ---: | ---: | ---: | ---: |\n")
	change := func(from, to float64) string {
		if from == 0 {
			return "–"
		}
		return fmt.Sprintf("%+.0f %%", 100*(to/from-1))
	}
	for _, c := range thesisCalls {
		fmt.Fprintf(b, "| %s | %.0f | %.0f | %s | %s |\n", c.name, user[c.name], kernel[c.name],
			change(user[c.name], kernel[c.name]), change(c.without, c.with))
	}
	fmt.Fprintf(b, "| all | %.0f | %.0f | %s | %s |\n\n", *r.Idle[User].Syscalls, *r.Idle[ChaCha20].Syscalls,
		change(*r.Idle[User].Syscalls, *r.Idle[ChaCha20].Syscalls), change(296132, 225674))
}
