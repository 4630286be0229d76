package moqt

import (
	"context"
	"log/slog"
	"testing"

	"holocast/internal/moqt/wire"
	"holocast/internal/qmux"
)

// OverLinks returns both ends of a session over the ends of a QMux link. It ends with the test.
func OverLinks(t *testing.T, from, at qmux.Link, client, server Handler) (c, s *Session) {
	t.Helper()
	cfg := Config{Log: slog.New(slog.DiscardHandler)}
	open := func(c *qmux.Conn, client bool, h Handler) *Session {
		s, err := newSession(context.Background(), tcpConn{c: c}, wire.Versions()[0], client, &wire.Setup{}, cfg)
		if err != nil {
			t.Error(err)
			return nil
		}
		s.Serve(h)
		return s
	}
	accepted := make(chan *Session)
	go func() { accepted <- open(qmux.Server(at, qmux.Config{}), false, server) }()
	c = open(qmux.Client(from, qmux.Config{}), true, client)
	if s = <-accepted; c == nil || s == nil {
		t.FailNow()
	}
	return c, s
}
