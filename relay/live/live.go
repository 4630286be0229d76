// Package live serves a page that shows the operator a relay's sessions and tracks, with rates,
// losses and their reasons. It exposes peers, subjects and tracks, so serve it only to the
// operator.
package live

import (
	"embed"
	"encoding/json"
	"io/fs"
	"net/http"
	"slices"
	"time"

	"holocast/relay/cluster"
	"holocast/relay/record"
	"holocast/relay/router"
)

//go:embed page
var files embed.FS

// report is the page's data. Counters count from the start of the session or track.
type report struct {
	Time     int64     `json:"time_ms"` // by the relay's clock
	Sessions []session `json:"sessions"`
	Tracks   []track   `json:"tracks"`
	Cluster  *members  `json:"cluster,omitempty"` // nil if the relay is in none
	// Recordings is nil unless the relay has a directory for them.
	Recordings *recordings `json:"recordings,omitempty"`
}

type session struct {
	Number         uint64   `json:"number"`
	Peer           string   `json:"peer"`
	Transport      string   `json:"transport"` // see moqt.Transports
	Implementation string   `json:"implementation"`
	Subject        string   `json:"subject"`
	Offers         []string `json:"offers"` // namespaces

	RTT           float64 `json:"rtt_ms"`
	MinRTT        float64 `json:"min_rtt_ms"`
	Bandwidth     float64 `json:"bandwidth_bytes_per_second"` // estimated; 0 if unknown
	Controller    string  `json:"controller"`
	AppLimited    bool    `json:"app_limited"` // the path could carry more
	InFlight      uint64  `json:"in_flight_bytes"`
	Window        uint64  `json:"congestion_window_bytes"`
	SentBytes     uint64  `json:"sent_bytes"` // of all connections
	ReceivedBytes uint64  `json:"received_bytes"`

	// Losses of the session, by reason.
	LostPackets      uint64 `json:"lost_packets"`      // towards the peer; retransmitted
	Late             uint64 `json:"late_subgroups"`    // reset because their delivery timeout expired
	Blocked          uint64 `json:"blocked_subgroups"` // no stream credit
	UnsentDatagrams  uint64 `json:"unsent_datagrams"`  // the connection was congested
	RefusedSubgroups uint64 `json:"refused_subgroups"` // from the peer, not accepted in time

	Paths []path `json:"paths"` // of a session over several
}

type path struct {
	Name          string  `json:"name"`
	Peer          string  `json:"peer"`
	Down          bool    `json:"down"`
	RTT           float64 `json:"rtt_ms"`
	Bandwidth     float64 `json:"bandwidth_bytes_per_second"` // estimated; 0 if unknown
	SentBytes     uint64  `json:"sent_bytes"`                 // of data
	CopiedBytes   uint64  `json:"copied_bytes"`               // of them sent over another path too
	ReceivedBytes uint64  `json:"received_bytes"`
	Share         float64 `json:"share"` // of the bytes sent and received over all paths
}

type track struct {
	Name     string   `json:"name"`
	From     []uint64 `json:"from"` // session numbers
	Upstream []string `json:"upstream"`
	To       []uint64 `json:"to"` // session numbers

	Cached        int64  `json:"cached_bytes"`
	Objects       uint64 `json:"received_objects"`
	ReceivedBytes uint64 `json:"received_bytes"`
	SentBytes     uint64 `json:"sent_bytes"`
	SentSubgroups uint64 `json:"sent_subgroups"`

	// Subgroups and datagrams not sent, by reason.
	Late            uint64 `json:"late_subgroups"`      // delivery timeout expired
	Behind          uint64 `json:"behind_subgroups"`    // the viewer fell behind
	Duplicates      uint64 `json:"duplicate_subgroups"` // another publisher sent them first
	Evicted         uint64 `json:"evicted_subgroups"`   // older than the cache
	UnsentDatagrams uint64 `json:"unsent_datagrams"`
}

// members are the relays of a cluster.
type members struct {
	Name      string  `json:"name"`
	Relay     string  `json:"relay"` // this one
	URL       string  `json:"url"`   // of this relay, for other relays
	Region    string  `json:"region"`
	Published int     `json:"published_namespaces"`
	Relays    []relay `json:"relays"` // others
}

type relay struct {
	Name       string   `json:"name"`
	URL        string   `json:"url"`
	Region     string   `json:"region"`
	Silent     float64  `json:"silent_ms"`  // since its last message
	Namespaces int      `json:"namespaces"` // announced by it
	Serves     int      `json:"serves"`     // namespaces that this relay gets from it
	Routes     []string `json:"routes"`     // the first maxRoutes of them

	// Of the session to it, which is opened for the first viewer.
	Open          bool    `json:"open"`
	RTT           float64 `json:"rtt_ms"`
	SentBytes     uint64  `json:"sent_bytes"`
	ReceivedBytes uint64  `json:"received_bytes"`
	LostPackets   uint64  `json:"lost_packets"`
}

// recordings are the relay's recordings of sessions.
type recordings struct {
	Recording []string    `json:"recording"` // sessions being recorded
	Paused    string      `json:"paused"`    // why recording is paused, "" if it is not
	Bytes     int64       `json:"bytes"`     // of all files
	Free      int64       `json:"free_bytes"`
	Dropped   uint64      `json:"dropped_subgroups"`
	Finished  int         `json:"finished"`
	Newest    []recording `json:"newest"` // the newest maxRecordings
}

type recording struct {
	Name  string `json:"name"` // of the session that replays it
	Bytes int64  `json:"bytes"`
	Ended int64  `json:"ended_ms"`
}

// maxRecordings limits the recordings listed.
const maxRecordings = 100

// maxRoutes limits the namespaces listed per relay, which may announce very many.
const maxRoutes = 100

// Handler serves the page at /live/ and the report at /live/report.json. c is nil if the relay is in no
// cluster, and rec without recordings.
func Handler(r *router.Router, c *cluster.Cluster, rec *record.Recorder) http.Handler {
	dir, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // impossible: the path is constant
	}
	page := http.StripPrefix("/live/", http.FileServerFS(dir))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live/report.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		now := time.Now()
		all := read(r.View(), now)
		all.Cluster = readCluster(c.View(), now)
		if rec != nil {
			all.Recordings = readRecordings(rec.Stats())
		}
		_ = json.NewEncoder(w).Encode(all) // fails if the client has left
	})
	mux.Handle("GET /live/", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src "+
			"'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		page.ServeHTTP(w, req)
	}))
	return mux
}

func read(v router.View, now time.Time) report {
	r := report{Time: now.UnixMilli(), Sessions: []session{}, Tracks: []track{}}
	for _, s := range v.Sessions {
		st := s.Session.Stats()
		one := session{
			Number: s.Number, Peer: s.Session.RemoteAddr().String(), Transport: string(s.Session.Transport()),
			Implementation: s.Session.Implementation(), Subject: s.Subject, Offers: []string{}, Paths: []path{},
			RTT: milliseconds(st.RTT), MinRTT: milliseconds(st.MinRTT), Bandwidth: st.Path.Bandwidth,
			Controller: st.Path.Controller,
			AppLimited: st.Path.AppLimited, InFlight: uint64(max(st.Path.InFlight, 0)), Window: st.CongestionWindow,
			SentBytes: st.BytesSent, ReceivedBytes: st.BytesReceived, LostPackets: st.PacketsLost,
			Late: st.DeliveryTimeouts, Blocked: st.StreamsBlocked,
			UnsentDatagrams: st.DatagramsUnsent, RefusedSubgroups: st.SubgroupsRefused + st.SubgroupsUnknown,
		}
		for _, p := range s.Session.Paths() {
			one.Paths = append(one.Paths, path{
				Name: p.Name, Peer: p.Remote.String(), Down: p.Down, RTT: milliseconds(p.RTT), Bandwidth: p.Rate,
				SentBytes: p.Sent, CopiedBytes: p.Copies, ReceivedBytes: p.Received, Share: p.Share,
			})
		}
		for _, ns := range s.Offers {
			one.Offers = append(one.Offers, ns.String())
		}
		r.Sessions = append(r.Sessions, one)
	}
	for _, t := range v.Tracks {
		r.Tracks = append(r.Tracks, track{
			Name: t.Name.String(), From: list(t.From), Upstream: list(t.Other), To: list(t.To),
			Cached:  t.Stats.CachedBytes,
			Objects: t.Stats.Objects, ReceivedBytes: t.Stats.Bytes, SentBytes: t.Stats.SentBytes,
			SentSubgroups: t.Stats.SentSubgroups,
			Late:          t.Stats.Late, Behind: t.Stats.Behind,
			Duplicates: t.Stats.DuplicateSubgroup, Evicted: t.Stats.Evicted, UnsentDatagrams: t.Stats.UnsentDatagrams,
		})
	}
	return r
}

func readCluster(v *cluster.View, now time.Time) *members {
	if v == nil {
		return nil
	}
	c := &members{
		Name: v.Name, Relay: v.Relay, URL: v.URL, Region: v.Region, Published: v.Published, Relays: []relay{},
	}
	for _, o := range v.Relays {
		one := relay{
			Name: o.Name, URL: o.URL, Region: o.Region, Silent: milliseconds(now.Sub(o.Seen)), Namespaces: o.Namespaces,
			Serves: len(o.Routes), Routes: []string{}, Open: o.Session != nil,
		}
		for _, ns := range o.Routes[:min(len(o.Routes), maxRoutes)] {
			one.Routes = append(one.Routes, ns.String())
		}
		if o.Session != nil {
			st := o.Session.Stats()
			one.RTT, one.SentBytes, one.ReceivedBytes = milliseconds(st.RTT), st.BytesSent, st.BytesReceived
			one.LostPackets = st.PacketsLost
		}
		c.Relays = append(c.Relays, one)
	}
	return c
}

func readRecordings(st record.Stats) *recordings {
	r := &recordings{
		Recording: list(st.Sessions), Bytes: st.Bytes, Free: st.Free, Dropped: st.Dropped, Finished: len(st.Recordings),
		Newest: []recording{},
	}
	if st.Paused != nil {
		r.Paused = st.Paused.Error()
	}
	for _, one := range slices.Backward(st.Recordings[max(0, len(st.Recordings)-maxRecordings):]) {
		r.Newest = append(r.Newest, recording{one.Name(), one.Bytes, one.Ended.UnixMilli()})
	}
	return r
}

// list replaces nil with an empty list for JSON.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
