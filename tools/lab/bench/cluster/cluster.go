// Package cluster measures relays that are clustered: delay and processor time per hop, copies of a
// track between relays, the announcement of many sessions, and what viewers lose when a relay or the
// network fails. Relays, publisher and viewers are processes in network namespaces with emulated
// paths between them.
package cluster

import (
	"cmp"
	"errors"
	"io"
	"time"

	"holocast/tools/lab/bench/internal/part"
)

// The camera: 6 Mbit/s.
const (
	FrameBytes = 25_000
	FramesPerS = 30
)

// One-way delays of the paths between sites: A – B – C. The path from A to C leads through B's site.
const (
	delayAB = 20 * time.Millisecond
	delayBC = 80 * time.Millisecond
)

// A frame's delay from one relay to another may be hopFactor times the path's, plus hopExtra.
const (
	hopFactor = 1.3
	hopExtra  = time.Millisecond
)

// Limits of a gap in a fault for viewers that it affects and for others.
const (
	gapGoal       = 1500 * time.Millisecond
	gapGoalOthers = 300 * time.Millisecond
)

// Parts of the benchmark, before those of the faults.
const (
	hopsPart     = "hops"
	cpuPart      = "cpu"
	announcePart = "announce"
)

// Parts lists the parts of the benchmark.
func Parts() []string {
	list := []string{hopsPart, cpuPart, announcePart}
	for _, f := range faults() {
		list = append(list, f.name)
	}
	return list
}

// Options configure Run.
type Options struct {
	Parts []string // some of Parts; nil = all
	Quick bool
	Log   io.Writer // progress lines; nil discards them

	// Relay is the relay's binary; "" selects the one next to this program, or builds one.
	Relay string

	// Client is a command that passes its additional argument to RunClient.
	Client []string

	// Overrides for tests; 0 means the default.
	repetitions, namespaces int
	length                  time.Duration // of the parts without faults
}

// withDefaults checks o and returns it with the defaults filled in.
func (o Options) withDefaults() (Options, error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	if len(o.Client) == 0 {
		return o, errors.New("cluster: Options.Client is empty")
	}
	repetitions, namespaces, length := 20, 1000, 20*time.Second
	if o.Quick {
		repetitions, length = 2, 3*time.Second
	}
	o.repetitions = cmp.Or(o.repetitions, repetitions)
	o.namespaces = cmp.Or(o.namespaces, namespaces)
	o.length = cmp.Or(o.length, length)
	return o, part.Check(o.Parts, Parts())
}

// Sites, each with a relay and viewers. The publisher is at site A.
const (
	siteA = "a"
	siteB = "b"
	siteC = "c"
)

func sites() []string { return []string{siteA, siteB, siteC} }

// recoverLimit limits the wait after a fault until all viewers receive frames again.
const recoverLimit = 10 * time.Second

// clusters is the number of clusters that endure faults at once.
const clusters = 2

// viewersPerSite is the number of viewers at each relay during faults.
const viewersPerSite = 2

// fault is something that fails while viewers watch.
type fault struct {
	name, title string   // key in JSON, text in the table
	at          []string // sites whose viewers it affects; others should not notice
	last, quick time.Duration
	rare        bool // happens once in a quick run
	backup      bool // the session has a second publisher, at C
}

// faults lists the faults in order. The methods of network begin and end them.
func faults() []fault {
	const last, quick = 3 * time.Second, 2 * time.Second
	list := []fault{
		{name: noFault, title: "none", last: time.Second, quick: time.Second, rare: true},
		{
			name: killedRelay, title: "relay B killed, restarted after 3 s", at: []string{siteB},
			last: last, quick: quick,
		},
		{
			name: killedPublisherRelay, title: "publisher's relay A killed, restarted after 3 s", at: []string{siteA},
			last: last, quick: quick,
		},
		{name: stoppedRelay, title: "relay B stopped for 3 s", at: []string{siteB}, last: last, quick: quick},
		{name: cutRelay, title: "relay B's network cut for 3 s", at: []string{siteB}, last: last, quick: quick},
		{
			name: slowRelay, title: "relay B slowed to 10 Mbit/s for 3 s", at: []string{siteB},
			last: last, quick: quick, rare: true,
		},
		{
			name: cutBus, title: "NATS gone (cluster ports blocked) for 30 s",
			last: 30 * time.Second, quick: 5 * time.Second, rare: true,
		},
		{
			name: partition, title: "A cut off from B and C for 3 s or more", at: []string{siteB, siteC},
			last: last, quick: quick, rare: true,
		},
	}
	if clockSteps {
		list = append(list, fault{
			name: clockStep, title: "relay B's clock set 1 h ahead, and back after 1 s", at: []string{siteB},
			last: time.Second, quick: time.Second, rare: true,
		})
	}
	return append(
		list,
		fault{
			name: expiredCertificate, title: "relay B's certificate expires, then B upgraded", at: []string{siteB},
			last: time.Second, quick: time.Second, rare: true,
		},
		fault{name: upgradedPublisherRelay, title: "publisher's relay A upgraded", at: []string{siteA}, rare: true},
		fault{name: rollingUpgrade, title: "C, B and A upgraded in turn", at: sites(), rare: true},
		fault{
			name: killedPublisherRelayBackup, title: "A killed as above, with a second publisher at C", at: []string{siteA},
			last: last, quick: quick, rare: true, backup: true,
		},
	)
}

const (
	noFault                = "none"
	killedRelay            = "killed_relay"
	killedPublisherRelay   = "killed_publisher_relay"
	stoppedRelay           = "stopped_relay"
	cutRelay               = "cut_relay"
	slowRelay              = "slow_relay"
	cutBus                 = "cut_bus"
	partition              = "partition"
	clockStep              = "clock_step"
	expiredCertificate     = "expired_certificate"
	upgradedPublisherRelay = "upgraded_publisher_relay"
	rollingUpgrade         = "rolling_upgrade"

	killedPublisherRelayBackup = "killed_publisher_relay_backup"
)
