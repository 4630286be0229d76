package admin

import "time"

// Page is a part of a list.
type Page[T any] struct {
	Items []T    `json:"items" nullable:"false" doc:"Part of the list, in order of its IDs."`
	Total int    `json:"total" doc:"Number of items in the whole list."`
	Next  string `json:"next,omitempty" doc:"Value of after for the next part; absent in the last one."`
}

// Relay is a relay of the cluster, or the only one.
type Relay struct {
	ID        string     `json:"id" doc:"New with each start; an upgrade keeps it." example:"9f86d081884c7d65"`
	Name      string     `json:"name" doc:"Host name and ID." example:"relay1/9f86d081884c7d65"`
	Self      bool       `json:"self" doc:"Whether it is the relay that answers."`
	Cluster   string     `json:"cluster,omitempty" doc:"Name of the cluster."`
	Region    string     `json:"region,omitempty"`
	URL       string     `json:"url,omitempty" doc:"For other relays." example:"moqt://10.0.0.1:4443"`
	PublicURL string     `json:"public_url,omitempty" doc:"For clients, if it differs from url."`
	State     string     `json:"state" enum:"serving,draining,silent" doc:"Silent: not heard for a second."`
	Since     time.Time  `json:"since" doc:"When it joined the cluster or started, by its own clock."`
	Heard     *time.Time `json:"heard,omitempty" doc:"Its last message; absent for the relay that answers."`
	Silent    float64    `json:"silent_ms" doc:"Time since then."`

	Clients   int     `json:"clients" doc:"Open connections of clients."`
	Room      int     `json:"room" doc:"Further clients that it accepts."`
	Published int     `json:"published_sessions" doc:"Sessions that its clients publish."`
	Ingress   float64 `json:"ingress_bytes_per_second" doc:"Objects received from publishers and other relays."`
	Egress    float64 `json:"egress_bytes_per_second" doc:"Objects sent to viewers and other relays."`

	Links []Link `json:"links" nullable:"false" doc:"Open connections through which it receives sessions from other relays."`
}

// Link is a connection of a relay to another one, from which it receives tracks.
type Link struct {
	From       string   `json:"from" doc:"ID of the other relay."`
	RTT        float64  `json:"rtt_ms"`
	Ingress    float64  `json:"ingress_bytes_per_second"`
	TrackCount int      `json:"track_count" doc:"Tracks that it carries."`
	Tracks     []string `json:"tracks" nullable:"false" doc:"The first of them, at most 8; /tracks of the receiving relay has all."`
}

// Session is a published or blocked namespace.
type Session struct {
	ID         string     `json:"id" doc:"The namespace as text." example:"holocast-studio"`
	Namespace  []string   `json:"namespace" nullable:"false" doc:"Its fields." example:"[\"holocast\",\"studio\"]"`
	Relay      string     `json:"relay,omitempty" doc:"ID of its publisher's relay; absent without a publisher."`
	Publishers []string   `json:"publishers" nullable:"false" doc:"IDs of publishers at this relay."`
	Viewers    int        `json:"viewers" doc:"Clients of this relay that watch it."`
	Tracks     int        `json:"tracks" doc:"Tracks that this relay forwards."`
	Blocked    *time.Time `json:"blocked,omitempty" doc:"Since when it is blocked."`
}

// Track is a track that this relay forwards. Counters count from its first subscription.
type Track struct {
	ID       string   `json:"id" doc:"Its full name as text." example:"holocast-studio--points.2f0.2ffull"`
	Session  string   `json:"session" doc:"ID of its namespace." example:"holocast-studio"`
	Name     string   `json:"name" example:"points/0/full"`
	From     []string `json:"from" nullable:"false" doc:"IDs of clients that publish it here."`
	Upstream []string `json:"upstream" nullable:"false" doc:"IDs of relays from which it is received, or names of other upstreams."`
	Viewers  int      `json:"viewers" doc:"Clients and relays that receive it."`
	To       []string `json:"to" nullable:"false" doc:"Their IDs, at most 1000."`

	Cached        int64  `json:"cached_bytes"`
	Objects       uint64 `json:"received_objects"`
	ReceivedBytes uint64 `json:"received_bytes"`
	SentBytes     uint64 `json:"sent_bytes"`
	SentSubgroups uint64 `json:"sent_subgroups"`

	Late            uint64 `json:"late_subgroups" doc:"Not sent: the delivery timeout expired."`
	Behind          uint64 `json:"behind_subgroups" doc:"Not sent: the viewer fell behind."`
	Duplicates      uint64 `json:"duplicate_subgroups" doc:"Refused: another publisher sent them first."`
	Evicted         uint64 `json:"evicted_subgroups" doc:"Refused: older than the cache."`
	UnsentDatagrams uint64 `json:"unsent_datagrams"`
}

// Viewer is a client of this relay, also one that publishes. Counters count from its connection.
type Viewer struct {
	ID             string    `json:"id" doc:"Never used again." example:"5e884898-17"`
	Relay          bool      `json:"relay" doc:"Whether it is another relay."`
	State          string    `json:"state" enum:"active,idle,moving" doc:"Idle: it neither publishes nor watches."`
	Since          time.Time `json:"since"`
	Peer           string    `json:"peer" doc:"Its address." example:"192.0.2.7:50123"`
	Transport      string    `json:"transport" enum:"quic,webtransport,websocket"`
	Implementation string    `json:"implementation" doc:"As it names itself."`
	Subject        string    `json:"subject" doc:"Its authenticated identity, empty without one."`
	Publishes      []string  `json:"publishes" nullable:"false" doc:"IDs of sessions, at most 1000."`
	Watches        []string  `json:"watches" nullable:"false" doc:"IDs of sessions, at most 1000."`
	Tracks         int       `json:"tracks" doc:"Tracks that it receives."`

	RTT           float64 `json:"rtt_ms"`
	MinRTT        float64 `json:"min_rtt_ms"`
	Bandwidth     float64 `json:"bandwidth_bytes_per_second" doc:"Estimated; 0 if unknown."`
	Controller    string  `json:"controller" doc:"Congestion controller."`
	AppLimited    bool    `json:"app_limited" doc:"The path could carry more."`
	InFlight      uint64  `json:"in_flight_bytes"`
	Window        uint64  `json:"congestion_window_bytes"`
	SentBytes     uint64  `json:"sent_bytes"`
	ReceivedBytes uint64  `json:"received_bytes"`

	LostPackets      uint64 `json:"lost_packets" doc:"Towards the client; retransmitted."`
	Late             uint64 `json:"late_subgroups" doc:"Not sent: the delivery timeout expired."`
	Blocked          uint64 `json:"blocked_subgroups" doc:"Not sent: no stream credit."`
	UnsentDatagrams  uint64 `json:"unsent_datagrams" doc:"The connection was congested."`
	RefusedSubgroups uint64 `json:"refused_subgroups" doc:"From the client, not accepted in time."`

	Paths []Path `json:"paths" nullable:"false" doc:"Of a session over several networks."`
}

// Path is one of several paths to a client.
type Path struct {
	Name          string  `json:"name"`
	Peer          string  `json:"peer"`
	Down          bool    `json:"down"`
	RTT           float64 `json:"rtt_ms"`
	Bandwidth     float64 `json:"bandwidth_bytes_per_second" doc:"Estimated; 0 if unknown."`
	SentBytes     uint64  `json:"sent_bytes"`
	CopiedBytes   uint64  `json:"copied_bytes" doc:"Of them sent over another path too."`
	ReceivedBytes uint64  `json:"received_bytes"`
	Share         float64 `json:"share" doc:"Of the bytes over all paths, 0 to 1."`
}

// Recordings is a part of the list of finished recordings, with the recorder's state.
type Recordings struct {
	Page[Recording]
	Enabled   bool     `json:"enabled" doc:"Whether the relay has a directory for recordings."`
	Recording []string `json:"recording" nullable:"false" doc:"Sessions that are being recorded."`
	Paused    string   `json:"paused,omitempty" doc:"Why recording is paused."`
	Bytes     int64    `json:"bytes" doc:"Of all recordings."`
	Free      int64    `json:"free_bytes" doc:"Of the file system."`
	Dropped   uint64   `json:"dropped_subgroups" doc:"Not recorded, because the disk was too slow."`
}

// Recording is a finished recording. It is watched as a session.
type Recording struct {
	ID    string    `json:"id" doc:"Of the session that replays it."`
	Name  string    `json:"name" doc:"Its name in session URLs." example:"recordings/studio/2026-11-29T12-00-00Z"`
	Bytes int64     `json:"bytes"`
	Ended time.Time `json:"ended"`
}
