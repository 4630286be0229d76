package connect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// TestTargetToken checks where the token comes from, and that logged addresses do not contain it.
func TestTargetToken(t *testing.T) {
	dir := t.TempDir()
	file, empty := filepath.Join(dir, "token"), filepath.Join(dir, "empty")
	if err := os.WriteFile(file, []byte(" of.a.file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const address = "moqt://relay.example:4443/studio"
	for name, c := range map[string]struct {
		url, token, variable string
		want, err            string
	}{
		"none":                             {url: address},
		"flag":                             {url: address, token: "a.b.c", want: "a.b.c"},
		"variable":                         {url: address, variable: "v.v.v", want: "v.v.v"},
		"flag before variable":             {url: address, token: "a.b.c", variable: "v.v.v", want: "a.b.c"},
		"fragment before both":             {url: address + "#token=f.f.f", token: "a.b.c", variable: "v.v.v", want: "f.f.f"},
		"query":                            {url: address + "?token=q.q.q", want: "q.q.q"},
		"query and fragment":               {url: address + "?token=q.q.q#token=f.f.f", want: "f.f.f"},
		"another fragment":                 {url: address + "#here"},
		"link cannot name a file":          {url: address + "#token=@" + file, want: "@" + file},
		"file":                             {url: address, token: "@" + file, want: "of.a.file"},
		"file in the variable":             {url: address, variable: "@" + file, want: "of.a.file"},
		"absent file":                      {url: address, token: "@" + filepath.Join(dir, "absent"), err: "token: open"},
		"empty file":                       {url: address, token: "@" + empty, err: "is empty"},
		"newline of a shell's redirection": {url: address, token: "a.b.c\n", want: "a.b.c"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(TokenVariable, c.variable)
			target := Target{URL: c.url, Token: c.token}
			got, err := target.token()
			if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q, %v", got, err)
			}
			if target.Address() != address {
				t.Errorf("address %s", target.Address())
			}
			if s, err := target.Session(); s != "studio" || err != nil {
				t.Errorf("session %q, %v", s, err)
			}
		})
	}
	if got := (Target{URL: address + "?room=1&token=q"}).Address(); got != address+"?room=1" {
		t.Errorf("address %s", got)
	}
}

// TestRefusedForGood checks that denied access is final unless the token comes from a file, which
// may change.
func TestRefusedForGood(t *testing.T) {
	t.Setenv(TokenVariable, "")
	for name, c := range map[string]struct {
		token string
		err   error
		want  bool
	}{
		"expired":               {"a.b.c", &moqt.SessionError{Code: wire.ExpiredAuthToken, Remote: true}, true},
		"expired, from a file":  {"@token", &moqt.SessionError{Code: wire.ExpiredAuthToken, Remote: true}, false},
		"unauthorized request":  {"", &moqt.RequestError{Code: wire.RequestUnauthorized}, true},
		"taken namespace":       {"a.b.c", &moqt.RequestError{Code: wire.RequestUninterested}, false},
		"closed by ourselves":   {"a.b.c", &moqt.SessionError{Code: wire.Unauthorized}, false},
		"the relay is draining": {"a.b.c", &moqt.SessionError{Code: wire.GoawayTimeout, Remote: true}, false},
		"no session":            {"", os.ErrDeadlineExceeded, false},
	} {
		if got := (Target{Token: c.token}).refused(c.err); got != c.want {
			t.Errorf("%s: final: %v", name, got)
		}
	}
}

// TestRenewed checks that denied access is final if Renew still returns the refused token, and not if
// it returns another.
func TestRenewed(t *testing.T) {
	t.Setenv(TokenVariable, "")
	expired := &moqt.SessionError{Code: wire.ExpiredAuthToken, Remote: true}
	for token, want := range map[string]bool{"a.b.c": true, "d.e.f": false} {
		target := Target{Token: "a.b.c", Renew: func() Target { return Target{Token: token} }}
		if got := target.refused(expired); got != want {
			t.Errorf("with %s next: final %v, want %v", token, got, want)
		}
	}
}
