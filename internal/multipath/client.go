package multipath

import (
	"bufio"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/quic-go/quic-go"

	"holocast/internal/eyeballs"
	"holocast/internal/pause"
)

const (
	redialEvery = 500 * time.Millisecond
	dialWait    = 2 * time.Second // for a path that was never there
)

// Path is one of the client's network paths to the server.
type Path struct {
	Name string // at most MaxName bytes
	// Dial opens a connection. It is called again after it fails and after the connection ends.
	Dial func(context.Context) (*quic.Conn, error)
}

// Dial dials all paths. The first connection starts a bundle; the others join it once they are
// established. If the server's protocol does not begin with ProtocolPrefix, Dial returns the first
// connection instead of a bundle and closes the others.
func Dial(ctx context.Context, paths []Path, cfg Config) (*Conn, *quic.Conn, error) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	results := make(chan dialed, len(paths))
	for i, p := range paths {
		go func() {
			qc, err := p.Dial(lasting)
			results <- dialed{path: i, qc: qc, err: err}
		}()
	}
	var failed []dialed
	for left := len(paths); left > 0; {
		var r dialed
		select {
		case r = <-results:
			left--
		case <-ctx.Done():
			cancel()
			go closeAll(results, left)
			return nil, nil, append(causes(failed), ctx.Err())
		}
		if r.err != nil {
			failed = append(failed, r)
			continue
		}
		if !strings.HasPrefix(r.qc.ConnectionState().TLS.NegotiatedProtocol, ProtocolPrefix) {
			cancel()
			go closeAll(results, left)
			return nil, r.qc, nil
		}
		c := newConn(true, cfg)
		c.lastPath = &path{qc: r.qc}
		for _, p := range paths {
			c.remember(PathStats{Name: p.Name, Down: true})
		}
		if err := c.join(ctx, r.qc, paths[r.path].Name, nil); err != nil {
			_ = r.qc.CloseWithError(codeLeft, "")
			c.fail(err)
			failed = append(failed, dialed{path: r.path, err: err})
			continue
		}
		context.AfterFunc(c.ctx, cancel)
		r.joined = true
		for _, r := range append(failed, r) {
			go c.keep(lasting, paths[r.path], r)
		}
		for range left {
			go func() {
				r := <-results
				c.keep(lasting, paths[r.path], r)
			}()
		}
		return c, nil, nil
	}
	cancel()
	return nil, nil, causes(failed)
}

// dialed is the outcome of a path's first Dial.
type dialed struct {
	path   int
	qc     *quic.Conn
	err    error
	joined bool
}

func causes(failed []dialed) (errs eyeballs.Errors) {
	for _, r := range failed {
		errs = append(errs, r.err)
	}
	return errs
}

// closeAll waits for n outcomes and closes their connections.
func closeAll(results <-chan dialed, n int) {
	for range n {
		if r := <-results; r.qc != nil {
			_ = r.qc.CloseWithError(codeLeft, "")
		}
	}
}

// keep joins the path's connection to the bundle and replaces it whenever it ends, until the bundle
// ends.
func (c *Conn) keep(ctx context.Context, p Path, first dialed) {
	qc, joined := first.qc, first.joined
	if first.err != nil && c.ctx.Err() == nil {
		c.log.Warn("path is not available", "path", p.Name, "reason", first.err)
	}
	for wait := dialWait; ; {
		if qc != nil && !joined {
			joined = c.rejoin(qc, p.Name)
		}
		if joined {
			<-qc.Context().Done()
			wait = max(redialEvery, 4*qc.ConnectionStats().SmoothedRTT)
		}
		qc, joined = nil, false
		for qc == nil {
			next := time.Now().Add(redialEvery)
			attempt, cancel := context.WithTimeout(ctx, wait)
			qc, _ = p.Dial(attempt)
			cancel()
			if pause.For(c.ctx, time.Until(next)) != nil {
				if qc != nil {
					_ = qc.CloseWithError(codeLeft, "")
				}
				return
			}
		}
	}
}

// rejoin joins qc to the bundle with a token, and closes qc if that fails.
func (c *Conn) rejoin(qc *quic.Conn, name string) bool {
	t, err := c.takeToken(qc.Context())
	if err == nil {
		ctx, cancel := context.WithTimeout(qc.Context(), helloWait)
		err = c.join(ctx, qc, name, &t)
		cancel()
	}
	if err == nil {
		return true
	}
	_ = qc.CloseWithError(codeLeft, "")
	c.log.Debug("path cannot join", "path", name, "reason", err)
	var refused *quic.ApplicationError
	if errors.As(err, &refused) && refused.Remote && c.alone() {
		c.fail(err) // nothing can bring the bundle back
	}
	return false
}

// alone reports whether the bundle has no connection.
func (c *Conn) alone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.paths) == 0
}

// join sends HELLO on the connection and adds it to the paths.
func (c *Conn) join(ctx context.Context, qc *quic.Conn, name string, t *token) error {
	str, err := qc.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	if _, err := str.Write(hello{t, name, c.cfg.grants()}.message()); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok {
		_ = str.SetReadDeadline(d)
	}
	r := bufio.NewReaderSize(str, maxMessage)
	b, err := readMessage(r)
	if err != nil {
		if cause := context.Cause(qc.Context()); cause != nil {
			return cause
		}
		return err
	}
	w, err := parseWelcome(b)
	if err != nil {
		return err
	}
	_ = str.SetReadDeadline(time.Time{})
	if t == nil {
		c.begin(w.grants)
	}
	p, err := c.add(qc, name)
	if err != nil {
		return err
	}
	go c.readTokens(r)
	p.start()
	if t != nil {
		c.log.Info("path joined", "path", name, "local", qc.LocalAddr().String())
	}
	return nil
}

// receivedToken is a token with which another path may join.
type receivedToken struct {
	token
	at time.Time
}

// readTokens reads the tokens that the server sends on a path.
func (c *Conn) readTokens(r *bufio.Reader) {
	for {
		b, err := readMessage(r)
		if err != nil {
			return
		}
		if len(b) != tokenSize {
			c.fail(violation("malformed token"))
			return
		}
		c.mu.Lock()
		t := token(b)
		if !c.seen[t] {
			c.seen[t] = true
			c.tokens = append(c.tokens, receivedToken{t, time.Now()})
			if len(c.tokens) > maxTokens {
				delete(c.seen, c.tokens[0].token)
				c.tokens = c.tokens[1:]
			}
			signal(c.joined)
		}
		c.mu.Unlock()
	}
}

// takeToken removes and returns the newest token, waiting for one if necessary.
func (c *Conn) takeToken(ctx context.Context) (token, error) {
	for {
		c.mu.Lock()
		if n := len(c.tokens); n > 0 {
			t := c.tokens[n-1]
			if time.Since(t.at) < tokenLife {
				c.tokens = c.tokens[:n-1]
				if n > 1 {
					signal(c.joined)
				}
				c.mu.Unlock()
				return t.token, nil
			}
			c.tokens = nil
		}
		none := len(c.paths) == 0
		c.mu.Unlock()
		if none {
			return token{}, errNoPath
		}
		select {
		case <-c.joined:
		case <-ctx.Done():
			return token{}, context.Cause(ctx)
		case <-c.ctx.Done():
			return token{}, context.Cause(c.ctx)
		}
	}
}
