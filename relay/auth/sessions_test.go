package auth

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"holocast/internal/moqt/wire"
)

// TestSessionsPerToken checks which sessions count against the limit of a token, and when they cease to.
func TestSessionsPerToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, key := testFiles(t)
		cfg.SessionsPerToken = 2
		a, err := New(t.Context(), cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		open := func() *Session { return &Session{a: a, byText: map[string]*Grant{}} }
		named := func(id string) string {
			return mint(t, key, Claims{Claims: jwt.Claims{ID: id, Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour))}})
		}
		takes := func(x *Session, token string, want error) {
			t.Helper()
			if _, err := x.token(token); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		first, second, third := open(), open(), open()
		token := named("one")
		id := (&Claims{Claims: jwt.Claims{ID: "one"}}).tokenID("")
		takes(first, token, nil)
		takes(first, token, nil)
		time.Sleep(time.Second)
		takes(first, named("one"), nil) // renewed in the same session
		takes(second, token, nil)
		takes(third, token, ErrSessions)
		takes(third, named("two"), nil)
		if sessions, _ := a.Sessions(0); sessions[id] != 2 || len(sessions) != 2 {
			t.Errorf("sessions %v", sessions)
		}
		first.Close()
		first.Close()
		takes(third, token, nil)
		second.Close()
		_, before := a.Sessions(0)
		if again, version := a.Sessions(before); again != nil || version != before {
			t.Errorf("a change without one: %v", again)
		}

		takes(open(), token, nil)
		third.Close()
		a.CountToo(map[TokenID]uint64{id: 1 << 40})
		takes(open(), token, ErrSessions)
		a.CountToo(map[TokenID]uint64{id: 0})
		takes(open(), token, nil)
		takes(open(), token, ErrSessions)
		if len(a.holders.elsewhere) != 0 {
			t.Errorf("%d tokens elsewhere", len(a.holders.elsewhere))
		}
		a.mu.Lock()
		a.sweep(a.clock().Add(2*time.Hour), false)
		a.mu.Unlock()
		if len(a.holders.here) != 0 {
			t.Errorf("expired tokens of %d remain", len(a.holders.here))
		}

		cfg.SessionsPerToken = 0
		if err := a.Replace(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		token = named("many")
		for range 5 {
			takes(open(), token, nil)
		}
		if sessions, version := a.Sessions(before); len(sessions) != 0 || version == before {
			t.Errorf("without a limit: %v", sessions)
		}
	})
	if code := sessionCode(ErrSessions); code != wire.InternalError {
		t.Errorf("sessions are refused with %v, after which clients do not try again", code)
	}
	if code := requestCode(ErrSessions); code != wire.RequestExcessiveLoad {
		t.Errorf("requests are refused with %v", code)
	}
}
