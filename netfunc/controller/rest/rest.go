// Package rest is the controller's HTTP interface, with the calls of edges and operators, the OpenAPI
// document and the status page. If credentials are configured, every call requires a token or a
// client certificate; the page's files and the health check do not.
package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"holocast/internal/service"
	"holocast/netfunc/api"
	"holocast/netfunc/controller/control"
	"holocast/netfunc/controller/policy"
)

// Config holds the settings of a Server.
type Config struct {
	Auth    Auth
	Rate    Rate
	MaxBody int64 // bytes per request
	// KeepAlive is the interval of keep-alives on watch streams.
	KeepAlive time.Duration
	Metrics   http.Handler // serves GET /metrics
	// Answered, if not nil, is called for every request with its route ("" if unknown) and the
	// response status.
	Answered func(route string, status int)
	// Admitted, if not nil, is called for every request with valid credentials; done is called
	// after the response. It returns false if the request's connection exceeds a limit.
	Admitted func(context.Context, Caller) (done func(), ok bool)
	Log      *slog.Logger
}

// Class is the class of a request's caller. Each class has its own limits.
type Class int

// Classes of requests.
const (
	Stranger Class = iota // no credential presented or required
	Edge
	Operator
)

// Caller describes who sent a request, as far as the credential shows.
type Caller struct {
	Class Class
	Edge  string // set if the credential belongs to this edge alone
}

// Server answers requests for a control plane.
type Server struct {
	conf    Config
	auth    atomic.Pointer[Auth]
	plane   *control.Plane
	alive   func() error // fails if plane is stalled
	limiter atomic.Pointer[limiter]
	failing *limiter // for failed authentication
	routes  []route
	handler http.Handler
	edges   http.Handler // without operators' routes
}

// route is a method, a path and the access required.
type route struct {
	method, path string
	who          access
	serve        func(*Server, http.ResponseWriter, *http.Request) error
}

// access is the credential a route requires.
type access int

const (
	open     access = iota // none
	edges                  // an edge's or an operator's
	operator               // an operator's token or client certificate
)

// routes lists all routes; openapi.yaml documents them.
func routes() []route {
	return []route{
		{"POST", "/v1/edges", edges, (*Server).hello},
		{"GET", "/v1/edges", operator, (*Server).listEdges},
		{"DELETE", "/v1/edges/{name}", edges, (*Server).leave},
		{"POST", "/v1/edges/{name}/report", edges, (*Server).report},
		{"POST", "/v1/edges/{name}/uplink", edges, (*Server).uplink},
		{"POST", "/v1/edges/{name}/eliminations", edges, (*Server).eliminate},
		{"GET", "/v1/edges/{name}/watch", edges, (*Server).watch},
		{"GET", "/v1/flows", operator, (*Server).listFlows},
		{"PUT", "/v1/flows/{destination}", operator, (*Server).setFlow},
		{"DELETE", "/v1/flows/{destination}", operator, (*Server).unsetFlow},
		{"GET", "/v1/decisions", operator, (*Server).listDecisions},
		{"GET", "/v1/status", operator, (*Server).status},
		{"GET", "/v1/openapi.json", edges, (*Server).openAPI},
		{"GET", "/metrics", operator, (*Server).metrics},
		{"GET", "/healthz", open, (*Server).health},
	}
}

// SetAuth replaces the credentials for later requests.
func (s *Server) SetAuth(a Auth) { s.auth.Store(&a) }

// SetRate replaces the rate limit per caller.
func (s *Server) SetRate(r Rate) { s.limiter.Store(newLimiter(r)) }

// New returns a Server.
func New(c Config, p *control.Plane) *Server {
	s := &Server{conf: c, plane: p, failing: newLimiter(failures), routes: routes()}
	s.alive = service.Bounded(func() error { p.Counts(); return nil })
	s.SetRate(c.Rate)
	s.SetAuth(c.Auth)
	s.handler = s.handle(func(route) bool { return true }, pageFiles())
	s.edges = s.handle(func(r route) bool { return r.who != operator }, http.HandlerFunc(s.notFound))
	return s
}

// handle returns a handler for the routes that serves accepts. Other paths outside /v1/ go to rest.
func (s *Server) handle(serves func(route) bool, rest http.Handler) http.Handler {
	mux := http.NewServeMux()
	methods := map[string]string{}
	for _, r := range s.routes {
		if serves(r) {
			mux.Handle(r.method+" "+r.path, s.throttled(r.who, s.guarded(r)))
			methods[r.path] += ", " + r.method
		}
	}
	for path, allowed := range methods { // without this the mux would answer in plain text
		mux.Handle(path, s.throttled(open, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", allowed[2:])
			s.fail(w, "", &api.Problem{
				Status: http.StatusMethodNotAllowed,
				Detail: "method not allowed: this path accepts " + allowed[2:],
			})
		})))
	}
	mux.Handle("/v1/", s.throttled(open, http.HandlerFunc(s.notFound)))
	mux.Handle("/", s.throttled(open, rest))
	// A browser with a client certificate must not lend it to other sites.
	csrf := http.NewCrossOriginProtection()
	csrf.SetDenyHandler(s.throttled(open, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.fail(w, "", &api.Problem{Status: http.StatusForbidden, Detail: "the request comes from another site"})
	})))
	return csrf.Handler(mux)
}

func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	detail := "unknown path: see /v1/openapi.json"
	for _, o := range s.routes {
		if o.who == operator && o.path == r.URL.Path { // on the edges' listener
			detail = "operators' calls are served only at http.operators"
		}
	}
	s.fail(w, "", &api.Problem{Status: http.StatusNotFound, Detail: detail})
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Edges serves only the edges' calls and the health check.
func (s *Server) Edges() http.Handler { return s.edges }

// throttled rejects callers above their rate. Edges with their own credential are counted by name, and
// all other callers by address, separately for strangers, edges and operators.
func (s *Server) throttled(who access, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.limiter.Load().allow(keyOf(s.auth.Load().caller(who, r), r), time.Now()) {
			w.Header().Set("Retry-After", "1")
			s.fail(w, "", &api.Problem{
				Status: http.StatusTooManyRequests,
				Detail: "more requests than http.rate allows",
			})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// guarded serves a route to authorized callers.
func (s *Server) guarded(r route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if p := s.admit(r.who, req); p != nil {
			if p.Status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="holocast controller"`)
			}
			s.fail(w, r.path, p)
			return
		}
		if c := s.auth.Load().caller(r.who, req); s.conf.Admitted != nil && c.Class != Stranger {
			done, ok := s.conf.Admitted(req.Context(), c)
			if !ok {
				w.Header().Set("Connection", "close")
				s.fail(w, r.path, &api.Problem{
					Status: http.StatusServiceUnavailable,
					Detail: "http.maxConnections, http.perAddress or http.perEdge connections are busy",
				})
				return
			}
			defer done()
		}
		req.Body = http.MaxBytesReader(w, req.Body, s.conf.MaxBody)
		rec := &recorder{ResponseWriter: w}
		if err := r.serve(s, rec, req); err != nil {
			if rec.status == 0 {
				s.fail(w, r.path, problem(err))
				return
			}
			s.conf.Log.Debug("response interrupted", "route", r.path, "err", err)
		}
		s.answered(r.path, cmp.Or(rec.status, http.StatusOK))
	})
}

// recorder records a response's status.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (s *Server) answered(route string, status int) {
	if s.conf.Answered != nil {
		s.conf.Answered(route, status)
	}
}

// problem converts an error to problem details (RFC 9457).
func problem(err error) *api.Problem {
	var p *api.Problem
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &tooLarge):
		return &api.Problem{
			Status: http.StatusRequestEntityTooLarge,
			Detail: fmt.Sprintf("the request is larger than %d bytes", tooLarge.Limit),
		}
	case errors.Is(err, policy.ErrUnknownEdge):
		return &api.Problem{
			Type: api.TypeUnknownEdge, Title: "Unknown edge", Status: http.StatusNotFound,
			Detail: err.Error(),
		}
	case errors.Is(err, policy.ErrUnknownFlow):
		return &api.Problem{
			Type: api.TypeUnknownFlow, Title: "Unknown flow", Status: http.StatusNotFound,
			Detail: err.Error(),
		}
	case errors.Is(err, policy.ErrStale):
		return &api.Problem{
			Type: api.TypeStale, Title: "Stale generation", Status: http.StatusConflict,
			Detail: err.Error(),
		}
	case errors.Is(err, policy.ErrForbidden):
		return &api.Problem{Status: http.StatusForbidden, Detail: err.Error()}
	case errors.Is(err, policy.ErrUnconfirmed):
		return &api.Problem{
			Type: api.TypeUnconfirmed, Title: "Unconfirmed", Status: http.StatusConflict,
			Detail: err.Error(),
		}
	case errors.Is(err, policy.ErrPinned), errors.Is(err, policy.ErrNotReceiver), errors.Is(err, policy.ErrNoPathLeft):
		return &api.Problem{Status: http.StatusConflict, Detail: err.Error()}
	case errors.Is(err, policy.ErrInvalid):
		return &api.Problem{Status: http.StatusUnprocessableEntity, Detail: err.Error()}
	case errors.Is(err, policy.ErrFull):
		return &api.Problem{Status: http.StatusServiceUnavailable, Detail: err.Error()}
	}
	return &api.Problem{Status: http.StatusInternalServerError, Detail: err.Error()}
}

// complete fills in the remaining members of problem details.
func complete(p api.Problem) api.Problem {
	p.Type = cmp.Or(p.Type, "about:blank")
	p.Title = cmp.Or(p.Title, http.StatusText(p.Status))
	return p
}

// fail answers with problem details.
func (s *Server) fail(w http.ResponseWriter, route string, p *api.Problem) {
	out := complete(*p)
	h := w.Header()
	h.Set("Content-Type", api.ProblemType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(out.Status)
	_ = json.NewEncoder(w).Encode(out)
	s.answered(route, out.Status)
}

// read decodes a request's JSON. If strict is set, unknown members are an error, to catch operators'
// typos. It is not set for edges, which may be newer than their controller.
func read(r *http.Request, out any, strict bool) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return &api.Problem{Status: http.StatusUnsupportedMediaType, Detail: "the request must be application/json"}
	}
	d := json.NewDecoder(r.Body)
	if strict {
		d.DisallowUnknownFields()
	}
	err = d.Decode(out)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("more than one JSON value")
			var tooLarge *http.MaxBytesError
			if errors.As(more, &tooLarge) {
				err = more
			}
		}
	}
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &tooLarge):
		return err
	case errors.Is(err, io.EOF):
		err = errors.New("empty body")
	}
	return &api.Problem{Status: http.StatusBadRequest, Detail: "invalid JSON in the request: " + err.Error()}
}

func write(w http.ResponseWriter, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	_, err = w.Write(append(b, '\n'))
	return err
}

func (s *Server) hello(w http.ResponseWriter, r *http.Request) error {
	var in api.Edge
	if err := read(r, &in, false); err != nil {
		return err
	}
	if p := s.auth.Load().mayBe(in.Name, r); p != nil {
		return p
	}
	out, err := s.plane.Hello(in)
	if err != nil {
		return err
	}
	return write(w, out)
}

func (s *Server) listEdges(w http.ResponseWriter, _ *http.Request) error {
	return write(w, api.EdgeList{Edges: s.plane.Edges()})
}

func (s *Server) leave(w http.ResponseWriter, r *http.Request) error {
	if err := s.plane.Leave(r.Context(), r.PathValue("name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) report(w http.ResponseWriter, r *http.Request) error {
	var in api.Report
	if err := read(r, &in, false); err != nil {
		return err
	}
	if err := s.plane.Report(r.PathValue("name"), in); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) uplink(w http.ResponseWriter, r *http.Request) error {
	var in api.Uplink
	if err := read(r, &in, false); err != nil {
		return err
	}
	if err := s.plane.Uplink(r.PathValue("name"), in.Observations); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) eliminate(w http.ResponseWriter, r *http.Request) error {
	var in api.Eliminations
	if err := read(r, &in, false); err != nil {
		return err
	}
	if n := len(in.Eliminations); n == 0 || n > api.MaxEliminations {
		return fmt.Errorf("%w: %d eliminations, want 1 to %d", policy.ErrInvalid, n, api.MaxEliminations)
	}
	eliminated, err := s.plane.Eliminate(r.PathValue("name"), in.Eliminations)
	if err != nil {
		return err
	}
	out := api.OutcomeList{Outcomes: make([]api.Outcome, len(eliminated))}
	for i, e := range eliminated {
		o := &out.Outcomes[i]
		o.Destination = in.Eliminations[i].Destination
		if e.Err != nil {
			p := complete(*problem(e.Err))
			o.Problem = &p
		} else {
			o.Flow = &e.Flow
		}
	}
	return write(w, out)
}

// writeTimeout applies to each line of a watch stream.
const writeTimeout = 5 * time.Second

// watch streams updates until the caller disconnects, the edge leaves or the server shuts down.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) error {
	watcher, err := s.plane.Watch(r.PathValue("name"))
	if err != nil {
		return err
	}
	defer watcher.Close()
	rc := http.NewResponseController(w)
	if err := rc.SetReadDeadline(time.Time{}); err != nil { // a deadline would end the stream
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // keeps proxies from buffering lines
	lines := json.NewEncoder(w)
	line := func(u api.Update) error {
		if err := rc.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return err
		}
		if err := lines.Encode(u); err != nil {
			return err
		}
		return rc.Flush()
	}
	alive := time.NewTicker(s.conf.KeepAlive)
	defer alive.Stop()
	for {
		var u api.Update
		select {
		case <-r.Context().Done():
			return nil
		case <-watcher.C:
			if u, err = watcher.Next(); err != nil {
				return err
			}
			if !u.Snapshot && len(u.Flows)+len(u.Removed) == 0 {
				continue
			}
		case <-alive.C:
		}
		if err := line(u); err != nil {
			return err
		}
	}
}

func (s *Server) listFlows(w http.ResponseWriter, _ *http.Request) error {
	return write(w, api.FlowList{Flows: s.plane.Flows()})
}

func destination(r *http.Request) (netip.Addr, error) {
	dst, err := netip.ParseAddr(r.PathValue("destination"))
	if err != nil || dst.Zone() != "" {
		return dst, &api.Problem{
			Status: http.StatusUnprocessableEntity,
			Detail: fmt.Sprintf("destination %.60q: want an IP address without a zone", r.PathValue("destination")),
		}
	}
	return dst, nil
}

func (s *Server) setFlow(w http.ResponseWriter, r *http.Request) error {
	dst, err := destination(r)
	if err != nil {
		return err
	}
	var in api.Setting
	if err := read(r, &in, true); err != nil {
		return err
	}
	out, err := s.plane.Set(dst, in)
	if err != nil {
		return err
	}
	return write(w, out)
}

func (s *Server) unsetFlow(w http.ResponseWriter, r *http.Request) error {
	dst, err := destination(r)
	if err != nil {
		return err
	}
	if err := s.plane.Unset(dst); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// maxDecisions limits the decisions per response.
const maxDecisions = 1000

func (s *Server) listDecisions(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	number := func(name string, value, most uint64) (uint64, error) {
		if !q.Has(name) {
			return value, nil
		}
		n, err := strconv.ParseUint(q.Get(name), 10, 64)
		if err != nil || n > most {
			return 0, &api.Problem{
				Status: http.StatusUnprocessableEntity,
				Detail: fmt.Sprintf("%s=%.30q: want a number from 0 to %d", name, q.Get(name), most),
			}
		}
		return n, nil
	}
	since, err := number("since", 0, 1<<63)
	if err != nil {
		return err
	}
	limit, err := number("limit", maxDecisions, maxDecisions)
	if err != nil {
		return err
	}
	return write(w, api.DecisionList{Decisions: append([]api.Decision{}, s.plane.Decisions(since, int(limit))...)})
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) error {
	return write(w, s.plane.Status())
}

func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) error {
	b, err := openAPI()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, err = w.Write(b)
	return err
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) error {
	s.conf.Metrics.ServeHTTP(w, r)
	return nil
}

func (s *Server) health(w http.ResponseWriter, r *http.Request) error {
	if context.Cause(r.Context()) != nil {
		return &api.Problem{Status: http.StatusServiceUnavailable, Detail: "the controller is stopping"}
	}
	if err := s.alive(); err != nil {
		return &api.Problem{Status: http.StatusServiceUnavailable, Detail: err.Error()}
	}
	_, err := io.WriteString(w, "ok\n")
	return err
}
