package main

// Changes that reduce the memory of idle WebTransport sessions (docs/adr/0009-send-path.md). They
// insert calls to the functions in tree/webtransport_rest.go.txt into webtransport-go's files.

var webTransport = module{
	path: "github.com/quic-go/webtransport-go", version: "v0.13.0", tree: "build/webtransport-go",
	hashes: map[string]string{
		"capsule.go":              "19dad07a76c606ad1a09fb064be771c12322137c407f97120ccc7e714edf24a3",
		"server.go":               "80f4ee96c151b99e4a35fdbfefe66c471a7988a5e4fc5f451ee511791328bd49",
		"session.go":              "e27912e99c703f41d118e529f87c0e74c9b6b4e1244e80b66cecd87177b1b3ca",
		"streams_map_incoming.go": "b3e27736bf7d0a9d7688523d76540f754d15624f14ab03b6dbcb2c8b22056a58",
	},
	added: map[string]string{
		"rest.go":      "tree/webtransport_rest.go.txt",
		"rest_test.go": "tree/webtransport_rest_test.go.txt",
	},
	changed: map[string]func(src []byte) ([]byte, error){
		"capsule.go":              patchCapsules,
		"server.go":               patchWebTransportServer,
		"session.go":              patchWebTransportSession,
		"streams_map_incoming.go": patchWebTransportStreams,
	},
}

// patchWebTransportServer lets a server serve a connection without a goroutine that waits for the
// connection's end. Close ends all connections.
func patchWebTransportServer(src []byte) ([]byte, error) {
	return patchExternal("server.go", src,
		change{"ServeQUICConn", "func", "StartQUICConn"},
		change{"ServeQUICConn", `go func() {
		select {
		case <-s.ctx.Done():
			conn.CloseWithError(0, "")
		case <-conn.Context().Done():
			// connection already closed
		}
	}()`, ""},
		change{"ServeQUICConn", "wg.Wait()", ""})
}

// patchWebTransportSession reads and writes capsules on goroutines that exist only while there are
// capsules.
func patchWebTransportSession(src []byte) ([]byte, error) {
	return patchExternal(
		"session.go",
		src,
		change{"Session", "", "capsuleStream"},
		change{
			"newSession",
			"go func() {\n\t\tdefer ctxCancel()\n\t\tc.readFromConnectStream()\n\t}()",
			"c.cancel = ctxCancel\n\tc.startReading()",
		},
		change{"newSession", "go func() {\n\t\tdefer ctxCancel()\n\t\tc.writeToConnectStream()\n\t}()", ""},
		change{"readFromConnectStream", "parser := http3.NewCapsuleParser(s.str)", ""},
		change{
			"readFromConnectStream",
			"c, err := parseNextCapsule(parser)",
			"if s.rest() {\n\t\t\treturn\n\t\t}\n\t\tc, err := parseCapsule(s.parser)",
		},
		change{"queueCapsule", "s.capsuleQueue = append(s.capsuleQueue, c)", "$\n\ts.startWriting()"},
		change{
			"closeWithError",
			"s.str.SetWriteDeadline(time.Now().Add(closeSessionTimeout))",
			"$\n\t\ts.startWriting()",
		},
	)
}

// patchCapsules makes the capsule parser return nil for unknown types.
func patchCapsules(src []byte) ([]byte, error) {
	return patchExternal(
		"capsule.go",
		src,
		change{"parseNextCapsule", "func", "parseCapsule"},
		change{
			"parseNextCapsule",
			"if err := capsuleReader.Discard(); err != nil {\n\t\t\t\treturn nil, err\n\t\t\t}",
			"return nil, capsuleReader.Discard()",
		},
	)
}

// patchWebTransportStreams notifies the callback when a session has streams.
func patchWebTransportStreams(src []byte) ([]byte, error) {
	return patchExternal("streams_map_incoming.go", src,
		change{"incomingStreamsMap", "", "onReady quic.ReadyCallback"},
		change{"AddStream", "s.acceptQueue.add(str)", "$\n\ts.onReady.Notify()"},
		change{"CloseSession", "s.cancel(err)", "$\n\ts.onReady.Notify()"})
}
