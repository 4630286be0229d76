package cluster

import (
	"bytes"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holocast/internal/moqt/wire"
)

func testSecret(t *testing.T, cluster string, fill byte) *secret {
	t.Helper()
	s, err := newSecret(cluster, bytes.Repeat([]byte{fill}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTokens checks which relays may open sessions.
func TestTokens(t *testing.T) {
	now := time.Now()
	own := testSecret(t, "test", 1)
	for _, c := range []struct {
		name string
		from *secret
		id   string
		to   string
		at   time.Time
		want string // of the error
	}{
		{"a member", own, "b", "a", now, ""},
		{"another secret", testSecret(t, "test", 2), "b", "a", now, "does not have the secret of this cluster"},
		{"another cluster", testSecret(t, "other", 1), "b", "a", now, "does not have the secret of this cluster"},
		{"a token for another relay", own, "b", "c", now, "check cluster.advertise"},
		{"itself", own, "a", "a", now, "has reached itself"},
		{"an old token", own, "b", "a", now.Add(-2 * tokenLife), "expired"},
		{"a token of the future", own, "b", "a", now.Add(2 * tokenLife), "not valid yet"},
		{"a clock that is slow", own, "b", "a", now.Add(-tokenLife / 2), ""},
		{"a clock that is fast", own, "b", "a", now.Add(tokenLife / 2), ""},
	} {
		token, err := c.from.mint(c.id, "relay b", c.to, c.at)
		if err != nil {
			t.Fatal(err)
		}
		name, err := own.verify([]wire.Token{token}, "a", now)
		switch {
		case c.want == "" && (err != nil || name != "relay b"):
			t.Errorf("%s: %q, %v", c.name, name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	viewers := []wire.Token{{AliasType: wire.TokenUseValue, Value: []byte("jwt")}}
	if name, err := own.verify(viewers, "a", now); name != "" || err != nil {
		t.Errorf("a viewer's token: %q, %v", name, err)
	}
}

// TestSignatures checks that a message that is changed or of another cluster is refused.
func TestSignatures(t *testing.T) {
	own := testSecret(t, "test", 1)
	b := own.seal([]byte("message"))
	if text, err := own.open(b); err != nil || string(text) != "message" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := testSecret(t, "test", 2).open(b); err == nil {
		t.Error("another secret's message is accepted")
	}
	for i := range b {
		changed := bytes.Clone(b)
		changed[i] ^= 1
		if _, err := own.open(changed); err == nil {
			t.Errorf("a message with byte %d changed is accepted", i)
		}
	}
}

// TestCertificates checks that both ends of the cluster port need the secret.
func TestCertificates(t *testing.T) {
	for name, same := range map[string]bool{"the same secret": true, "other secrets": false} {
		other := byte(2)
		if same {
			other = 1
		}
		var conf [2]*tls.Config
		for i, s := range []*secret{testSecret(t, "test", 1), testSecret(t, "test", other)} {
			var err error
			if conf[i], err = s.tls("a", time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		here, there := net.Pipe()
		done := make(chan error, 1)
		go func() {
			done <- tls.Server(there, conf[0]).HandshakeContext(t.Context())
			_ = there.Close()
		}()
		c := tls.Client(here, conf[1])
		err := c.HandshakeContext(t.Context())
		if err == nil {
			_, err = c.Read(make([]byte, 1)) // the server's verdict
		}
		_ = here.Close()
		if server := <-done; (server == nil) != same {
			t.Errorf("%s: server %v, client %v", name, server, err)
		}
	}
}

// TestYield checks that of two relays that dial each other at once, one waits.
func TestYield(t *testing.T) {
	handshake := func(t *testing.T, from, to string) time.Duration {
		s := testSecret(t, "test", 1)
		var conf [2]*tls.Config
		for i, id := range []string{from, to} {
			var err error
			if conf[i], err = s.tls(id, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		here, there := net.Pipe()
		defer here.Close()
		defer there.Close()
		began := time.Now()
		done := make(chan error, 1)
		go func() { done <- tls.Server(there, conf[1]).HandshakeContext(t.Context()) }()
		c := tls.Client(here, conf[0])
		go func() { _, _ = c.Read(make([]byte, 1)) }() // session tickets
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	synctest.Test(t, func(t *testing.T) {
		if d := handshake(t, "a", "b"); d != 0 {
			t.Errorf("the relay with the smaller ID waits %v", d)
		}
		if d := handshake(t, "b", "a"); d != yield {
			t.Errorf("the relay with the larger ID waits %v, want %v", d, yield)
		}
	})
}
