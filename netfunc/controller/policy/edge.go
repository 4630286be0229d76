package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
	"holocast/netfunc/signal"
)

// edge is a registered edge.
type edge struct {
	api.EdgeStatus
	policies map[netip.Addr]api.Policy // nil until the first report after the hello
	routes   map[netip.Addr]api.Route  // of the last report
	ready    map[netip.Addr]bool       // destinations whose replicas it eliminates, per its last report since the hello
	leaving  bool                      // receives no further replicas
	nonce    uint64
	heard    time.Time // the last hello or report
	hello    time.Time
	settled  bool // true from a report interval after the hello, when its path states are complete
	streams  int  // open watch streams
	watched  bool // had a watch stream since the hello
}

// reachable reports whether decisions should reach the edge without delay: it has a watch stream,
// or never had one. A crashed receiver loses its stream long before its reports are missed.
func (e *edge) reachable() bool { return e.streams > 0 || !e.watched }

// lostAfter is the number of missed reports after which an edge is lost.
const lostAfter = 3

// Limits of hellos and reports.
const (
	maxPrefixes = 1024
	maxPolicies = 65536
	maxCounters = 256
	maxWord     = 64
)

var edgeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// EdgeName reports whether name is a valid edge name.
func EdgeName(name string) bool { return edgeName.MatchString(name) }

// CheckEdge validates a hello. The error is one sentence.
func CheckEdge(h api.Edge) error {
	switch {
	case !edgeName.MatchString(h.Name):
		return fmt.Errorf("name %.80q: want 1 to 64 letters, digits, '.', '_' or '-'", h.Name)
	case h.Peer != "" && (!edgeName.MatchString(h.Peer) || h.Peer == h.Name):
		return fmt.Errorf("peer %.80q is not the name of another edge", h.Peer)
	case h.Role != api.Sender && h.Role != api.Receiver && h.Role != api.Both:
		return fmt.Errorf("role %.20q: want sender, receiver or both", h.Role)
	case h.Role.Sends() && (!h.Signal.IsValid() || !h.Signal.Addr().Unmap().Is4() || h.Signal.Addr().IsUnspecified() ||
		h.Signal.Port() == 0):
		return errors.New("signal: a sender needs an IPv4 address and port")
	case len(h.Towards) > maxPrefixes || len(h.Behind) > maxPrefixes:
		return fmt.Errorf("more than %d prefixes in towards or behind", maxPrefixes)
	case len(h.Version) > maxWord:
		return fmt.Errorf("version is longer than %d bytes", maxWord)
	}
	for _, p := range slices.Concat(h.Towards, h.Behind) {
		if !p.IsValid() || p.Addr().Zone() != "" {
			return fmt.Errorf("prefix %s in towards or behind is not valid", p)
		}
	}
	return checkPaths(h.Paths)
}

// understands returns an error if a sender does not support this controller's signalling version.
func understands(h api.Edge) error {
	if !h.Role.Sends() || h.SignalVersion == signal.Version {
		return nil
	}
	return fmt.Errorf("edge %s supports signalling version %d, this controller sends version %d: upgrade the "+
		"controller and all edges together",
		h.Name, max(h.SignalVersion, 1), signal.Version)
}

func checkPaths(paths []api.Path) error {
	var seen pathset.Set
	for _, p := range paths {
		switch {
		case p.Index < 1 || p.Index > pathset.Max:
			return fmt.Errorf("path %d: want 1 to %d", p.Index, pathset.Max)
		case seen.Has(p.Index):
			return fmt.Errorf("path %d appears twice", p.Index)
		case len(p.Interface) > maxWord:
			return fmt.Errorf("path %d: interface is longer than %d bytes", p.Index, maxWord)
		case p.RTT < 0 || p.MinRTT < 0 || p.RTT > 1e6 || p.MinRTT > 1e6:
			return fmt.Errorf("path %d: rtt_ms and min_rtt_ms must be 0 to 1000000", p.Index)
		case p.Loss < 0 || p.Loss > 1:
			return fmt.Errorf("path %d: loss must be 0 to 1", p.Index)
		case p.Lost < 0:
			return fmt.Errorf("path %d: lost must not be negative", p.Index)
		}
		seen |= pathset.Of(p.Index)
	}
	return nil
}

func checkReport(r api.Report) error {
	if len(r.Policies) > maxPolicies {
		return fmt.Errorf("more than %d policies", maxPolicies)
	}
	if len(r.Routes) > maxPolicies {
		return fmt.Errorf("more than %d routes", maxPolicies)
	}
	if len(r.Ready) > maxPolicies {
		return fmt.Errorf("more than %d ready destinations", maxPolicies)
	}
	for _, q := range r.Routes {
		if q.Path < 0 || q.Path > pathset.Max {
			return fmt.Errorf("route to %s: path %d: want 0 to %d", q.Destination, q.Path, pathset.Max)
		}
	}
	if len(r.Counters) > maxCounters {
		return fmt.Errorf("more than %d counters", maxCounters)
	}
	for name := range r.Counters {
		if len(name) > maxWord {
			return fmt.Errorf("a counter's name is longer than %d bytes", maxWord)
		}
	}
	return checkPaths(r.Paths)
}

// path returns the edge's report on path index.
func (e *edge) path(index int) (api.Path, bool) {
	i := slices.IndexFunc(e.Paths, func(p api.Path) bool { return p.Index == index })
	if i < 0 {
		return api.Path{}, false
	}
	return e.Paths[i], true
}

// up returns the paths usable at the edge.
func (e *edge) up() (s pathset.Set) {
	for _, p := range e.Paths {
		if p.Up {
			s |= pathset.Of(p.Index)
		}
	}
	return s
}

// covers returns the length of the longest prefix in list that contains dst, or -1 if none does.
func covers(list []netip.Prefix, dst netip.Addr) int {
	best := -1
	for _, p := range list {
		if p.Addr().Is4In6() { // ::ffff:192.0.2.0/120 is 192.0.2.0/24
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		if p.Contains(dst) {
			best = max(best, p.Bits())
		}
	}
	return best
}

// paired reports whether a sender's paths can end at a receiver.
func paired(s, r *edge) bool {
	return s != r && (s.Peer == "" || s.Peer == r.Name) && (r.Peer == "" || r.Peer == s.Name)
}
