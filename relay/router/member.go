package router

import (
	"slices"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// maxMemberTracks limits the tracks that another relay of the cluster may publish here.
const maxMemberTracks = 4096

// Member returns the handler of a session that this relay opens with another relay of the cluster, which
// may publish the tracks of its clients in response to SUBSCRIBE_TRACKS. bind must be called with the
// session.
func (r *Router) Member() (h moqt.Handler, bind func(*moqt.Session)) {
	c := r.newClient()
	c.member = true
	known := make(chan struct{})
	h = moqt.Handler{Publish: after(known, c.publish)}
	return h, func(s *moqt.Session) { c.s = s; close(known) }
}

// chargeMember counts a track published by another relay until release is called.
func (c *client) chargeMember() (release func(), err error) {
	if c.tracks.Add(1) > maxMemberTracks {
		c.tracks.Add(-1)
		return nil, &moqt.RequestError{Code: wire.RequestExcessiveLoad, Reason: "too many tracks of another relay"}
	}
	return func() { c.tracks.Add(-1) }, nil
}

// Interests returns the prefixes under which clients of this relay ask for all tracks. No prefix covers
// another. Changed reports when they may have changed.
func (r *Router) Interests() (list []moqt.Namespace) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for d := range r.interests {
		if slices.ContainsFunc(list, d.prefix.HasPrefix) {
			continue
		}
		list = slices.DeleteFunc(list, func(ns moqt.Namespace) bool { return ns.HasPrefix(d.prefix) })
		list = append(list, d.prefix)
	}
	return list
}

// interested notes whether a discovery asks for tracks. The caller holds r.mu.
func (r *Router) interested(d *discovery, yes bool) {
	if !d.tracks || d.c.relay || d.c.bridge {
		return
	}
	if yes {
		r.interests[d] = struct{}{}
	} else {
		delete(r.interests, d)
	}
	r.wake()
}

// takes reports whether tracks that c publishes may be offered to d: other relays receive only what this
// relay's own clients publish, to avoid loops.
func (d *discovery) takes(c *client) bool {
	return d.c != c && (!c.member || !d.c.relay)
}

// serves reports whether a track may be offered to d. The caller holds t.mu.
func (t *track) serves(d *discovery) bool {
	for up := range t.pubs {
		if p, ok := up.(peer); ok && d.takes(p.c) {
			return true
		}
	}
	return false
}
