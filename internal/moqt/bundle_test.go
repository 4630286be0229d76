package moqt

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"holocast/internal/moqt/wire"
	"holocast/internal/testlog"
)

// TestPaths sends a subgroup over a session with two paths, and over a single connection to a
// server that does not support several paths.
func TestPaths(t *testing.T) {
	for name, single := range map[string]bool{"two paths": false, "server without the extension": true} {
		t.Run(name, func(t *testing.T) {
			payload := bytes.Repeat([]byte("0123456789"), 50_000)
			pubs := make(chan *Publication, 1)
			log := new(testlog.Buffer)
			p, err := connectListener(t, overPaths, Handler{}, source(pubs, TrackInfo{}),
				Config{waits: patient(), Log: slog.New(slog.NewTextHandler(log, nil))},
				ListenConfig{Config: Config{waits: patient()}, SinglePath: single})
			if err != nil {
				t.Fatal(err)
			}
			sub, err := p.client.Subscribe(p.ctx, testTrack, SubscribeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			sent := make(chan error, 1)
			pub := <-pubs
			go func() {
				w, err := pub.OpenSubgroup(wire.SubgroupHeader{Group: 1})
				if err == nil {
					err = w.WriteObject(Object{}, payload)
				}
				if err == nil {
					err = w.Close()
				}
				sent <- err
			}()
			r, err := sub.AcceptSubgroup(p.ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.NextObject(); err != nil {
				t.Fatal(err)
			}
			if b, err := r.ReadPayload(nil, 1<<20); err != nil || !bytes.Equal(b, payload) {
				t.Fatalf("%d bytes, %v", len(b), err)
			}
			if err := <-sent; err != nil {
				t.Error(err)
			}
			if n := len(p.client.Paths()); (n == 0) != single {
				t.Errorf("%d paths", n)
			}
			said := strings.Count(log.String(), `level=INFO msg="the relay does not support several paths; using one"`)
			if said > 1 || (said == 1) != single {
				t.Errorf("log:\n%s", log)
			}
		})
	}
}
