package pairing

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A vector for other clients.
const (
	vectorKey     = "AAECAwQFBgcICQoLDA0ODw"
	vectorAddress = "moqt://192.168.1.7:4443/demo?token=abc#0011"
	vectorSealed  = "24b9f627a3b489bddabb545956b99eac979a111a005ef11734385b31a3c3933d550d8bbe684ff880b52360" +
		"5bd36e4bd306b5f0b2de27e10b974bbc"
)

func TestVector(t *testing.T) {
	sealed, err := hex.DecodeString(vectorSealed)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Open(vectorKey, sealed); got != vectorAddress || err != nil {
		t.Errorf("%q %v", got, err)
	}
}

func TestSealOpen(t *testing.T) {
	long := "moqt://relay/" + strings.Repeat("x", MaxBytes)
	if _, _, err := Seal(long); err == nil {
		t.Error("an address that is too long is accepted")
	}
	key, sealed, err := Seal(vectorAddress)
	if err != nil {
		t.Fatal(err)
	}
	if again, _, _ := Seal(vectorAddress); again == key {
		t.Error("a key is used twice")
	}
	if got, err := Open(key, sealed); got != vectorAddress || err != nil {
		t.Errorf("%q %v", got, err)
	}
	altered := append([]byte{sealed[0] ^ 1}, sealed[1:]...)
	for _, c := range []struct {
		name, key string
		sealed    []byte
	}{
		{"another key", vectorKey, sealed},
		{"a short key", key[:8], sealed},
		{"no key", "", sealed},
		{"no base64", "!" + key[1:], sealed},
		{"altered", key, altered},
		{"truncated", key, sealed[:15]},
		{"empty", key, nil},
	} {
		if got, err := Open(c.key, c.sealed); err == nil {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func handler(c *Codes) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /pair/{$}", c.Create)
	mux.HandleFunc("GET /pair/{code}", c.Serve)
	return mux
}

func ask(h http.Handler, method, path, from, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr = from
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestCodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handler(NewCodes())
		w := ask(h, "POST", "/pair/", "127.0.0.1:1", "sealed")
		code := strings.TrimSpace(w.Body.String())
		if w.Code != http.StatusCreated || len(code) != 8 {
			t.Fatalf("%d %q", w.Code, code)
		}
		// Several headsets may use a code.
		for range 2 {
			w = ask(h, "GET", "/pair/"+code, "192.0.2.1:1", "")
			if w.Code != http.StatusOK || w.Body.String() != "sealed" || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
			}
		}
		for _, path := range []string{"", "AAAAAAAA", code + "/x", strings.Repeat("A", 5000)} {
			if w := ask(h, "GET", "/pair/"+path, "192.0.2.1:1", ""); w.Code == http.StatusOK {
				t.Errorf("%.20s is served", path)
			}
		}
		time.Sleep(Lifetime)
		if w := ask(h, "GET", "/pair/"+code, "192.0.2.1:1", ""); w.Code != http.StatusNotFound {
			t.Errorf("an expired code: %d", w.Code)
		}
	})
}

func TestCodesRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handler(NewCodes())
		if w := ask(h, "POST", "/pair/", "127.0.0.1:1", ""); w.Code != http.StatusBadRequest {
			t.Errorf("empty: %d", w.Code)
		}
		if w := ask(h, "POST", "/pair/", "127.0.0.1:1", strings.Repeat("x", MaxBytes+1)); w.Code != 413 {
			t.Errorf("too long: %d", w.Code)
		}
		for range maxCodes {
			if w := ask(h, "POST", "/pair/", "127.0.0.1:1", "sealed"); w.Code != http.StatusCreated {
				t.Fatal(w.Code)
			}
		}
		if w := ask(h, "POST", "/pair/", "127.0.0.1:1", "sealed"); w.Code != http.StatusTooManyRequests {
			t.Errorf("one code too many: %d", w.Code)
		}
		time.Sleep(Lifetime)
		if w := ask(h, "POST", "/pair/", "127.0.0.1:1", "sealed"); w.Code != http.StatusCreated {
			t.Errorf("after the others expired: %d", w.Code)
		}
	})
}

// TestGuessing checks that an address that guesses codes is refused for the rest of the minute, that
// other addresses are served, and that memory is bounded.
func TestGuessing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCodes()
		h := handler(c)
		code := strings.TrimSpace(ask(h, "POST", "/pair/", "127.0.0.1:1", "sealed").Body.String())
		get := func(code, from string) int { return ask(h, "GET", "/pair/"+code, from, "").Code }
		for i := range perMinute {
			if got := get(fmt.Sprint(i), fmt.Sprintf("[2001:db8::%x]:1", i+1)); got != http.StatusNotFound {
				t.Fatal(got)
			}
		}
		if got := get(code, "[2001:db8::ffff]:1"); got != http.StatusTooManyRequests {
			t.Errorf("the guesser's network: %d", got)
		}
		if got := get(code, "192.0.2.1:1"); got != http.StatusOK {
			t.Errorf("another address: %d", got)
		}
		for i := range 2 * allPerMinute {
			get("x", fmt.Sprintf("10.%d.%d.1:1", i/256, i%256))
		}
		if len(c.asked) > allPerMinute {
			t.Errorf("%d addresses are kept", len(c.asked))
		}
		time.Sleep(time.Minute)
		if got := get(code, "[2001:db8::ffff]:1"); got != http.StatusOK {
			t.Errorf("a minute later: %d", got)
		}
	})
}

func TestFromThisMachine(t *testing.T) {
	for _, c := range []struct {
		remote, header string
		want           bool
	}{
		{"127.0.0.1:1", "", true},
		{"[::1]:1", "", true},
		{"[::ffff:127.0.0.1]:1", "", true},
		{"192.0.2.1:1", "", false},
		{"127.0.0.1:1", "X-Forwarded-For", false},
		{"127.0.0.1:1", "Forwarded", false},
		{"", "", false},
	} {
		r := httptest.NewRequest("POST", "/pair/", nil)
		r.RemoteAddr = c.remote
		if c.header != "" {
			r.Header.Set(c.header, "192.0.2.1")
		}
		if got := FromThisMachine(r); got != c.want {
			t.Errorf("%v: %v", c, got)
		}
	}
}
