package main

// Changes that reduce the memory of idle connections (docs/adr/0009-send-path.md). They insert
// calls to the functions in tree/internal_handshake_finished.go.txt, tree/idle.go.txt,
// tree/rest.go.txt and tree/http3_rest.go.txt into quic-go's files.

// patchCryptoSetup frees a server's TLS connection after the handshake.
func patchCryptoSetup(src []byte) ([]byte, error) {
	return patchExternal(
		"crypto_setup.go",
		src,
		change{"cryptoSetup", "", "finished finished"},
		change{"Close", "h.conn.Close()", "h.closeTLS()"},
		change{
			"handleMessage",
			"h.conn.HandleData(encLevel.ToTLSEncryptionLevel(), data)",
			"h.handleTLSData(encLevel.ToTLSEncryptionLevel(), data)",
		},
		change{"ConnectionState", "h.conn.ConnectionState()", "h.tlsState()"},
	)
}

// patchConnectionIdle frees state that only the handshake needs, and sends from small buffers where
// they suffice.
func patchConnectionIdle(src []byte) ([]byte, error) {
	return patchExternal("connection.go", src,
		change{"handleHandshakeComplete", "c.queueControlFrame(&wire.HandshakeDoneFrame{})", "$\n\tc.finishTLS()"},
		change{"sendPacketsWithGSO", "buf := getLargePacketBuffer()", "buf := c.sendingBuffer()"},
		change{"sendPacketsWithGSO", "buf = getLargePacketBuffer()", "buf = c.sendingBuffer()"})
}

// patchCryptoStream frees sent data and the receive queue of a finished encryption level.
func patchCryptoStream(src []byte) ([]byte, error) {
	return patchExternal(
		"crypto_stream.go",
		src,
		change{
			"PopCryptoFrame",
			"s.writeBuf = s.writeBuf[n:]",
			"if $; len(s.writeBuf) == 0 {\n\t\ts.writeBuf = nil\n\t}",
		},
		change{"Finish", "s.finished = true", "$\n\ts.queue = frameSorter{}"},
	)
}

// patchReceiveStreamReady notifies the callback when a stream has data.
func patchReceiveStreamReady(src []byte) ([]byte, error) {
	return patchExternal("receive_stream.go", src,
		change{"ReceiveStream", "", "onReady ReadyCallback"},
		change{"signalRead", "select {\n\tcase s.readChan <- struct{}{}:\n\tdefault:\n\t}", "$\n\ts.onReady.Notify()"})
}

// patchIncomingStreamsReady notifies callbacks for streams.
func patchIncomingStreamsReady(src []byte) ([]byte, error) {
	return patchExternal("streams_map_incoming.go", src,
		change{"incomingStreamsMap", "", "onReady ReadyCallback"},
		change{"GetOrOpenStream", "m.nextStreamToOpen = id + 4", "$\n\tm.onReady.Notify()"},
		change{"CloseWithError", "close(m.newStreamChan)", "$\n\tm.onReady.Notify()"})
}

// patchDatagramQueue notifies callbacks for datagrams.
func patchDatagramQueue(src []byte) ([]byte, error) {
	return patchExternal("datagram_queue.go", src,
		change{"datagramQueue", "", "onReady ReadyCallback"},
		change{"HandleDatagramFrame", "queued = true", "$\n\t\th.onReady.Notify()"},
		change{"CloseWithError", "close(h.closed)", "$\n\th.onReady.Notify()"})
}

// patchFrameParser makes the parser of a resting connection return after a skipped frame.
func patchFrameParser(src []byte) ([]byte, error) {
	return patchExternal("http3/frames.go", src,
		change{"frameParser", "", "restingParser"},
		change{"ParseNext", "r.Reset()", "$\n\t\tif p.rests {\n\t\t\treturn nil, errFrameSkipped\n\t\t}"})
}

// patchServerConn reads a client's control stream without a waiting goroutine.
func patchServerConn(src []byte) ([]byte, error) {
	return patchExternal("http3/server_conn.go", src,
		change{
			"handleControlStream", "f, err := fp.ParseNext(c.qlogger)",
			"if c.rest(fp) {\n\t\t\treturn\n\t\t}\n\t\t$\n\t\tif err == errFrameSkipped {\n\t\t\tcontinue\n\t\t}",
		})
}

// patchRawConn waits for the first datagram without a goroutine.
func patchRawConn(src []byte) ([]byte, error) {
	return patchExternal("http3/conn.go", src, change{"handleControlStream", "c.qloggerWG.Go", "c.whenDatagram"})
}

// patchTrackedStream notifies the callback when a stream has datagrams.
func patchTrackedStream(src []byte) ([]byte, error) {
	return patchExternal(
		"http3/state_tracking_stream.go",
		src,
		change{"stateTrackingStream", "", "onReady quic.ReadyCallback"},
		change{
			"signalHasDatagram",
			"select {\n\tcase s.hasData <- struct{}{}:\n\tdefault:\n\t}",
			"$\n\ts.onReady.Notify()",
		},
	)
}
