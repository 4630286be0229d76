package multipath

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// Tokens of a bundle.
const (
	tokenLife  = time.Minute
	tokenEvery = 20 * time.Second // a fresh one replaces the oldest
	maxTokens  = 4
)

// helloWait bounds the wait for a client's HELLO.
const helloWait = 10 * time.Second

var errTooMany = fmt.Errorf("multipath: more than %d paths", maxPaths)

// Reasons for refusing a path.
const (
	unknownToken     = "unknown token"
	usedToken        = "used token"
	expiredToken     = "expired token"
	otherCertificate = "other certificate"
	tooManyPaths     = "too many paths"
	endedBundle      = "ended bundle"
	malformedHello   = "malformed hello"
)

// Server lets connections form bundles.
type Server struct {
	mu      sync.Mutex
	tokens  map[token]*grant
	order   []token // by age
	refused map[string]uint64
}

// grant is the right to join a bundle.
type grant struct {
	c       *Conn // nil once the bundle has ended or the token is of no use
	at      time.Time
	used    bool
	expired bool // before its time, by fresher ones
}

// NewServer returns a server without bundles.
func NewServer() *Server {
	s := &Server{tokens: map[token]*grant{}, refused: map[string]uint64{}}
	for _, why := range []string{
		unknownToken, usedToken, expiredToken, otherCertificate, tooManyPaths, endedBundle, malformedHello,
	} {
		s.refused[why] = 0
	}
	return s
}

// Refused returns the number of connections refused, by reason.
func (s *Server) Refused() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.refused)
}

// refusal is an error that closes a connection instead of making it a path.
type refusal struct {
	code   quic.ApplicationErrorCode
	reason string
}

func (e refusal) Error() string { return "multipath: path refused: " + e.reason }

// Accept reads the HELLO of a connection. It returns a new bundle, or nil if the connection joined an
// existing one.
func (s *Server) Accept(ctx context.Context, qc *quic.Conn, cfg Config) (*Conn, error) {
	c, err := s.accept(ctx, qc, cfg)
	var refused refusal
	switch {
	case err == nil:
		return c, nil
	case errors.Is(err, errTooMany):
		refused = refusal{codePaths, tooManyPaths}
	case !errors.As(err, &refused):
		refused = refusal{codeHello, malformedHello}
	}
	s.mu.Lock()
	s.refused[refused.reason]++
	s.mu.Unlock()
	_ = qc.CloseWithError(refused.code, refused.reason)
	return nil, err
}

func (s *Server) accept(ctx context.Context, qc *quic.Conn, cfg Config) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, helloWait)
	defer cancel()
	str, err := qc.AcceptStream(ctx)
	if err != nil {
		return nil, err
	}
	_ = str.SetReadDeadline(time.Now().Add(helloWait))
	b, err := readMessage(bufio.NewReaderSize(str, maxMessage))
	if err != nil {
		return nil, err
	}
	h, err := parseHello(b)
	if err != nil {
		return nil, err
	}
	var c *Conn
	if h.token == nil {
		c = newConn(false, cfg)
		c.server = s
		context.AfterFunc(c.ctx, func() { s.forget(c) })
		c.begin(h.grants)
	} else if c, err = s.redeem(*h.token, qc, time.Now()); err != nil {
		return nil, err
	}
	p, err := c.add(qc, cmp.Or(h.name, qc.RemoteAddr().String()))
	if err != nil {
		return nil, err
	}
	if _, err := str.Write(welcome{uint64(p.number), c.cfg.grants()}.message()); err != nil {
		p.start() // notices the end of the connection
		return nil, err
	}
	go p.sendTokens(str)
	first := 1
	if h.token == nil {
		first = maxTokens
	}
	s.issue(c, first, time.Now())
	p.start()
	if h.token != nil {
		c.log.Info("path joined", "path", p.name, "peer", qc.RemoteAddr().String())
		return nil, nil
	}
	return c, nil
}

// redeem marks a token as used and returns its bundle.
func (s *Server) redeem(t token, qc *quic.Conn, now time.Time) (*Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.tokens[t]
	switch {
	case g == nil:
		return nil, refusal{codeToken, unknownToken}
	case g.used:
		return nil, refusal{codeToken, usedToken}
	case g.expired || now.Sub(g.at) > tokenLife:
		return nil, refusal{codeToken, expiredToken}
	}
	c := g.c
	g.used, g.c = true, nil
	if c == nil || c.ctx.Err() != nil {
		return nil, refusal{codeGone, endedBundle}
	}
	c.issued = slices.DeleteFunc(c.issued, func(o token) bool { return o == t })
	if !bytes.Equal(certificate(qc), certificate(c.QUIC())) {
		return nil, refusal{codeCertificate, otherCertificate}
	}
	return c, nil
}

// forget removes the references to a bundle that has ended. Its tokens remain, so that refusals can state
// the reason.
func (s *Server) forget(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range c.issued {
		if g := s.tokens[t]; g != nil {
			g.c = nil
		}
	}
}

// certificate returns the client's certificate, or nil if it sent none.
func certificate(qc *quic.Conn) []byte {
	if chain := qc.ConnectionState().TLS.PeerCertificates; len(chain) > 0 {
		return chain[0].Raw
	}
	return nil
}

// issue sends n new tokens to a bundle's client.
func (s *Server) issue(c *Conn, n int, now time.Time) {
	c.mu.Lock()
	paths := c.paths
	c.mu.Unlock()
	for range n {
		s.mu.Lock()
		if c.ctx.Err() != nil {
			s.mu.Unlock()
			return
		}
		t := s.fresh(c, now)
		s.mu.Unlock()
		for _, p := range paths {
			select {
			case p.grants <- t:
			default: // the path takes none at the moment
			}
		}
	}
}

// fresh returns a new token for a bundle and removes old ones.
func (s *Server) fresh(c *Conn, now time.Time) (t token) {
	_, _ = rand.Read(t[:]) // never fails
	s.tokens[t] = &grant{c: c, at: now}
	s.order = append(s.order, t)
	for len(s.order) > 0 && now.Sub(s.tokens[s.order[0]].at) > 2*tokenLife {
		delete(s.tokens, s.order[0])
		s.order = s.order[1:]
	}
	if c.issued = append(c.issued, t); len(c.issued) > maxTokens {
		if oldest := s.tokens[c.issued[0]]; oldest != nil { // not forgotten after a long pause
			oldest.expired, oldest.c = true, nil
		}
		c.issued = c.issued[1:]
	}
	return t
}

// refresh sends a bundle's client a new token every tokenEvery. c.mu is held.
func (s *Server) refresh(c *Conn, now time.Time) {
	if now.Sub(c.refreshed) < tokenEvery {
		return
	}
	c.refreshed = now
	go s.issue(c, 1, now)
}

// sendTokens sends tokens on the path's stream.
func (p *path) sendTokens(str *quic.Stream) {
	for {
		select {
		case t := <-p.grants:
			if _, err := str.Write(appendMessage(nil, t[:])); err != nil {
				return
			}
		case <-p.qc.Context().Done():
			return
		case <-p.c.ctx.Done():
			return
		}
	}
}
