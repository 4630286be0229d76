package moqt_test

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// TestPipe passes subgroups and datagrams between both ends of a session within the process.
func TestPipe(t *testing.T) {
	client, server, err := moqt.Pipe(t.Context(), moqt.Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	name := moqt.TrackName{Namespace: moqt.Namespace{"holocast", "pipe"}, Name: "points"}
	tr := origin.NewTrack(name, nil, origin.Limits{})
	var set origin.Set
	set.Add(tr)
	server.Serve(set.Handler())
	client.Serve(moqt.Handler{})
	sub, err := client.Subscribe(t.Context(), name, moqt.SubscribeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	payload := bytes.Repeat([]byte("holocast"), 100_000)
	const groups = 20
	go func() {
		for g := range uint64(groups) {
			_ = tr.WriteObject(wire.SubgroupHeader{Group: g, FirstObject: true}, moqt.Object{}, payload)
		}
		tr.SendDatagram(moqt.Datagram{Group: groups, Payload: []byte("datagram")})
	}()
	var reading sync.WaitGroup
	for range groups {
		sg, err := sub.AcceptSubgroup(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		reading.Go(func() {
			if _, err := sg.NextObject(); err != nil {
				t.Error(err)
				return
			}
			if b, err := sg.ReadPayload(nil, len(payload)); err != nil || !bytes.Equal(b, payload) {
				t.Errorf("group %d: %d bytes, %v", sg.Group, len(b), err)
			}
		})
	}
	reading.Wait()
	if d, err := sub.AcceptDatagram(t.Context()); err != nil || string(d.Payload) != "datagram" {
		t.Errorf("datagram %v, %v", d, err)
	}
	if client.Transport() != moqt.Memory || server.Transport() != moqt.Memory || client.Conn() != nil {
		t.Errorf("transport %s", client.Transport())
	}
	client.Close(wire.NoError, "")
	<-server.Context().Done()
}
