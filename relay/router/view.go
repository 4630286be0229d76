package router

import (
	"cmp"
	"slices"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/origin"
)

// View is a snapshot of sessions and tracks.
type View struct {
	Sessions []SessionView
	Tracks   []TrackView
}

// SessionView is an open session.
type SessionView struct {
	Number  uint64
	Session *moqt.Session
	Opened  time.Time
	Subject string           // authenticated identity, "" if none
	Offers  []moqt.Namespace // namespaces it publishes
	Relay   bool             // the peer is another relay of the cluster
	Moving  bool             // asked to move to another relay
}

// TrackView is a track being forwarded.
type TrackView struct {
	Name  moqt.TrackName
	From  []uint64 // numbers of the publishing sessions
	Other []string // upstreams that are not sessions of peers, such as other relays
	To    []uint64 // numbers of the subscribed sessions
	Stats origin.Stats
}

// Carried lists the tracks received from each upstream that is not a session of a peer, such as another
// relay, by the upstream's name.
func (r *Router) Carried() map[string][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	carried := map[string][]string{}
	for key, t := range r.tracks {
		t.mu.Lock()
		for up := range t.upstreams {
			if p, ok := up.(peer); !ok || p.c.member {
				carried[up.String()] = append(carried[up.String()], key)
			}
		}
		t.mu.Unlock()
	}
	for _, list := range carried {
		slices.Sort(list)
	}
	return carried
}

// View returns the open sessions, sorted by number, and the tracks, sorted by name.
func (r *Router) View() View {
	r.mu.Lock()
	defer r.mu.Unlock()
	var v View
	offers := map[*client][]moqt.Namespace{}
	for o := range r.offers {
		if p, ok := o.up.(peer); ok {
			offers[p.c] = append(offers[p.c], o.ns)
		}
	}
	for _, list := range offers {
		slices.SortFunc(list, func(a, b moqt.Namespace) int { return slices.Compare(a, b) })
	}
	queues := map[*origin.Queue]uint64{}
	for c := range r.clients {
		if c.bridge {
			continue
		}
		queues[c.queue] = c.number
		v.Sessions = append(v.Sessions, SessionView{
			Number: c.number, Session: c.s, Opened: c.opened, Subject: c.subject,
			Offers: offers[c], Relay: c.relay, Moving: c.moving.Load(),
		})
	}
	slices.SortFunc(v.Sessions, func(a, b SessionView) int { return cmp.Compare(a.Number, b.Number) })
	for _, t := range r.tracks {
		one := TrackView{Name: t.Name(), Stats: t.Stats()}
		for _, q := range t.Served() {
			if number, ok := queues[q]; ok {
				one.To = append(one.To, number)
			}
		}
		t.mu.Lock()
		for up := range t.upstreams {
			p, ok := up.(peer)
			_, open := r.clients[p.c]
			switch {
			case open && !p.c.bridge:
				one.From = append(one.From, p.c.number)
			case open || !ok || p.c.member:
				one.Other = append(one.Other, up.String())
			}
		}
		t.mu.Unlock()
		slices.Sort(one.To)
		slices.Sort(one.From)
		slices.Sort(one.Other)
		v.Tracks = append(v.Tracks, one)
	}
	slices.SortFunc(v.Tracks, func(a, b TrackView) int { return cmp.Compare(a.Name.String(), b.Name.String()) })
	return v
}
