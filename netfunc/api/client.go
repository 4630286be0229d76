package api

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"holocast/internal/secretfile"
)

// Options identify the controller and the caller.
type Options struct {
	URL   string // http:// or https:// URL of the controller
	Token string // sent as a bearer token; "" = none
	// CA is a PEM file with the certificates to trust instead of the system's.
	CA string
	// Certificate and Key are PEM files of a client certificate (mTLS); both or none.
	Certificate, Key string
	// Timeout applies to every call except Watch; 0 means 5 s.
	Timeout time.Duration
}

// Limits on data received from a controller.
const (
	maxAnswer   = 16 << 20
	maxLine     = 4 << 20
	idleTimeout = 15 * time.Second // three of the controller's keep-alive intervals
)

// Client calls a controller. It contacts only the URL's host: it neither follows redirects nor uses
// proxies named in the environment, whose operators would see the token. It is safe for concurrent
// use.
type Client struct {
	base    *url.URL
	token   string
	timeout time.Duration
	http    *http.Client
}

// NewClient returns a client without connecting. Errors begin with the name of the wrong option in
// lower case; callers can prefix their own section name.
func NewClient(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("url: %q is not http://host:port or https://host:port", o.URL)
	}
	if u.Scheme == "http" && (o.CA != "" || o.Certificate != "") {
		return nil, fmt.Errorf("url: %s is not https://, which certificates require", o.URL)
	}
	if strings.ContainsAny(o.Token, " \t\r\n") {
		return nil, errors.New("token: contains white space")
	}
	conf, err := o.tls()
	if err != nil {
		return nil, err
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	d := &net.Dialer{Timeout: o.Timeout}
	return &Client{
		base: u, token: o.Token, timeout: o.Timeout,
		http: &http.Client{
			Transport: &http.Transport{
				DialContext: d.DialContext, TLSClientConfig: conf,
				TLSHandshakeTimeout: o.Timeout, ResponseHeaderTimeout: o.Timeout,
				MaxIdleConnsPerHost: 4, IdleConnTimeout: 90 * time.Second,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func (o Options) tls() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS13}
	if o.CA != "" {
		pem, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca: %s holds no PEM certificate", o.CA)
		}
	}
	if (o.Certificate == "") != (o.Key == "") {
		return nil, errors.New("certificate and key must be given together")
	}
	if o.Certificate != "" {
		cert, err := secretfile.KeyPair(o.Certificate, o.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate: %s, key %s: %w", o.Certificate, o.Key, err)
		}
		conf.Certificates = []tls.Certificate{cert}
	}
	return conf, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Hello registers an edge. Call it at startup and after any ErrUnknownEdge.
func (c *Client) Hello(ctx context.Context, e Edge) (Welcome, error) {
	var w Welcome
	err := c.call(ctx, http.MethodPost, "/v1/edges", e, &w)
	return w, err
}

// Report sends an edge's heartbeat.
func (c *Client) Report(ctx context.Context, edge string, r Report) error {
	return c.call(ctx, http.MethodPost, edgePath(edge)+"/report", r, nil)
}

// Uplink reports packets seen by the uplink monitor. Call it without delay, since the trigger depends
// on these reports.
func (c *Client) Uplink(ctx context.Context, edge string, seen []Observation) error {
	return c.call(ctx, http.MethodPost, edgePath(edge)+"/uplink", Uplink{seen}, nil)
}

// Eliminate reports results of Algorithm 1, at most MaxEliminations, and returns an outcome for
// each.
func (c *Client) Eliminate(ctx context.Context, edge string, e ...Elimination) ([]Outcome, error) {
	var l OutcomeList
	err := c.call(ctx, http.MethodPost, edgePath(edge)+"/eliminations", Eliminations{e}, &l)
	if err == nil && len(l.Outcomes) != len(e) {
		return nil, fmt.Errorf("controller returned %d outcomes for %d eliminations", len(l.Outcomes), len(e))
	}
	return l.Outcomes, err
}

// Leave removes an edge; its flows continue without duplication. It returns once the senders that
// feed the edge have stopped duplicating, with ErrUnconfirmed if one has not confirmed this in
// time.
func (c *Client) Leave(ctx context.Context, edge string) error {
	return c.call(ctx, http.MethodDelete, edgePath(edge), nil, nil)
}

// Status returns the controller's own status.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.call(ctx, http.MethodGet, "/v1/status", nil, &s)
	return s, err
}

// Edges returns all edges, sorted by name.
func (c *Client) Edges(ctx context.Context) ([]EdgeStatus, error) {
	var l EdgeList
	err := c.call(ctx, http.MethodGet, "/v1/edges", nil, &l)
	return l.Edges, err
}

// Flows returns all flows, sorted by destination.
func (c *Client) Flows(ctx context.Context) ([]Flow, error) {
	var l FlowList
	err := c.call(ctx, http.MethodGet, "/v1/flows", nil, &l)
	return l.Flows, err
}

// Decisions returns the decisions after sequence number since, oldest first.
func (c *Client) Decisions(ctx context.Context, since uint64) ([]Decision, error) {
	var l DecisionList
	err := c.call(ctx, http.MethodGet, "/v1/decisions?since="+strconv.FormatUint(since, 10), nil, &l)
	return l.Decisions, err
}

// SetFlow sets a destination's mode and allowed paths.
func (c *Client) SetFlow(ctx context.Context, destination netip.Addr, s Setting) (Flow, error) {
	var f Flow
	err := c.call(ctx, http.MethodPut, "/v1/flows/"+url.PathEscape(destination.String()), s, &f)
	return f, err
}

// UnsetFlow returns a destination to the configured mode.
func (c *Client) UnsetFlow(ctx context.Context, destination netip.Addr) error {
	return c.call(ctx, http.MethodDelete, "/v1/flows/"+url.PathEscape(destination.String()), nil, nil)
}

// Watch calls do for each update of the edge's flows. It returns ctx.Err() when ctx is done, the error
// that do returns, or ErrUnknownEdge; in that case call Hello, then Watch again. If the stream breaks
// otherwise, Watch calls lost, if not nil, with the reason and reopens the stream after a back-off; the
// new stream begins with a snapshot.
func (c *Client) Watch(ctx context.Context, edge string, do func(Update) error, lost func(error)) error {
	var b Backoff
	for {
		var stop errStop
		err := c.watch(ctx, edge, func(u Update) error {
			b.Reset()
			if err := do(u); err != nil {
				return errStop{err}
			}
			return nil
		})
		switch {
		case errors.As(err, &stop):
			return stop.error
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrUnknownEdge):
			return err
		}
		if lost != nil {
			lost(err)
		}
		if err := b.Wait(ctx); err != nil {
			return err
		}
	}
}

// errStop wraps an error from the caller's function.
type errStop struct{ error }

// watch reads one stream to its end.
func (c *Client) watch(ctx context.Context, edge string, do func(Update) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Missing keep-alives reveal that the controller has vanished.
	idle := time.AfterFunc(idleTimeout, func() { cancel(errors.New("no keep-alive from the controller")) })
	defer idle.Stop()
	resp, err := c.do(ctx, http.MethodGet, edgePath(edge)+"/watch", nil)
	if err != nil {
		return cause(ctx, err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		idle.Reset(idleTimeout)
		var u Update
		if err := json.Unmarshal(lines.Bytes(), &u); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		if err := do(u); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return cause(ctx, fmt.Errorf("watch: %w", err))
	}
	return errors.New("watch stream ended")
}

// cause returns the reason for ctx's cancellation if there is one, otherwise err.
func cause(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil {
		return why
	}
	return err
}

func edgePath(name string) string { return "/v1/edges/" + url.PathEscape(name) }

// call sends in as JSON, if not nil, and decodes the response into out, if not nil.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("answer to %s %s: %w", method, path, err)
	}
	return nil
}

// do sends a request and returns the response. An error response is returned as a *Problem.
func (c *Client) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.base.String(), "/")+path, r)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	p := &Problem{}
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if json.Unmarshal(b, p) != nil || p.Title == "" {
		*p = Problem{Title: resp.Status}
	}
	p.Status = resp.StatusCode
	return nil, p
}
