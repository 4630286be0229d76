// Package admin serves /api/v1, the operator's interface to a relay and its cluster. An OpenAPI document
// generated from the types describes it.
package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/relay/cluster"
	"holocast/relay/record"
	"holocast/relay/router"
)

// Config configures an API.
type Config struct {
	Router  *router.Router
	Cluster *cluster.Cluster // nil if the relay is in none
	// Recorder is nil if the relay has no directory for recordings.
	Recorder *record.Recorder
	// Drain begins to move all clients to other relays, after which the relay ends. It returns their number.
	Drain func() (clients int, err error)
	// MoveTimeout is how long a client may stay after it was asked to move.
	MoveTimeout time.Duration
	Blocks      []Block // of the process that this one replaces; see API.Blocks
	Version     string  // of the relay
	Log         *slog.Logger
}

// API is a relay's administration interface.
type API struct {
	Config
	id, name string // of the relay
	process  string // prefix of the IDs of this process's clients
	began    time.Time
	handler  http.Handler

	mu     sync.Mutex
	blocks map[string]Block    // by namespace, ended ones included
	heard  map[string]bulletin // of other relays, by ID
	rates  rates
}

// New returns an API. It blocks cfg.Blocks at the router.
func New(cfg Config) (*API, error) {
	a := &API{
		Config: cfg, id: cmp.Or(cfg.Cluster.ID(), randomID(8)), process: randomID(4), began: time.Now(),
		blocks: map[string]Block{}, heard: map[string]bulletin{},
	}
	host, _ := os.Hostname()
	a.name = cmp.Or(host, "relay") + "/" + a.id
	a.rates.links = map[string]received{}
	a.merge(cfg.Blocks)
	var err error
	a.handler, err = a.routes()
	return a, err
}

// ServeHTTP serves the API without access control; see Access.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.handler.ServeHTTP(w, r) }

func randomID(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// sampling is the interval over which rates are measured.
const sampling = 2 * time.Second

// Run measures rates until ctx is done.
func (a *API) Run(ctx context.Context) {
	tick := time.NewTicker(sampling)
	defer tick.Stop()
	for {
		a.sample(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// rates are the relay's rates in the last interval.
type rates struct {
	at              time.Time
	in, out         uint64  // bytes of objects until then
	ingress, egress float64 // bytes per second
	links           map[string]received
}

// received counts the bytes received on a session with another relay.
type received struct {
	session *moqt.Session
	bytes   uint64
	rate    float64 // bytes per second
}

func (a *API) sample(now time.Time) {
	tracks, sum := a.Router.Stats()
	for _, t := range tracks {
		sum.Add(t.Stats)
	}
	var relays []cluster.RelayView
	if v := a.Cluster.View(); v != nil {
		relays = v.Relays
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r := &a.rates
	seconds := now.Sub(r.at).Seconds()
	rate := func(now, before uint64) float64 {
		if r.at.IsZero() || seconds <= 0 || now < before {
			return 0
		}
		return float64(now-before) / seconds
	}
	r.ingress, r.egress = rate(sum.Bytes, r.in), rate(sum.SentBytes, r.out)
	links := map[string]received{}
	for _, o := range relays {
		if o.Session == nil {
			continue
		}
		before := r.links[o.ID]
		one := received{session: o.Session, bytes: o.Session.Stats().BytesReceived}
		if before.session == o.Session {
			one.rate = rate(one.bytes, before.bytes)
		}
		links[o.ID] = one
	}
	r.at, r.in, r.out, r.links = now, sum.Bytes, sum.SentBytes, links
}
