package cluster

import (
	"bytes"
	"context"
	"errors"
	"testing"
)

// TestNotes checks that notes survive their encoding, and that damaged notes and messages are refused.
func TestNotes(t *testing.T) {
	n := &note{kind: noteQuestion, from: "a", nonce: bytes.Repeat([]byte{7}, nonceSize), text: []byte(`{"kick":"x"}`)}
	b := n.marshal()
	got, err := parseNote(b)
	if err != nil || got.kind != n.kind || got.from != "a" || !bytes.Equal(got.nonce, n.nonce) ||
		!bytes.Equal(got.text, n.text) {
		t.Errorf("%+v %v", got, err)
	}
	header := len(b) - len(n.text)
	for i := range header {
		if _, err := parseNote(b[:i]); err == nil {
			t.Errorf("the first %d bytes are accepted", i)
		}
	}
	long := &note{kind: noteBulletin, from: "a", text: make([]byte, maxBulletin+1)}
	for name, bad := range map[string][]byte{
		"unknown kind": append([]byte{noteAnswer + 1}, b[1:]...), "long text": long.marshal(),
		"long nonce": (&note{kind: noteAnswer, nonce: make([]byte, nonceSize+1)}).marshal(),
		"a message":  (&Message{Kind: Bye, From: "a"}).Append(nil),
	} {
		if _, err := parseNote(bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := Parse(b); err == nil {
		t.Error("a note is a message")
	}
}

// TestNoCluster checks the functions of a relay without a cluster.
func TestNoCluster(t *testing.T) {
	var c *Cluster
	c.Announce()
	if _, err := c.Ask(context.Background(), nil); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("%v", err)
	}
	if c.Routes() != nil || c.ForClients("moqt://a:1") != "moqt://a:1" {
		t.Error("a relay without a cluster has others")
	}
}

func FuzzNote(f *testing.F) {
	f.Add((&note{kind: noteAnswer, from: "a", nonce: []byte{1}, text: []byte("text")}).marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := parseNote(b)
		if err != nil {
			return
		}
		again, err := parseNote(n.marshal())
		if err != nil || again.from != n.from || !bytes.Equal(again.text, n.text) || !bytes.Equal(again.nonce, n.nonce) {
			t.Errorf("%+v is %+v after its encoding: %v", n, again, err)
		}
	})
}
