package router

import (
	"context"
	"errors"
	"testing"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/relay/auth"
)

// TestClosedSessionUnauthorized checks that requests from a session that has just ended are
// refused, even if every peer has all rights.
func TestClosedSessionUnauthorized(t *testing.T) {
	anybody := auth.Rights{Publish: []string{"/"}, Subscribe: []string{"/"}}
	authority, err := auth.New(context.Background(), auth.Config{Anonymous: anybody}, quiet.Log)
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]*auth.Authority{"without authentication": nil, "with anonymous rights": authority} {
		t.Run(name, func(t *testing.T) {
			cfg := short()
			cfg.Auth = a
			r := start(t, cfg)
			p := r.publish(newPoints())
			c := r.publisherOf(session)
			for _, action := range []auth.Action{auth.Publish, auth.Subscribe} {
				if _, err := c.allow(action, points, nil); err != nil {
					t.Errorf("action %d of an open session: %v", action, err)
				}
			}
			p.Close(wire.NoError, "")
			<-c.s.Context().Done()
			for _, action := range []auth.Action{auth.Publish, auth.Subscribe} {
				refused := (*moqt.RequestError)(nil)
				if _, err := c.allow(action, points, nil); !errors.As(err, &refused) ||
					refused.Code != wire.RequestUnauthorized {
					t.Errorf("action %d of a closed session: %v, want it unauthorized", action, err)
				}
			}
		})
	}
}
