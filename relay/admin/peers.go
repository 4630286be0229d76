package admin

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"holocast/relay/cluster"
)

// bulletin is a relay's regular message to the others.
type bulletin struct {
	Ingress float64 `json:"ingress"` // bytes of objects per second
	Egress  float64 `json:"egress"`
	Links   []Link  `json:"links"`
	Blocks  []Block `json:"blocks"`
}

// question asks the relay that has a client to kick or move it. A repeated question does nothing, since IDs are
// never reused.
type question struct {
	Kick   string `json:"kick,omitempty"` // ID
	Reason string `json:"reason,omitempty"`
	Move   string `json:"move,omitempty"` // ID
	URL    string `json:"url,omitempty"`
}

// done answers a question whose action has been done. Other answers are errors.
const done = "done"

// askTimeout limits the wait for the relay that has a client.
const askTimeout = time.Second

// Board returns the API's connection to other relays' APIs.
func (a *API) Board() cluster.Board {
	return cluster.Board{
		Bulletin: func() []byte {
			b := bulletin{Links: a.links(a.Cluster.View()), Blocks: a.Blocks()}
			a.mu.Lock()
			b.Ingress, b.Egress = a.rates.ingress, a.rates.egress
			a.mu.Unlock()
			return encode(b)
		},
		Receive: a.receive,
		Answer: func(text []byte) []byte {
			var q question
			if json.Unmarshal(text, &q) != nil {
				return nil
			}
			answer := a.answer(q)
			if answer == "" {
				return nil
			}
			var err error
			if answer != done {
				err = errors.New(answer)
			}
			a.audit(WithActor(context.Background(), "another relay"), q.action(), q.Kick+q.Move, err)
			return []byte(answer)
		},
	}
}

func (q *question) action() string {
	if q.Move != "" {
		return "move"
	}
	return "kick"
}

// receive keeps another relay's bulletin and applies its blocks.
func (a *API) receive(from string, text []byte) {
	var b bulletin
	if !a.Cluster.Knows(from) || json.Unmarshal(text, &b) != nil {
		return
	}
	if b.Links = b.Links[:min(len(b.Links), maxLinks)]; b.Links == nil {
		b.Links = []Link{}
	}
	for i := range b.Links {
		l := &b.Links[i]
		if l.Tracks = l.Tracks[:min(len(l.Tracks), maxLinkTracks)]; l.Tracks == nil {
			l.Tracks = []string{}
		}
	}
	a.mu.Lock()
	if len(a.heard) >= 2*cluster.MaxMembers { // of former members
		clear(a.heard)
	}
	a.heard[from] = b
	a.mu.Unlock()
	a.merge(b.Blocks)
}

// answer does a question's action for a client of this process. It returns done or an error, or "" for
// other clients.
func (a *API) answer(q question) string {
	number, own := a.numberOf(q.Kick + q.Move)
	if !own {
		return ""
	}
	var err error
	if q.Move != "" {
		err = a.Router.Move(number, q.URL, a.MoveTimeout)
	} else {
		err = a.Router.Kick(number, q.Reason)
	}
	if err != nil {
		return err.Error()
	}
	return done
}

// ask returns the answer of another relay, or "" if none has the client.
func (a *API) ask(ctx context.Context, q question) string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := a.Cluster.Ask(ctx, encode(q))
	if err != nil {
		a.Log.Debug("admin: no answer of other relays", "err", err)
		return ""
	}
	return string(answer)
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // impossible: the types have no values that JSON lacks
	}
	return b
}
