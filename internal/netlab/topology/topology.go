// Package topology describes networks to emulate: hosts, routers and the paths between
// them, read from YAML. README.md and testdata in the folder above show the format.
package topology

import (
	"fmt"
	"time"

	"holocast/internal/netlab/wire"
)

// A Topology is a network. Parse and Builtin return valid topologies.
type Topology struct {
	Name     string
	Hosts    []string // end systems
	Edges    []string // routers
	Links    []Link   // cables without emulation
	Paths    []Path
	Commands []Command
	Duration time.Duration // duration of a run; 0 = until its commands have ended
	Late     time.Duration // a run fails if 1 % of the packets depart later than this
	Seed     uint64        // seeds all random numbers

	source file
}

// A Link joins two nodes by a cable without delay.
type Link struct{ Between [2]string }

// A Path joins two nodes by an emulated link.
type Path struct {
	Name     string
	Between  [2]string
	Forward  []wire.Change // from Between[0] to Between[1]; times from the start of a run
	Backward []wire.Change
	Wifi     *wire.Wifi // the channel that carries both directions; nil = none
}

// A Command runs in a host's shell.
type Command struct {
	Host       string
	Shell      string
	Start      time.Duration // from the start of the run
	Background bool          // stopped at the end of the run, which does not wait for it
}

// Nodes returns hosts, then edges.
func (t *Topology) Nodes() []string {
	return append(append([]string(nil), t.Hosts...), t.Edges...)
}

// Varies reports whether conditions change during a run.
func (t *Topology) Varies() bool {
	for _, p := range t.Paths {
		for _, timeline := range [][]wire.Change{p.Forward, p.Backward} {
			if len(timeline) > 1 || timeline[0].Variation != nil {
				return true
			}
		}
	}
	return false
}

// AddCommand adds a command to the run.
func (t *Topology) AddCommand(c Command) error {
	if err := t.source.hasNode(c.Host); err != nil {
		return fmt.Errorf("command %q: %w", c.Shell, err)
	}
	t.Commands = append(t.Commands, c)
	return nil
}
