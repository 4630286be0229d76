package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const connection = `package quic

var newConnection = func(ctx context.Context) *Conn {
	s := &Conn{ctx: ctx}
	s.sentPacketHandler = ackhandler.NewSentPacketHandler(
		0,
		s.config.initialPacketSize(),
		false, // has no effect
	)
	return s
}

var newClientConnection = func() *Conn {
	s := &Conn{}
	s.sentPacketHandler = ackhandler.NewSentPacketHandler(0, s.config.initialPacketSize())
	return s
}

func (c *Conn) run() error {
	if err := c.triggerSending(now); err != nil {
		return err
	}
	return nil
}

func (c *Conn) triggerSending(now monotime.Time) error { return c.triggerSending(now) }
`

func TestPatchConnection(t *testing.T) {
	out, err := patchConnection([]byte(connection))
	if err != nil {
		t.Fatal(err)
	}
	got := string(out)
	if n := strings.Count(got, "ackhandler.WithController(s.ctx, ackhandler.NewSentPacketHandler("); n != 2 {
		t.Errorf("%d of 2 handlers go through WithController:\n%s", n, got)
	}
	if n := strings.Count(got, ", s.config.initialPacketSize())\n"); n != 2 {
		t.Errorf("%d of 2 handlers have their packet size:\n%s", n, got)
	}
	if n := strings.Count(got, "c.triggerSendingControlled(now)"); n != 1 {
		t.Errorf("%d of 1 calls of the run loop changed:\n%s", n, got)
	}
	if !strings.Contains(got, "false, // has no effect") {
		t.Errorf("a comment is missing:\n%s", got)
	}
}

func TestPatchRefusesAnotherQuicGo(t *testing.T) {
	for name, change := range map[string]func(string) string{
		"one handler": func(s string) string {
			return strings.Replace(s, "ackhandler.NewSentPacketHandler(0, ", "other(0, ", 1)
		},
		"no run loop":  func(s string) string { return strings.Replace(s, ") run()", ") loop()", 1) },
		"not Go":       func(s string) string { return s[:100] },
		"two triggers": func(s string) string { return strings.Replace(s, "return nil", "return c.triggerSending(0)", 1) },
	} {
		if _, err := patchConnection([]byte(change(connection))); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := patchFrameSorter([]byte("package quic\n\ntype frameSorter struct{}\n")); err == nil {
		t.Error("no limit of gaps: no error")
	}
	if _, err := patchFramer([]byte("package quic\n\ntype framer struct{}\n")); err == nil {
		t.Error("no queues of streams: no error")
	}
	if _, err := patchSendConn([]byte("package quic\n\ntype sconn struct{}\n")); err == nil {
		t.Error("no method Write: no error")
	}
	if _, err := patchSendStream([]byte("package quic\n\ntype SendStream struct{}\n")); err == nil {
		t.Error("no method CancelWrite: no error")
	}
	other := []byte("package protocol\n\nconst MaxAcceptQueueSize = 32\n")
	if _, err := setConstant("MaxConnUnprocessedPackets", "2")(other); err == nil {
		t.Error("no constant: no error")
	}
	for name, patch := range map[string]func([]byte) ([]byte, error){
		"connection.go": patchConnectionPath, "conn_id_manager.go": patchConnIDManager,
	} {
		if _, err := patch([]byte("package quic\n\ntype Conn struct{}\n")); err == nil {
			t.Errorf("no error for a different %s", name)
		}
	}
	out, err := setConstant("queueLen", "2048")([]byte("package quic\n\nconst (\n\ta = 1\n\tqueueLen = 128\n)\n"))
	if err != nil || !strings.Contains(string(out), "queueLen = 2048") || !strings.Contains(string(out), "= 1\n") {
		t.Errorf("%v:\n%s", err, out)
	}
}

const history = `package ackhandler

type packet struct {
	sent bool
}

func (h *history) first() *packet {
	for _, p := range h.packets {
		if p.Outstanding() && // a comment
			p.sent {
			return p
		}
	}
	return nil
}

func (h *history) last() *packet { return h.first() }
`

func TestPatchExternal(t *testing.T) {
	out, err := patchExternal("history.go", []byte(history),
		change{"packet", "", "outsidePacket"},
		change{"first", "p.Outstanding()", "$ && !p.outside"},
		change{"first", "return nil", "h.none()\n\t$"},
		change{"last", "func", "newest"},
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\toutsidePacket\n", "p.Outstanding() && !p.outside && // a comment",
		"\th.none()\n\treturn nil\n", ") newest() *packet { return h.first() }",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for name, c := range map[string]change{
		"no such type":            {"frame", "", "outsideFrame"},
		"no such function":        {"second", "p.sent", "true"},
		"no such name":            {"second", "func", "third"},
		"no such expression":      {"first", "p.lost", "true"},
		"in another function":     {"last", "p.sent", "true"},
		"more than once":          {"first", "p", "q"},
		"result is not Go":        {"first", "return nil", "return }"},
		"a part of an expression": {"first", "Outstanding() &&", "true"},
	} {
		if out, err := patchExternal("history.go", []byte(history), c); err == nil {
			t.Errorf("%s: no error:\n%s", name, out)
		}
	}
	for name, patch := range map[string]func([]byte) ([]byte, error){
		"connection.go":                             patchConnectionExternal,
		"ecn.go":                                    patchECN,
		"packet.go":                                 patchPacket,
		"updatable_aead.go":                         patchUpdatableAEAD,
		"sent_packet_handler.go":                    patchSentPacketHandler,
		"sent_packet_history.go":                    patchSentPacketHistory,
		"connection.go, sending":                    patchConnectionSending,
		"send_stream.go":                            patchSendStreamSharing,
		"stream_frame.go":                           patchStreamFrame,
		"streams_map_incoming.go":                   patchIncomingStreams,
		"http3/frames.go":                           patchFrameParser,
		"http3/server_conn.go":                      patchServerConn,
		"receive_stream.go":                         patchReceiveStreamReady,
		"streams_map_incoming.go, onReady":          patchIncomingStreamsReady,
		"datagram_queue.go":                         patchDatagramQueue,
		"http3/conn.go":                             patchRawConn,
		"http3/state_tracking_stream.go":            patchTrackedStream,
		"webtransport-go's streams_map_incoming.go": patchWebTransportStreams,
		"webtransport-go's server.go":               patchWebTransportServer,
		"webtransport-go's session.go":              patchWebTransportSession,
		"webtransport-go's capsule.go":              patchCapsules,
	} {
		if _, err := patch([]byte(history)); err == nil {
			t.Errorf("no error for a different %s", name)
		}
	}
}

func TestVerify(t *testing.T) {
	dir := t.TempDir()
	for name := range quicGo.hashes {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("package quic\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := quicGo.verify(dir); err == nil || !strings.Contains(err.Error(), quicGo.version) {
		t.Errorf("error for a different quic-go: %v", err)
	}
}

func TestWorkFile(t *testing.T) {
	root := t.TempDir()
	for i, want := range []bool{true, false} {
		if changed, err := writeWork(root); err != nil || changed != want {
			t.Fatalf("run %d: changed %v, error %v", i, changed, err)
		}
	}
	theirs := filepath.Join(root, "go.work")
	if err := os.WriteFile(theirs, []byte("go 1.26.0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := writeWork(root); err == nil {
		t.Error("a user's go.work was overwritten")
	}
}

// TestTree creates the trees from the module cache, which holds the modules that this program was
// built with.
func TestTree(t *testing.T) {
	root := t.TempDir()
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile("../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"go.mod": mod, "go.sum": sum} {
		if err := os.WriteFile(filepath.Join(root, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []bool{true, false} {
		if changed, err := run(root, true); err != nil || changed != want {
			t.Fatalf("run %d: changed %v, error %v", i, changed, err)
		}
	}
	for _, m := range modules {
		for name := range m.added {
			if _, err := os.Stat(filepath.Join(root, m.tree, filepath.FromSlash(name))); err != nil {
				t.Error(err)
			}
		}
		// A different version in go.mod is an error even if the tree for that version exists.
		other := strings.Replace(string(mod), m.path+" "+m.version, m.path+" v0.1.0", 1)
		if err := os.WriteFile(filepath.Join(root, "go.mod"), []byte(other), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := run(root, true); err == nil || !strings.Contains(err.Error(), m.path+" v0.1.0") {
			t.Errorf("error for another version: %v", err)
		}
	}
}
