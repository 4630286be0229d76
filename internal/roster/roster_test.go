package roster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"holocast/internal/roster"
)

func TestParse(t *testing.T) {
	want := []roster.Relay{
		{URL: "moqt://10.0.0.2:4443", SHA256: strings.Repeat("0a", 32)},
		{URL: "moqt://[fd00::3]:4443", Cost: 1},
	}
	b, err := roster.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := roster.Parse(b); err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	many := strings.TrimSuffix(strings.Repeat(`{"url":"moqt://a:1"},`, 100), ",")
	if got, err := roster.Parse([]byte(`{"relays":[` + many + `]}`)); err != nil || len(got) != roster.MaxRelays {
		t.Errorf("of 100 relays, %d are kept, %v", len(got), err)
	}
	for _, tt := range []struct{ name, text, want string }{
		{"no JSON", "relays", "invalid character"},
		{"too long", `{"x":"` + strings.Repeat("x", roster.MaxSize) + `"}`, "exceeds"},
		{"URL of a page", `{"relays":[{"url":"https://a/"}]}`, "not of the form moqt://HOST:PORT"},
		{"URL with a path", `{"relays":[{"url":"moqt://a/demo"}]}`, "not of the form"},
		{"long URL", `{"relays":[{"url":"moqt://` + strings.Repeat("a", 600) + `"}]}`, "too long"},
		{"hash", `{"relays":[{"url":"moqt://a","sha256":"12"}]}`, "not a SHA-256"},
	} {
		if _, err := roster.Parse([]byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"relays":[{"url":"moqt://10.0.0.2:4443","sha256":"` + strings.Repeat("0a", 32) + `","cost":1}]}`))
	f.Add([]byte(`{"relays":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		relays, err := roster.Parse(b)
		if err != nil {
			return
		}
		again, err := roster.Marshal(relays)
		if err != nil {
			t.Fatal(err)
		}
		if len(again) > roster.MaxSize { // escapes are longer than the text
			return
		}
		if got, err := roster.Parse(again); err != nil || fmt.Sprint(got) != fmt.Sprint(relays) {
			t.Fatalf("%+v became %+v, %v", relays, got, err)
		}
	})
}
