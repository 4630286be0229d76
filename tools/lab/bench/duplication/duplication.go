// Package duplication reproduces the evaluation of Qian et al., "Enabling eBPF-based packet
// duplication for robust volumetric video streaming" (Section IV). It runs a live session of
// capture server, relay and player over the emulated five paths of Table I, with an edge pair and
// its controller in between. The session's programs are unaware of the pair.
package duplication

import (
	"fmt"
	"io"
	"slices"
	"time"

	"holocast/netfunc/api"
	"holocast/tools/lab/bench/internal/part"
)

// Options configure Run.
type Options struct {
	Data  string // folder with recordings of real cameras; "" means the synthetic performer
	Quick bool   // runs of 20 s instead of 60 s

	// App carries the frames; the default is Push.
	App App

	// Parts selects levels, modes and, for LiveScan, congestion controls. If it mentions none of a
	// kind, all of that kind are measured.
	Parts []string
	Log   io.Writer // progress lines; nil discards them

	// Keep is the folder for the programs' logs and frame lists; if it is "", they are deleted
	// after each run.
	Keep string
}

// App is an application that carries frames from source to viewer.
type App string

// The applications.
const (
	Push     App = "push"     // our relay and player, over QUIC with BBR
	LiveScan App = "livescan" // LiveScan3D's viewer protocol, in which the viewer requests each frame over TCP
	Uplink   App = "uplink"   // Push with the relay on the viewer's side of the paths

	// With these, delays are drawn for each packet, and packets overtake each other.
	Reordered         App = "reordered"          // Push
	LiveScanReordered App = "livescan-reordered" // LiveScan
)

var apps = []App{Push, LiveScan, Uplink, Reordered, LiveScanReordered}

// requests reports whether the viewer requests each frame over TCP.
func (a App) requests() bool { return a == LiveScan || a == LiveScanReordered }

// reorders reports whether packets overtake each other.
func (a App) reorders() bool { return a == Reordered || a == LiveScanReordered }

// Suffix returns the suffix of the application's result files.
func (a App) Suffix() string {
	if a == "" || a == Push {
		return ""
	}
	return "-" + string(a)
}

// Congestion is a congestion control of the kernel's TCP.
type Congestion string

// LiveScan's congestion controls. The paper used BBR (Section IV-A).
const (
	Cubic Congestion = "cubic" // Linux's default
	BBR   Congestion = "bbr"
)

// Congestions lists the congestion controls.
var Congestions = []Congestion{Cubic, BBR}

// Mode is a way of using the paths.
type Mode string

// The modes that the paper compares.
const (
	Reference Mode = "reference" // path 1 only, without variation
	Single    Mode = "single"    // path 1 only, with varying delay
	Redirect  Mode = "redirect"  // the path with the lowest round-trip time
	Duplicate Mode = "duplicate" // all paths, reduced by elimination

	// Printed is Duplicate with the elimination as the paper prints it, in Algorithm 1.
	Printed Mode = "printed"
)

// Modes lists the modes.
var Modes = []Mode{Reference, Single, Redirect, Duplicate}

// policy returns the controller's mode, or "" for no pair. With Uplink, duplication is set by hand
// instead, because the controller cannot infer delays or losses from packets to a publisher.
func (m Mode) policy(a App) api.Mode {
	if a == Uplink && m == Duplicate {
		return api.Off
	}
	return map[Mode]api.Mode{Redirect: api.Redirect, Duplicate: api.Auto, Printed: api.Auto}[m]
}

// level is one of the paper's resolutions.
type level struct {
	name, about     string
	geometry, color string // of the capture server

	// live levels are encoded during the run. The others are encoded beforehand, because two
	// processors cannot encode, relay, decode and emulate them in real time.
	live bool

	// points is the number of points in a LiveScan frame. At 9 bytes each they match the bit rate
	// of this level in our session.
	points int
}

var levels = []level{
	{"nfov", "NFOV: every reading of the depth camera", "depth", "720P", true, 33_000},
	{"hd", "HD: depth mapped to 1280×720 color pixels", "color", "720P", false, 53_000},
	{"fhd", "FHD: depth mapped to 1920×1080 color pixels", "color", "1080P", false, 100_000},
}

// schedule is the timing of a run, relative to the end of its warm-up.
type schedule struct {
	length   time.Duration
	from, to time.Duration // period in which delays vary and frames count
}

var (
	full  = schedule{60 * time.Second, 10 * time.Second, 50 * time.Second}
	quick = schedule{20 * time.Second, 3 * time.Second, 17 * time.Second}
)

const (
	fps = 30

	// eachPacket is the lifetime of a delay with reordering. Packets follow each other after 50 to 160 µs.
	eachPacket = 100 * time.Microsecond

	// warmup is the time from the first displayed frame until congestion control has found its
	// rate.
	warmup = 3 * time.Second

	// warmupPair is the warm-up with a pair. It is longer, because the session's start may trigger
	// duplication.
	warmupPair = 6 * time.Second

	// maxRepeats bounds, over the whole benchmark, the number of runs repeated because the machine
	// was busy.
	maxRepeats = 4
)

// Parts lists the levels and modes, which all applications share.
func Parts() []string { return Push.parts() }

// modes returns the application's modes.
func (a App) modes() []Mode {
	switch {
	case a == Uplink:
		return []Mode{Reference, Single, Duplicate}
	case a.reorders():
		return []Mode{Reference, Single, Redirect, Duplicate, Printed}
	}
	return Modes
}

// parts returns the application's parts.
func (a App) parts() (names []string) {
	for _, l := range levels {
		names = append(names, l.name)
	}
	for _, m := range a.modes() {
		names = append(names, string(m))
	}
	if a.requests() {
		for _, c := range Congestions {
			names = append(names, string(c))
		}
	}
	return names
}

// congestions returns the TCP congestion controls to measure: only "" unless the application is
// LiveScan.
func (o Options) congestions() (list []Congestion) {
	if !o.App.requests() {
		return []Congestion{""}
	}
	for _, c := range Congestions {
		if slices.Contains(o.Parts, string(c)) {
			list = append(list, c)
		}
	}
	if list == nil {
		list = Congestions
	}
	return list
}

// choose returns the levels and modes that Options.Parts selects.
func (o Options) choose() (ls []level, ms []Mode, err error) {
	if o.App != "" && !slices.Contains(apps, o.App) {
		return nil, nil, fmt.Errorf("no application %q; want one of %v", o.App, apps)
	}
	if err := part.Check(o.Parts, o.App.parts()); err != nil {
		return nil, nil, err
	}
	for _, l := range levels {
		if slices.Contains(o.Parts, l.name) {
			ls = append(ls, l)
		}
	}
	modes := o.App.modes()
	for _, m := range modes {
		if slices.Contains(o.Parts, string(m)) {
			ms = append(ms, m)
		}
	}
	if ls == nil {
		ls = levels
	}
	if ms == nil {
		ms = modes
	}
	return ls, ms, nil
}
