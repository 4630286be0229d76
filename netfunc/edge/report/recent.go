package report

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"holocast/netfunc/api"
)

const (
	// recall is the maximum age of observations that are sent again. It equals the controller's
	// default for the time without packets after which a flow has ended.
	recall = 10 * time.Second
	// recalled is the number of observations kept per viewer. It is more than the controller needs
	// by default to consider a flow live.
	recalled = 8
	// maxViewers limits the viewers remembered. Beyond it, the viewer seen longest ago is forgotten.
	maxViewers = maxUplink / recalled
)

// recent holds the newest observations of each viewer.
type recent map[netip.AddrPort]*watched

type watched struct {
	seen   time.Time // the last one
	newest []api.Observation
}

// add records an observation made now.
func (r *recent) add(o api.Observation, now time.Time) {
	if *r == nil {
		*r = make(recent)
	}
	v := (*r)[o.Source]
	if v == nil {
		if len(*r) >= maxViewers {
			r.forget()
		}
		v = &watched{}
		(*r)[o.Source] = v
	}
	if len(v.newest) == recalled {
		v.newest = append(v.newest[:0], v.newest[1:]...)
	}
	v.newest = append(v.newest, o)
	v.seen = now
}

// forget drops the viewer seen longest ago.
func (r *recent) forget() {
	var oldest netip.AddrPort
	var seen time.Time
	for source, v := range *r {
		if seen.IsZero() || v.seen.Before(seen) {
			oldest, seen = source, v.seen
		}
	}
	delete(*r, oldest)
}

// since returns the observations of viewers seen after a time, oldest first, and forgets all other
// viewers.
func (r *recent) since(after time.Time) (out []api.Observation) {
	for source, v := range *r {
		if v.seen.Before(after) {
			delete(*r, source)
			continue
		}
		out = append(out, v.newest...)
	}
	slices.SortFunc(out, func(a, b api.Observation) int { return cmp.Compare(a.Time, b.Time) })
	return out
}
