package admin

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/relay/cluster"
	"holocast/relay/router"
)

// Limits of lists within items. Links and blocks must fit into a bulletin.
const (
	maxLinks      = 128  // of a relay
	maxLinkTracks = 8    // of a link
	maxListed     = 1000 // IDs
	maxTrackName  = 100  // bytes of a track's name in a link
)

// viewerID returns the ID of the client with a number. IDs are never reused, since each process has its own
// prefix.
func (a *API) viewerID(number uint64) string {
	return a.process + "-" + strconv.FormatUint(number, 10)
}

// numberOf returns the number of the client with an ID, and whether it is a client of this process.
func (a *API) numberOf(id string) (number uint64, own bool) {
	process, text, _ := strings.Cut(id, "-")
	number, err := strconv.ParseUint(text, 10, 64)
	return number, err == nil && process == a.process
}

func (a *API) viewerIDs(numbers []uint64) []string {
	list := make([]string, 0, min(len(numbers), maxListed))
	for _, n := range numbers[:min(len(numbers), maxListed)] {
		list = append(list, a.viewerID(n))
	}
	return list
}

// relays lists this relay and the others by ID.
func (a *API) relays(now time.Time) []Relay {
	view := a.Cluster.View()
	clients, room := a.Router.Load()
	self := Relay{ID: a.id, Name: a.name, Self: true, State: "serving", Since: a.began.UTC(), Clients: clients, Room: room}
	if a.Router.Leaving() {
		self.State = "draining"
	}
	if view == nil {
		published, _ := sessionsOf(a.Router.View())
		self.Published = len(published)
	} else {
		self.Cluster, self.Region, self.URL, self.Published = view.Name, view.Region, view.URL, view.Published
	}
	self.Links = a.links(view)
	a.mu.Lock()
	defer a.mu.Unlock()
	self.Ingress, self.Egress = a.rates.ingress, a.rates.egress
	list := []Relay{self}
	if view == nil {
		return list
	}
	for _, o := range view.Relays {
		heard := o.Seen.UTC()
		one := Relay{
			ID: o.ID, Name: o.Name, Cluster: view.Name, Region: o.Region, URL: o.URL, PublicURL: o.Public,
			State: "serving", Since: time.UnixMicro(int64(o.Since)).UTC(), Heard: &heard,
			Silent:  milliseconds(max(0, now.Sub(o.Seen))),
			Clients: int(o.Sessions), Room: int(o.Room), Published: o.Namespaces, Links: []Link{},
		}
		switch {
		case now.Sub(o.Seen) > cluster.Silence:
			one.State = "silent"
		case o.Leaving:
			one.State = "draining"
		}
		if b, known := a.heard[o.ID]; known {
			one.Ingress, one.Egress, one.Links = b.Ingress, b.Egress, b.Links
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b Relay) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// links lists the connections through which this relay receives tracks from others.
func (a *API) links(view *cluster.View) []Link {
	links := []Link{}
	if view == nil {
		return links
	}
	tracks := a.Router.Carried()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range view.Relays {
		if o.Session == nil || len(links) == maxLinks {
			continue
		}
		all := tracks[o.Upstream]
		one := Link{
			From: o.ID, RTT: milliseconds(o.Session.Stats().RTT), Ingress: a.rates.links[o.ID].rate, TrackCount: len(all),
			Tracks: []string{},
		}
		for _, name := range all[:min(len(all), maxLinkTracks)] {
			one.Tracks = append(one.Tracks, name[:min(len(name), maxTrackName)])
		}
		links = append(links, one)
	}
	return links
}

// sessionsOf returns the numbers of each published session's publishers, and the viewers' sessions.
func sessionsOf(v router.View) (publishers map[string][]uint64, watched map[uint64]map[string]bool) {
	publishers, watched = map[string][]uint64{}, map[uint64]map[string]bool{}
	for _, s := range v.Sessions {
		for _, ns := range s.Offers {
			publishers[ns.String()] = append(publishers[ns.String()], s.Number)
		}
	}
	for _, t := range v.Tracks {
		key := t.Name.Namespace.String()
		for _, n := range t.To {
			if watched[n] == nil {
				watched[n] = map[string]bool{}
			}
			watched[n][key] = true
		}
	}
	return publishers, watched
}

// sessions lists the published and the blocked sessions by ID.
func (a *API) sessions() []Session {
	v := a.Router.View()
	publishers, _ := sessionsOf(v)
	all := map[string]*Session{}
	add := func(key string, ns moqt.Namespace) *Session {
		s := all[key]
		if s == nil {
			s = &Session{ID: key, Namespace: ns, Publishers: []string{}}
			all[key] = s
		}
		return s
	}
	relays := map[uint64]bool{}
	for _, s := range v.Sessions {
		relays[s.Number] = s.Relay
		for _, ns := range s.Offers {
			add(ns.String(), ns).Relay = a.id
		}
	}
	for key, numbers := range publishers {
		all[key].Publishers = a.viewerIDs(numbers)
	}
	for _, route := range a.Cluster.Routes() {
		if s := add(route.Namespace.String(), route.Namespace); s.Relay == "" {
			s.Relay = route.ID
		}
	}
	var blocks []blocked
	for _, b := range a.Blocks() {
		if ns, err := wire.ParseNamespace(b.Namespace); err == nil && !b.Ended {
			add(b.Namespace, ns)
			blocks = append(blocks, blocked{ns, b.Since})
		}
	}
	viewers := map[string]map[uint64]bool{}
	for _, t := range v.Tracks {
		key := t.Name.Namespace.String()
		s := all[key]
		if s == nil {
			continue
		}
		s.Tracks++
		if viewers[key] == nil {
			viewers[key] = map[uint64]bool{}
		}
		for _, n := range t.To {
			if !relays[n] {
				viewers[key][n] = true
			}
		}
	}
	list := make([]Session, 0, len(all))
	for key, s := range all {
		s.Viewers = len(viewers[key])
		s.Blocked = blockedSince(blocks, s.Namespace)
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b Session) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// blocked is a valid block.
type blocked struct {
	namespace moqt.Namespace
	since     time.Time
}

// blockedSince returns when a namespace or a prefix of it was blocked, or nil.
func blockedSince(blocks []blocked, ns moqt.Namespace) *time.Time {
	for _, b := range blocks {
		if ns.HasPrefix(b.namespace) {
			return &b.since
		}
	}
	return nil
}

// tracks lists the tracks of a session, or all if it is "", by ID.
func (a *API) tracks(session string) []Track {
	upstreams := map[string]string{} // IDs of relays
	if view := a.Cluster.View(); view != nil {
		for _, o := range view.Relays {
			upstreams[o.Upstream] = o.ID
		}
	}
	list := []Track{}
	for _, t := range a.Router.View().Tracks {
		key := t.Name.Namespace.String()
		if session != "" && session != key {
			continue
		}
		one := Track{
			ID: t.Name.String(), Session: key, Name: strings.ToValidUTF8(t.Name.Name, "\uFFFD"),
			From: a.viewerIDs(t.From), Upstream: []string{}, Viewers: len(t.To), To: a.viewerIDs(t.To),
			Cached: t.Stats.CachedBytes, Objects: t.Stats.Objects, ReceivedBytes: t.Stats.Bytes,
			SentBytes: t.Stats.SentBytes, SentSubgroups: t.Stats.SentSubgroups,
			Late: t.Stats.Late, Behind: t.Stats.Behind, Duplicates: t.Stats.DuplicateSubgroup,
			Evicted: t.Stats.Evicted, UnsentDatagrams: t.Stats.UnsentDatagrams,
		}
		for _, up := range t.Other {
			one.Upstream = append(one.Upstream, cmp.Or(upstreams[up], up))
		}
		list = append(list, one)
	}
	return list
}

// viewers lists the clients of a session, or all if it is "", in order of their arrival.
func (a *API) viewers(session string) []Viewer {
	v := a.Router.View()
	_, watched := sessionsOf(v)
	received := map[uint64]int{}
	for _, t := range v.Tracks {
		for _, n := range t.To {
			received[n]++
		}
	}
	list := []Viewer{}
	for _, s := range v.Sessions {
		one := Viewer{
			ID: a.viewerID(s.Number), Relay: s.Relay, State: "active", Since: s.Opened.UTC(),
			Publishes: []string{}, Watches: []string{}, Tracks: received[s.Number], Subject: s.Subject, Paths: []Path{},
		}
		for _, ns := range s.Offers[:min(len(s.Offers), maxListed)] {
			one.Publishes = append(one.Publishes, ns.String())
		}
		for key := range watched[s.Number] {
			one.Watches = append(one.Watches, key)
		}
		slices.Sort(one.Watches)
		if session != "" && !slices.Contains(one.Publishes, session) && !slices.Contains(one.Watches, session) {
			continue
		}
		one.Watches = one.Watches[:min(len(one.Watches), maxListed)]
		switch {
		case s.Moving:
			one.State = "moving"
		case len(one.Publishes)+len(one.Watches) == 0:
			one.State = "idle"
		}
		one.describe(s.Session)
		list = append(list, one)
	}
	return list
}

// describe adds the state of the client's connection.
func (v *Viewer) describe(s *moqt.Session) {
	st := s.Stats()
	v.Peer, v.Transport, v.Implementation = s.RemoteAddr().String(), string(s.Transport()), s.Implementation()
	v.RTT, v.MinRTT, v.Bandwidth = milliseconds(st.RTT), milliseconds(st.MinRTT), st.Path.Bandwidth
	v.Controller, v.AppLimited = st.Path.Controller, st.Path.AppLimited
	v.InFlight, v.Window = uint64(max(st.Path.InFlight, 0)), st.CongestionWindow
	v.SentBytes, v.ReceivedBytes, v.LostPackets = st.BytesSent, st.BytesReceived, st.PacketsLost
	v.Late, v.Blocked, v.UnsentDatagrams = st.DeliveryTimeouts, st.StreamsBlocked, st.DatagramsUnsent
	v.RefusedSubgroups = st.SubgroupsRefused + st.SubgroupsUnknown
	for _, p := range s.Paths() {
		v.Paths = append(v.Paths, Path{
			Name: p.Name, Peer: p.Remote.String(), Down: p.Down, RTT: milliseconds(p.RTT), Bandwidth: p.Rate,
			SentBytes: p.Sent, CopiedBytes: p.Copies, ReceivedBytes: p.Received, Share: p.Share,
		})
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// recordings lists the finished recordings by ID.
func (a *API) recordings(in *Paging) *response[Recordings] {
	st := a.Recorder.Stats()
	list := make([]Recording, len(st.Recordings))
	for i, r := range st.Recordings {
		list[i] = Recording{
			ID: router.RecordingOf(r.Session, r.Time).String(), Name: r.Name(), Bytes: r.Bytes, Ended: r.Ended,
		}
	}
	slices.SortFunc(list, func(a, b Recording) int { return cmp.Compare(a.ID, b.ID) })
	all := Recordings{
		Page:    page(list, in, func(r Recording) string { return r.ID }, strings.Compare).Body,
		Enabled: a.Recorder != nil, Recording: append([]string{}, st.Sessions...),
		Bytes: st.Bytes, Free: st.Free, Dropped: st.Dropped,
	}
	if st.Paused != nil {
		all.Paused = st.Paused.Error()
	}
	return &response[Recordings]{all}
}
