package cluster

import (
	"bytes"
	"reflect"
	"testing"

	"holocast/internal/moqt"
	"holocast/relay/auth"
)

var messages = map[string]*Message{
	"hello": {
		Kind: Hello, From: "a", Version: 1 << 50, Digest: Digest{3, 1 << 63},
		Info: Info{"relay", "eu", "moqt://relay:4443", "moqt://relay.example", [32]byte{1, 31: 2}, true, 1 << 50},
		Load: Load{7, 4089, true},
	},
	"change": {
		Kind: Change, From: "a", Version: 2, Added: []Claim{{moqt.Namespace{"holocast", "\xff\x00"}, 1 << 50}},
		Removed: []moqt.Namespace{{"x"}},
	},
	"state":   {Kind: State, From: "a", Part: 1, Parts: 2, Added: []Claim{{moqt.Namespace{"a"}, 1}, {moqt.Namespace{"b", "c"}, 2}}},
	"request": {Kind: Request, From: "a", To: "b"},
	"bye":     {Kind: Bye, From: "a", Version: 9},
	"tokens":  {Kind: Tokens, From: "a", Tokens: []TokenSessions{{auth.TokenID{1, 15: 2}, 3}, {auth.TokenID{}, 1 << 60}}},
	"revoke":  {Kind: Revoke, From: "a", Version: 3, Part: 1, Parts: 2, Revoked: []string{"alice", "\xff"}},
}

func TestMessages(t *testing.T) {
	for name, m := range messages {
		b := m.Append(nil)
		got, err := Parse(b)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		for i := range b {
			if _, err := Parse(b[:i]); err == nil {
				t.Errorf("%s cut to %d bytes is accepted", name, i)
			}
		}
		if _, err := Parse(append(b, 0)); err == nil {
			t.Errorf("%s with a byte more is accepted", name)
		}
	}
	for name, ns := range map[string]moqt.Namespace{
		"the empty namespace": {}, "the relay's namespace": {".relay", "x"}, "an empty field": {"a", ""},
		"33 fields": make(moqt.Namespace, 33),
	} {
		m := &Message{Kind: Change, From: "a", Added: []Claim{{Namespace: ns}}}
		if _, err := Parse(m.Append(nil)); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// FuzzParse checks that a parsed message encodes to one that parses equally.
func FuzzParse(f *testing.F) {
	for _, m := range messages {
		f.Add(m.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		text := m.Append(nil)
		again, err := Parse(text)
		if err != nil || !bytes.Equal(again.Append(nil), text) {
			t.Errorf("%+v: %v", m, err)
		}
	})
}
