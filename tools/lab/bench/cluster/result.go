package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Result holds the measurements.
type Result struct {
	Began       time.Time `json:"began"`
	Seconds     float64   `json:"seconds"`
	Processors  int       `json:"processors"`   // of the machine
	LoadAverage float64   `json:"load_average"` // the kernel's, over a minute, before the run

	JoinMs     float64              `json:"join_ms"` // from the last relay's start until all know each other; median
	Joins      int                  `json:"joins"`
	HopMs      []Hop                `json:"hop_ms,omitempty"`
	Copies     float64              `json:"copies,omitempty"` // of each track from relay to relay; the largest
	CPU        *CPU                 `json:"cpu,omitempty"`
	AnnounceMs float64              `json:"announce_ms,omitempty"`
	MemoryMB   float64              `json:"memory_mb,omitempty"` // of the largest relay once all namespaces are announced
	Announce   *Announce            `json:"announce,omitempty"`
	Failover   map[string]*Failover `json:"failover,omitempty"` // by fault

	// Late names, for each part, an emulated path whose packets left late because the machine was busy.
	Late []string `json:"late,omitempty"`
}

// Hop is the additional delay of frames at one relay's viewers over those at the publisher's relay.
type Hop struct {
	Between string  `json:"between"`
	Path    float64 `json:"path"` // one-way delay
	Limit   float64 `json:"limit"`
	P50     float64 `json:"p50"`
	P95     float64 `json:"p95"`
	Frames  int     `json:"frames"`
}

// CPU is the processor time of relays that serve the same viewers with and without a hop, in
// milliseconds per second.
type CPU struct {
	Viewers        int     `json:"viewers"`
	MbitPerS       float64 `json:"mbit_per_s"` // of the stream
	Seconds        float64 `json:"seconds"`    // of each measurement
	OneRelay       float64 `json:"one_relay"`
	PublisherRelay float64 `json:"publisher_relay"` // with the viewers at another relay
	ViewersRelay   float64 `json:"viewers_relay"`
	IdleRelay      float64 `json:"idle_relay"` // a member without traffic
}

// Announce is the announcement of many namespaces at one relay.
type Announce struct {
	Namespaces int     `json:"namespaces"`
	LastMs     float64 `json:"last_ms"` // from the last namespace's acceptance until all relays know all
	IdleMB     float64 `json:"idle_mb"` // largest relay before
}

// Failover holds the figures of a fault, over all viewers and repetitions.
type Failover struct {
	Repetitions  int
	Failed       int      // repetitions that the benchmark could not carry out
	NotRecovered int      // viewers that received nothing until the end of the observation
	Wrong        int      // frames of another session that a viewer received
	OneOwner     float64  // milliseconds until the parts of a divided cluster agree on a namespace's owner, p95
	at, others   *Outages // viewers that the fault affects, and other viewers

	atAll, othersAll []outage
	settled          []time.Duration
}

// Outages are quantiles over viewers and repetitions.
type Outages struct {
	Samples          int
	LostP50, LostP95 int
	GapP50, GapP95   float64 // milliseconds
}

// failoverJSON is a Failover in JSON. Fields of missing viewers are omitted.
type failoverJSON struct {
	Repetitions   int      `json:"repetitions"`
	Failed        int      `json:"failed,omitempty"`
	NotRecovered  int      `json:"not_recovered"`
	Wrong         int      `json:"wrong_frames"`
	OneOwner      float64  `json:"one_owner_ms_p95,omitempty"`
	Samples       int      `json:"samples,omitempty"`
	LostP50       *int     `json:"frames_lost_p50,omitempty"`
	LostP95       *int     `json:"frames_lost_p95,omitempty"`
	GapP50        *float64 `json:"gap_ms_p50,omitempty"`
	GapP95        *float64 `json:"gap_ms_p95,omitempty"`
	SamplesOthers int      `json:"samples_others,omitempty"`
	LostP50Others *int     `json:"frames_lost_p50_others,omitempty"`
	LostP95Others *int     `json:"frames_lost_p95_others,omitempty"`
	GapP50Others  *float64 `json:"gap_ms_p50_others,omitempty"`
	GapP95Others  *float64 `json:"gap_ms_p95_others,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (f *Failover) MarshalJSON() ([]byte, error) {
	j := failoverJSON{
		Repetitions: f.Repetitions, Failed: f.Failed, NotRecovered: f.NotRecovered, Wrong: f.Wrong, OneOwner: f.OneOwner,
	}
	if o := f.at; o != nil {
		j.Samples, j.LostP50, j.LostP95, j.GapP50, j.GapP95 = o.Samples, &o.LostP50, &o.LostP95, &o.GapP50, &o.GapP95
	}
	if o := f.others; o != nil {
		j.SamplesOthers, j.LostP50Others, j.LostP95Others = o.Samples, &o.LostP50, &o.LostP95
		j.GapP50Others, j.GapP95Others = &o.GapP50, &o.GapP95
	}
	return json.Marshal(j)
}

// Markdown returns the tables and how the figures were measured.
func (r *Result) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Three sites with a relay each: A – B %d ms one way, B – C %d ms, A – C through B's site %d ms. The "+
		"publisher is at A: %d frames of %d kB a second, each a group. The relays are one cluster with embedded NATS. "+
		"Relays, publisher and viewers are processes in network namespaces on one machine with %d processors, over "+
		"emulated paths; clients are those of `internal/connect`, which all our programs use. Load average before the "+
		"run: %.1f. The relays know each other %.0f ms after the last one's start, in the median of %d starts.\n",
		delayAB.Milliseconds(), delayBC.Milliseconds(), (delayAB + delayBC).Milliseconds(), FramesPerS, FrameBytes/1000,
		r.Processors, r.LoadAverage, r.JoinMs, r.Joins)
	if len(r.HopMs) > 0 {
		fmt.Fprintf(&b, "\n## Hops\n\nThe delay of a frame at a viewer of B or C minus its delay at a viewer of A. At "+
			"most %g times the path's delay plus %d ms is the goal for p50.\n\n| hop | path ms | goal ms | p50 ms | p95 ms | "+
			"frames |\n| --- | ---: | ---: | ---: | ---: | ---: |\n", hopFactor, hopExtra.Milliseconds())
		for _, h := range r.HopMs {
			fmt.Fprintf(&b, "| %s | %.0f | %.0f | %.1f | %.1f | %d |\n", h.Between, h.Path, h.Limit, h.P50, h.P95, h.Frames)
		}
		fmt.Fprintf(&b, "\nEach track crosses to another relay %.2f times, with %d viewers there. Most of the additional "+
			"delay is the pacing of a frame's packets: a hop adds about 1 ms to frames of one packet.\n", r.Copies, viewersPerSite)
	}
	if c := r.CPU; c != nil {
		fmt.Fprintf(&b, "\n## Processor time\n\n%d viewers of %.0f Mbit/s each, at the publisher's relay or at another "+
			"one; ms of processor time per second, over %.0f s.\n\n| relay | ms/s |\n| --- | ---: |\n| the only one | %.0f |\n"+
			"| the publisher's, viewers elsewhere | %.0f |\n| the viewers' | %.0f |\n| without traffic | %.1f |\n",
			c.Viewers, c.MbitPerS, c.Seconds, c.OneRelay, c.PublisherRelay, c.ViewersRelay, c.IdleRelay)
	}
	if a := r.Announce; a != nil {
		fmt.Fprintf(&b, "\n## Announcements\n\nOne client announces %d namespaces at A. All relays know them %.0f ms "+
			"after its first request, %.0f ms after A has accepted the last. The largest relay takes %.0f MB then, %.0f MB "+
			"before.\n", a.Namespaces, r.AnnounceMs, a.LastMs, r.MemoryMB, a.IdleMB)
	}
	r.failover(&b)
	if r.LoadAverage > float64(r.Processors) {
		b.WriteString("\n**Noisy**: other programs used the machine; ours ran ahead of them, with niceness −15.\n")
	}
	if len(r.Late) > 0 {
		b.WriteString("\n**Late**: emulated paths delayed packets more than configured:\n\n")
		for _, text := range r.Late {
			fmt.Fprintf(&b, "* %s\n", text)
		}
	}
	return b.String()
}

// failover writes the table of faults.
func (r *Result) failover(b *strings.Builder) {
	if len(r.Failover) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## Faults\n\n%d viewers at each relay, and one each of a second session, published at C. Before each "+
		"repetition, clients at other relays connect to their own again, until each session has one publisher, all viewers "+
		"receive frames and no client is elsewhere. *Affected* are the viewers at the failed relay or beyond the failed "+
		"path. A gap is the longest time between two frames at a viewer, or until the end of the observation, %.0f s after "+
		"the fault, if it does not recover. The column n is the number of repetitions; quantiles are over all their viewers. "+
		"Several clusters (%d) endure faults at the same time, each with its own programs; the row without a fault shows the "+
		"machine's own gaps. Goals: gaps of at most %d ms at p95 for affected viewers, %d ms for others.\n\n"+
		"| fault | n | frames lost p50 / p95 | gap ms p50 / p95 | others: frames lost p50 / p95 | "+
		"others: gap ms p50 / p95 | not recovered |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
		viewersPerSite, recoverLimit.Seconds(), clusters, gapGoal.Milliseconds(), gapGoalOthers.Milliseconds())
	cells := func(o *Outages) string {
		if o == nil {
			return "– | –"
		}
		return fmt.Sprintf("%d / %d | %.0f / %.0f", o.LostP50, o.LostP95, o.GapP50, o.GapP95)
	}
	for _, f := range faults() {
		if o := r.Failover[f.name]; o != nil {
			fmt.Fprintf(b, "| %s | %d | %s | %s | %d |\n", f.title, o.Repetitions, cells(o.at), cells(o.others),
				o.NotRecovered)
		}
	}
	wrong, failed := 0, 0
	for _, f := range r.Failover {
		wrong += f.Wrong
		failed += f.Failed
	}
	fmt.Fprintf(b, "\nViewers received %d frames of another session than theirs (each frame is checked).", wrong)
	if f := r.Failover[partition]; f != nil {
		fmt.Fprintf(b, " While A was cut off, publishers at A and at C claimed one namespace; it had one owner again %.1f s "+
			"after the parts heard each other (p95).", f.OneOwner/1000)
	}
	if failed > 0 {
		fmt.Fprintf(b, " %d repetitions are missing, because the benchmark could not carry them out.", failed)
	}
	b.WriteString("\n" + why)
}

// why explains the table of faults.
const why = `
* A relay that is killed, stopped or cut off ends no sessions. Its viewers notice its silence, continue at another relay
  that answers after half a second, and join at the newest frame. Frames sent meanwhile are lost.
* Viewers elsewhere need only their own relay and the publisher's. If that one fails, they wait for the only publisher,
  which needs half a second to tell a dead relay from a slow one, and for their relay, which may have to open a session
  with the publisher's new relay first (three round trips; C's take 160 ms). With one publisher they thus cannot reach
  their goal. With a second one (` + "`--backups`" + `) they wait until their relay has noticed the silence, after 0.2 s
  and a round trip, and has subscribed at the second one's, another round trip.
* NATS has no leader without JetStream, which relays do not use; a killed relay takes its NATS server with it. Routes
  are soft state: relays without cluster ports serve what they know, so blocking them costs nothing.
* While A is cut off, viewers at B and C have no path to the publisher.
* The clock of one process is stepped by changing its vDSO. Sessions do not depend on the wall clock.
* A certificate that expires ends no session. It matters when clients connect again, here because the relay is upgraded:
  they refuse it, and continue at another relay.
* Sessions leave an upgraded relay one by one, 1 s after its successor has started (` + "`--drain-timeout 1s`" + `), and
  use both processes until the new one delivers.
`
