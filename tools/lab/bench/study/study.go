// Package study repeats the measurements of a published comparison of transport protocols for
// holographic objects (I. Ali et al., 2023, a simulation) with real stacks over emulated paths: raw
// UDP, the kernel's TCP, QUIC, and MOQT over QUIC and WebTransport.
package study

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Options configure Run.
type Options struct {
	Quick  bool
	Paths  []string // some of AllPaths; nil = all
	Wifi   string   // model of path wifi; "" = study
	State  string   // file that keeps each finished cell; "" = none
	Resume bool     // take finished cells of the same kind of run from State
	Log    io.Writer
}

// Paths lists the paper's paths.
func Paths() []string { return []string{"lan", "wan", "wifi"} }

// AllPaths lists the paths, also those on which packets overtake others, for the paper's roadmap.
func AllPaths() []string { return append(Paths(), reordering...) }

// reordering are WANs on which a share of the packets, at the end of the name, are 5 ms late.
var reordering = []string{reorderPrefix + "0%", reorderPrefix + "1%", reorderPrefix + "5%", reorderPrefix + "20%"}

const reorderPrefix = "reorder-"

// conditions returns a path's conditions as YAML.
func conditions(path string) string {
	if share, ok := strings.CutPrefix(path, reorderPrefix); ok {
		return wanPath + ", strays: {share: " + share + ", delay: 5ms}"
	}
	if path == "lan" {
		return lanPath
	}
	return wanPath
}

// reordered lists the transports on paths that reorder.
var reordered = []string{"tcp-cubic", "tcp-bbr", "quic-cubic", "quic-bbr", moqtName}

// The paths. The paper gives the rate and the queue. It gives no delays: in its Figure 4b TCP stops
// growing at buffers of 2 MB, which is the product of 400 Mbit/s and a round trip of 40 ms. Its
// wireless client is behind the WAN.
const (
	lanPath = "rate: 400Mbit, queue: 100 packets, delay: 1ms"
	wanPath = "rate: 400Mbit, queue: 100 packets, delay: 20ms"

	// wifiModel is the default Wi-Fi channel of path wifi, in addition to the WAN's path.
	wifiModel = "study"
)

// Names of transports other than TCP's and QUIC's with their controllers.
const (
	udp          = "udp"          // as fast as the sender can
	udpPaced     = "udp-paced"    // at udpRate
	moqtName     = "moqt"         // over QUIC
	webTransport = "webtransport" // MOQT over WebTransport
	tcpPrefix    = "tcp-"
	quicPrefix   = "quic-"
	perSegment   = "-segments" // suffix: a stream for each segment
)

// udpRate is the paper's sending rate: 374 Mbit/s arrive, which are 94 %. In bit/s of payload.
const udpRate = 398e6

// tcpControllers are the kernel's congestion controllers that the study asks for.
var tcpControllers = []string{"cubic", "reno", "bbr", "vegas", "yeah"}

var quicControllers = []string{"bbr", "cubic", "newreno", "vegas", "yeah"}

// transports lists all transports, given the kernel's congestion controllers, and those of TCP that
// the kernel lacks.
func transports(kernel []string) (names, missing []string) {
	names = []string{udp, udpPaced}
	for _, c := range tcpControllers {
		if slices.Contains(kernel, c) {
			names = append(names, tcpPrefix+c)
		} else {
			missing = append(missing, tcpPrefix+c)
		}
	}
	for _, c := range quicControllers {
		names = append(names, quicPrefix+c)
	}
	for _, c := range quicControllers {
		names = append(names, quicPrefix+c+perSegment)
	}
	return append(names, moqtName, webTransport), missing
}

// reliable reports whether a transport repairs losses.
func reliable(transport string) bool { return transport != udp && transport != udpPaced }

// Loads of cells.
const (
	objectLoad = "object" // one object, sent as fast as the transport allows
	framesLoad = "frames" // a camera
)

const (
	segmentBytes = 250_000 // of an object; its last segment is shorter

	// A camera's frames: the paper's 40 Mbit/s for one compressed sensor.
	frameBytes    = 40_000_000 / 8 / framesPerS
	framesPerS    = 30
	frameDeadline = 500 * time.Millisecond // the capture server's default delivery timeout

	// framesAtOnce is the number of cameras measured at the same time, on paths of their own. They leave processors and
	// paths idle most of the time.
	framesAtOnce = 2

	largeBuffer = 4096 // KiB

	// streams is the connection's window in stream windows, with a stream for each segment:
	// the paper's QUIC has buffers for each stream.
	streams = 16
)

// An ID names a cell.
type ID struct {
	Path      string `json:"path"`
	Wifi      string `json:"wifi,omitempty"` // model of path wifi
	Transport string `json:"transport"`
	Load      string `json:"load"`
	Mbit      int    `json:"mbit,omitempty"` // size of the object
	KiB       int    `json:"buffer_kib"`     // of send and receive buffers, or QUIC's windows
	Turn      int    `json:"turn"`
	Seconds   int    `json:"seconds,omitempty"` // of frames
}

// A Cell is one measurement.
type Cell struct {
	ID
	RetrievalS float64 `json:"retrieval_s,omitempty"` // from dialing to the last byte
	Complete   bool    `json:"complete"`              // the object arrived within the limit
	Mbps       float64 `json:"mbps"`
	// Of the packets towards the client, on all emulated paths together.
	DelayMs  float64 `json:"delay_ms"`  // mean
	JitterMs float64 `json:"jitter_ms"` // mean difference of successive packets' delays; sum over the paths
	Delivery float64 `json:"delivery"`  // of the bytes sent; of frames: share on time
	// Of frames.
	FrameP50Ms float64 `json:"frame_delay_ms_p50,omitempty"`
	FrameP99Ms float64 `json:"frame_delay_ms_p99,omitempty"`

	Series   *Series  `json:"series,omitempty"`
	LateUs   float64  `json:"departure_error_p99_us"` // of the emulator
	Failures []string `json:"emulator_failures,omitempty"`
}

// A Series holds samples over time, in seconds since dialing.
type Series struct {
	T      []float64 `json:"t"`
	Window []float64 `json:"window_kib"` // congestion window; 0 = unknown
	RTT    []float64 `json:"rtt_ms"`     // smoothed; 0 = unknown
	QueueT []float64 `json:"queue_t"`
	Queue  []float64 `json:"queue_packets"` // at the first path, most in each interval
}

// plan lists the cells of a run, in the order in which they are measured.
func plan(o Options, names []string) (ids []ID) {
	paths := o.Paths
	if len(paths) == 0 {
		paths = AllPaths()
	}
	objects, buffers, turns, seconds := []int{1, 10, 50, 100, 400}, []int{128, 256, 512, 1024, 2048, 4096}, 3, 20
	few := func(string) bool { return true }
	if o.Quick {
		objects, buffers, turns, seconds = []int{10, 100}, []int{128, 1024, 4096}, 1, 4
		few = func(name string) bool {
			return slices.Contains([]string{
				udp, udpPaced, "tcp-cubic", "tcp-bbr", "tcp-vegas", "tcp-yeah", "quic-bbr",
				"quic-cubic", "quic-vegas", "quic-yeah", "quic-yeah-segments", moqtName, webTransport,
			}, name)
		}
	}
	for turn := range turns {
		for _, path := range paths {
			for _, name := range names {
				if strings.HasPrefix(path, reorderPrefix) {
					if slices.Contains(reordered, name) {
						ids = append(ids, ID{
							Path: path, Transport: name, Load: objectLoad, Mbit: o.reorderMbit(), KiB: largeBuffer, Turn: turn,
						})
					}
					continue
				}
				if !few(name) {
					continue
				}
				for _, mbit := range objects {
					if turn > 0 && mbit < objects[len(objects)-1] {
						continue // small objects once
					}
					ids = append(ids, ID{Path: path, Transport: name, Load: objectLoad, Mbit: mbit, KiB: largeBuffer, Turn: turn})
				}
			}
			for _, name := range names {
				// Without pauses, frames are like those of udpPaced.
				if name != udp && few(name) && !strings.HasPrefix(path, reorderPrefix) {
					ids = append(ids, ID{
						Path: path, Transport: name, Load: framesLoad, KiB: largeBuffer, Turn: turn, Seconds: seconds,
					})
				}
			}
		}
	}
	for _, path := range paths {
		for _, name := range names {
			sweeps := (path == "wan" || path == "wifi") && few(name) && name != udp && name != moqtName && name != webTransport
			if o.Quick {
				sweeps = sweeps && slices.Contains([]string{
					udpPaced, "tcp-cubic", "tcp-bbr", "quic-bbr", "quic-yeah",
					"quic-yeah-segments",
				}, name)
			}
			for _, kib := range buffers {
				if sweeps && (kib != largeBuffer || !slices.Contains(objects, sweptMbit)) {
					ids = append(ids, ID{Path: path, Transport: name, Load: objectLoad, Mbit: sweptMbit, KiB: kib})
				}
			}
		}
	}
	for i := range ids {
		if ids[i].Path == "wifi" {
			ids[i].Wifi = cmp.Or(o.Wifi, wifiModel)
		}
	}
	return ids
}

// sweptMbit is the object of the measurements by buffer size.
const sweptMbit = 100

// reorderMbit is the size of objects on paths that reorder, for which the start counts little.
func (o Options) reorderMbit() int {
	if o.Quick {
		return 400
	}
	return 1600
}

// limit bounds the duration of a cell's transfer.
func (id ID) limit() time.Duration {
	if id.Load == framesLoad {
		return time.Duration(id.Seconds)*time.Second + frameDeadline
	}
	// Buffers of 128 KiB allow 25 Mbit/s over the WAN.
	rate := 15e6
	if id.Path == "wifi" {
		rate = 10e6
	}
	return min(45*time.Second, 2*time.Second+time.Duration(float64(id.Mbit)*1e6/rate*float64(time.Second)))
}

// Check returns an error if a path is unknown.
func (o Options) Check() error {
	for _, p := range o.Paths {
		if !slices.Contains(AllPaths(), p) {
			return fmt.Errorf("no path %q; want one of %s", p, strings.Join(AllPaths(), ", "))
		}
	}
	return nil
}
