package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/relay/router"
)

// Base begins the paths of the API.
const Base = "/api/v1/"

// maxBody limits a request's body in bytes.
const maxBody = 16 << 10

// description introduces the OpenAPI document.
const description = "Relays, sessions, tracks and viewers of a Holocast relay, and actions of its operator. " +
	"Lists have at most limit items; pass next as after for the following ones. " +
	"Except for relays and sessions, they cover the relay that answers. " +
	"Errors are problem details (RFC 9457)."

// routes returns the API's handler.
func (a *API) routes() (http.Handler, error) {
	mux := http.NewServeMux()
	config := huma.DefaultConfig("Holocast relay", a.Version)
	config.Info.Description = description
	config.OpenAPIPath, config.DocsPath, config.SchemasPath, config.CreateHooks = "", "", "", nil
	config.Formats = map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat}
	config.RejectUnknownQueryParameters = true
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token": {Type: "http", Scheme: "bearer", Description: "A token of the file adminToken."},
	}
	config.Security = []map[string][]string{{"token": {}}}
	api := humago.New(mux, config)
	a.register(api)
	document, err := json.Marshal(api.OpenAPI())
	if err != nil {
		return nil, err
	}
	mux.HandleFunc("GET "+Base+"openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(document)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		problem(w, http.StatusNotFound, "no such resource; "+Base+"openapi.json lists all")
	})
	return mux, nil
}

// problem writes an error in the form of the API's others.
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(&huma.ErrorModel{Title: http.StatusText(status), Status: status, Detail: detail})
}

type (
	// Paging is embedded in inputs.
	Paging struct {
		Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Items at most."`
		After string `query:"after" maxLength:"16384" doc:"Begin after the item with this ID."`
	}
	ofSession struct {
		Paging
		Session string `query:"session" maxLength:"16384" doc:"Only items of the session with this ID."`
	}
	// Target is embedded in inputs.
	Target struct {
		ID string `path:"id" maxLength:"64" doc:"ID of a viewer."`
	}
	blockTarget struct {
		ID string `path:"id" maxLength:"256" doc:"ID of a session, published or not." example:"holocast-studio"`
	}
	kickRequest struct {
		Target
		Body *struct {
			Reason string `json:"reason,omitempty" maxLength:"200" doc:"Told to the client."`
		}
	}
	moveRequest struct {
		Target
		Body *struct {
			URL string `json:"url,omitempty" maxLength:"2048" doc:"The other relay's URL, for clients; by default the relay of the cluster with the fewest clients." example:"moqt://10.0.0.2:4443"`
		}
	}
	response[T any] struct{ Body T }
)

// Results of actions.
type (
	// Moved is the result of a move.
	Moved struct {
		URL string `json:"url" doc:"The relay given to the client."`
	}
	// Drained is the result of a drain.
	Drained struct {
		Clients int `json:"clients" doc:"Clients that were asked to move."`
	}
	// Blocked is the result of a block.
	Blocked struct {
		ID    string    `json:"id" doc:"The session."`
		Since time.Time `json:"since"`
	}
)

// register adds the operations.
func (a *API) register(api huma.API) {
	type op = huma.Operation
	refusals := []int{ // of any request
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestEntityTooLarge,
		http.StatusUnprocessableEntity, http.StatusTooManyRequests,
	}
	get := func(id, path, summary string) op {
		return op{OperationID: id, Method: http.MethodGet, Path: Base + path, Summary: summary, Errors: refusals}
	}
	do := func(id, method, path, summary string, status int, errors ...int) op {
		return op{
			OperationID: id, Method: method, Path: Base + path, Summary: summary, DefaultStatus: status,
			Errors: slices.Concat(refusals, errors), MaxBodyBytes: maxBody,
		}
	}
	huma.Register(api, get("list-relays", "relays", "List the relays of the cluster"),
		func(_ context.Context, in *Paging) (*response[Page[Relay]], error) {
			return page(a.relays(time.Now()), in, func(r Relay) string { return r.ID }, strings.Compare), nil
		})
	huma.Register(api, get("list-sessions", "sessions", "List the published sessions of the cluster, and blocked ones"),
		func(_ context.Context, in *Paging) (*response[Page[Session]], error) {
			return page(a.sessions(), in, func(s Session) string { return s.ID }, strings.Compare), nil
		})
	huma.Register(api, get("list-tracks", "tracks", "List the tracks that this relay forwards"),
		func(_ context.Context, in *ofSession) (*response[Page[Track]], error) {
			return page(a.tracks(in.Session), &in.Paging, func(t Track) string { return t.ID }, strings.Compare), nil
		})
	huma.Register(api, get("list-viewers", "viewers", "List the clients of this relay, publishers included"),
		func(_ context.Context, in *ofSession) (*response[Page[Viewer]], error) {
			return page(a.viewers(in.Session), &in.Paging, func(v Viewer) string { return v.ID }, a.older), nil
		})
	huma.Register(api, get("list-recordings", "recordings", "List the finished recordings of this relay"),
		func(_ context.Context, in *Paging) (*response[Recordings], error) { return a.recordings(in), nil })
	huma.Register(api,
		do("kick-viewer", http.MethodPost, "viewers/{id}/kick", "End a client's session, at whichever relay it is",
			http.StatusNoContent, http.StatusNotFound),
		func(ctx context.Context, in *kickRequest) (*struct{}, error) {
			q := question{Kick: in.ID, Reason: "removed by the operator"}
			if in.Body != nil && in.Body.Reason != "" {
				q.Reason += ": " + in.Body.Reason
			}
			return nil, a.act(ctx, "kick", in.ID, q)
		})
	huma.Register(api,
		do("move-viewer", http.MethodPost, "viewers/{id}/move", "Send a client to another relay, at whichever relay it is",
			http.StatusOK, http.StatusNotFound, http.StatusConflict),
		a.move)
	huma.Register(api,
		do("block-session", http.MethodPost, "sessions/{id}/block",
			"End a session at all relays, with its publishers and viewers, and refuse new ones", http.StatusOK,
			http.StatusConflict),
		func(ctx context.Context, in *blockTarget) (*response[Blocked], error) {
			if err := a.setBlock(ctx, "block", in.ID, false); err != nil {
				return nil, err
			}
			b, _ := a.blockOf(in.ID)
			return &response[Blocked]{Blocked{ID: in.ID, Since: b.Since}}, nil
		})
	huma.Register(api,
		do("unblock-session", http.MethodDelete, "sessions/{id}/block", "Allow a blocked session again", http.StatusNoContent,
			http.StatusNotFound),
		func(ctx context.Context, in *blockTarget) (*struct{}, error) {
			if _, blocked := a.blockOf(in.ID); !blocked {
				return nil, huma.Error404NotFound("the session is not blocked")
			}
			return nil, a.setBlock(ctx, "unblock", in.ID, true)
		})
	huma.Register(api,
		do("drain", http.MethodPost, "drain", "Move all clients to other relays, then end this relay",
			http.StatusAccepted, http.StatusConflict),
		func(ctx context.Context, _ *struct{}) (*response[Drained], error) {
			clients, err := a.Drain()
			a.audit(ctx, "drain", "", err)
			if err != nil {
				return nil, huma.Error409Conflict(err.Error())
			}
			return &response[Drained]{Drained{clients}}, nil
		})
}

// page returns the part of a list that follows in.After, in the order of compare.
func page[T any](list []T, in *Paging, id func(T) string, compare func(a, b string) int) *response[Page[T]] {
	start := 0
	if in.After != "" {
		start, _ = slices.BinarySearchFunc(list, in.After, func(item T, after string) int {
			return cmp.Or(compare(id(item), after), -1) // -1: the item itself is before the part
		})
	}
	p := Page[T]{Items: list[start:min(len(list), start+in.Limit)], Total: len(list)}
	if end := start + len(p.Items); end < len(list) {
		p.Next = id(list[end-1])
	}
	return &response[Page[T]]{p}
}

// older compares the IDs of clients by their arrival. IDs of other processes come last.
func (a *API) older(x, y string) int {
	m, own := a.numberOf(x)
	n, also := a.numberOf(y)
	switch {
	case own && also:
		return cmp.Compare(m, n)
	case also:
		return 1
	case own:
		return -1
	}
	return strings.Compare(x, y)
}

// setBlock blocks a session or ends its block.
func (a *API) setBlock(ctx context.Context, action, id string, ended bool) error {
	ns, err := wire.ParseNamespace(id)
	if err == nil {
		err = (moqt.TrackName{Namespace: ns}).Validate()
	}
	if err != nil {
		return huma.Error422UnprocessableEntity("not the ID of a session: " + err.Error())
	}
	if !a.block(ns, ended) {
		err = huma.Error409Conflict(fmt.Sprintf("%d sessions are blocked already", maxBlocks))
	}
	a.audit(ctx, action, id, err)
	return err
}

// move sends a client to another relay.
func (a *API) move(ctx context.Context, in *moveRequest) (*response[Moved], error) {
	to := ""
	if in.Body != nil {
		to = in.Body.URL
	}
	if to == "" {
		if to = a.Cluster.Redirect(); to == "" {
			return nil, huma.Error409Conflict("no other relay of the cluster has room; give a url")
		}
	} else if err := checkURL(to); err != nil {
		return nil, huma.Error422UnprocessableEntity(err.Error())
	}
	to = a.Cluster.ForClients(to)
	if err := a.act(ctx, "move", in.ID, question{Move: in.ID, URL: to}); err != nil {
		return nil, err
	}
	return &response[Moved]{Moved{to}}, nil
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "moqt" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return errors.New("url: want moqt://HOST:PORT")
	}
	return nil
}

// act does a question's action, here or at the client's relay.
func (a *API) act(ctx context.Context, action, target string, q question) error {
	answer := a.answer(q)
	if answer == "" {
		answer = a.ask(ctx, q)
	}
	var err error
	switch answer {
	case done:
	case router.ErrMoving.Error():
		err = huma.Error409Conflict(answer)
	case "":
		err = huma.Error404NotFound("no relay has this client")
	default:
		err = huma.Error404NotFound(answer)
	}
	a.audit(ctx, action, target, err)
	return err
}

type actorKey struct{}

// WithActor names the sender of a request, for the log.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// audit logs an action.
func (a *API) audit(ctx context.Context, action, target string, err error) {
	actor, _ := ctx.Value(actorKey{}).(string)
	fields := []any{"action", action, "by", actor}
	if target != "" {
		fields = append(fields, "target", target)
	}
	if err != nil {
		a.Log.Warn("admin: action refused", append(fields, "reason", err)...)
		return
	}
	a.Log.Info("admin: action", fields...)
}
