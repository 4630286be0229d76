// Package duplication is the evaluation of Qian et al., "Enabling eBPF-based packet
// duplication for robust volumetric video streaming" (section IV), on our system: a live
// session of capture server, relay and player over the five paths of Table I in the
// network lab, with the duplication pair and its controller between them. The programs of
// the session know nothing of it.
package duplication

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"holocast/netfunc/api"
)

// Options say what to measure.
type Options struct {
	Data  string // folder of recordings of real cameras; "" = the synthetic performer
	Quick bool   // 20 s a run instead of 60
	// App is what carries frames: Push, the default, or LiveScan.
	App App
	// Parts names levels and modes, and of LiveScan congestion controls; of each kind none
	// stands for all.
	Parts []string
	Log   io.Writer // progress, a line each; nil = none
	// Keep is a folder for the programs' logs and lists of frames; "" = they are removed.
	Keep string
}

// App is what carries frames from the source to the viewer.
type App string

// The applications.
const (
	Push     App = "push"     // our session: relay and player, over QUIC with BBR
	LiveScan App = "livescan" // LiveScan3D's viewer protocol: each frame is asked for, over TCP
	Uplink   App = "uplink"   // our session, with the relay beside the viewer: its publisher is far away
)

var apps = []App{Push, LiveScan, Uplink}

// Suffix is what the names of the application's results end with.
func (a App) Suffix() string {
	if a == "" || a == Push {
		return ""
	}
	return "-" + string(a)
}

// Congestion is a congestion control of the kernel's TCP.
type Congestion string

// The congestion controls that LiveScan is measured with. The paper's section IV-A says BBR.
const (
	Cubic Congestion = "cubic" // Linux's default
	BBR   Congestion = "bbr"
)

// Congestions lists them all.
var Congestions = []Congestion{Cubic, BBR}

// Mode is how packets take the paths.
type Mode string

// The modes, as the paper compares them.
const (
	Reference Mode = "reference" // path 1 alone, nothing varies
	Single    Mode = "single"    // path 1 alone, delays vary
	Redirect  Mode = "redirect"  // the path with the least round-trip time
	Duplicate Mode = "duplicate" // all paths, then those that the elimination leaves
)

// Modes lists them all.
var Modes = []Mode{Reference, Single, Redirect, Duplicate}

// policy is how the controller chooses paths; "" = there is no pair. Nothing that a publisher
// is sent tells that it is in trouble, so of Uplink an operator chooses them.
func (m Mode) policy(a App) api.Mode {
	if a == Uplink && m == Duplicate {
		return api.Off
	}
	return map[Mode]api.Mode{Redirect: api.Redirect, Duplicate: api.Auto}[m]
}

// level is a resolution of the paper.
type level struct {
	name, about     string
	geometry, color string // of the capture server
	// live levels are encoded as they are sent; the frames of the others before, for
	// two processors do not encode, relay, decode and emulate them at a time.
	live bool
	// trigger is the interval between receipts that starts duplication. There is a receipt
	// for every frame shown: 33 ms are in order, and 40 ms more where packets had to be sent
	// again over path 1, in the largest frames more than once.
	trigger time.Duration
	// points is how many points a frame of LiveScan has, of which each takes 9 bytes: as
	// many as make the bit rate that the level has in our session.
	points int
}

var levels = []level{
	{"nfov", "NFOV: every reading of the depth camera", "depth", "720P", true, 100 * time.Millisecond, 33_000},
	{"hd", "HD: depth mapped to 1280×720 pixels of colour", "color", "720P", false, 90 * time.Millisecond, 53_000},
	{"fhd", "FHD: depth mapped to 1920×1080 pixels of colour", "color", "1080P", false, 110 * time.Millisecond, 100_000},
}

// schedule says when things happen in a run, from the moment its times count.
type schedule struct {
	length   time.Duration
	from, to time.Duration // delays vary, and what is measured counts
}

var (
	full  = schedule{60 * time.Second, 10 * time.Second, 50 * time.Second}
	quick = schedule{20 * time.Second, 3 * time.Second, 17 * time.Second}
)

const (
	fps = 30
	// settle is from the first frame shown to the moment that times count from: the
	// congestion control finds its rate.
	settle = 3 * time.Second
	// settlePair is the same with the pair, which may take the beginning for trouble.
	settlePair = 6 * time.Second
	// spare is how many runs are made again, in all, because the machine was too busy.
	spare = 4
)

// Parts are the names of levels and modes, which all applications have.
func Parts() []string { return Push.parts() }

// modes are those an application is measured in.
func (a App) modes() []Mode {
	if a == Uplink {
		return []Mode{Reference, Single, Duplicate}
	}
	return Modes
}

// parts are an application's.
func (a App) parts() (names []string) {
	for _, l := range levels {
		names = append(names, l.name)
	}
	for _, m := range a.modes() {
		names = append(names, string(m))
	}
	if a == LiveScan {
		for _, c := range Congestions {
			names = append(names, string(c))
		}
	}
	return names
}

// congestions returns the congestion controls of Options.Parts; Push has its own.
func (o Options) congestions() (list []Congestion) {
	if o.App != LiveScan {
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

// choose returns the levels and modes of Options.Parts.
func (o Options) choose() (ls []level, ms []Mode, err error) {
	if o.App != "" && !slices.Contains(apps, o.App) {
		return nil, nil, fmt.Errorf("app %q is none of %s, %s, %s", o.App, Push, LiveScan, Uplink)
	}
	for _, p := range o.Parts {
		if names := o.App.parts(); !slices.Contains(names, p) {
			return nil, nil, fmt.Errorf("part %q is none of %s", p, strings.Join(names, ", "))
		}
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
