package main

// What makes an idle connection small (docs/adr/0009-send-path.md): where quic-go's files call
// tree/internal_handshake_finished.go.txt, tree/idle.go.txt, tree/rest.go.txt and
// tree/http3_rest.go.txt.

// patchCryptoSetup has a server forget its TLS connection.
func patchCryptoSetup(src []byte) ([]byte, error) {
	return patchExternal("crypto_setup.go", src,
		change{"cryptoSetup", "", "finished finished"},
		change{"Close", "h.conn.Close()", "h.closeTLS()"},
		change{"handleMessage", "h.conn.HandleData(encLevel.ToTLSEncryptionLevel(), data)", "h.handleTLSData(encLevel.ToTLSEncryptionLevel(), data)"},
		change{"ConnectionState", "h.conn.ConnectionState()", "h.tlsState()"})
}

// patchConnectionIdle has connections forget what only a handshake needs, and take no more
// memory for what they send than that needs.
func patchConnectionIdle(src []byte) ([]byte, error) {
	return patchExternal("connection.go", src,
		change{"handleHandshakeComplete", "c.queueControlFrame(&wire.HandshakeDoneFrame{})", "$\n\tc.finishTLS()"},
		change{"sendPacketsWithGSO", "buf := getLargePacketBuffer()", "buf := c.sendingBuffer()"},
		change{"sendPacketsWithGSO", "buf = getLargePacketBuffer()", "buf = c.sendingBuffer()"})
}

// patchCryptoStream has crypto streams keep nothing of what they have sent, or of a level that
// is over.
func patchCryptoStream(src []byte) ([]byte, error) {
	return patchExternal("crypto_stream.go", src,
		change{"PopCryptoFrame", "s.writeBuf = s.writeBuf[n:]", "if $; len(s.writeBuf) == 0 {\n\t\ts.writeBuf = nil\n\t}"},
		change{"Finish", "s.finished = true", "$\n\ts.queue = frameSorter{}"})
}

// patchReceiveStreamRest wakes what waits for a stream's data.
func patchReceiveStreamRest(src []byte) ([]byte, error) {
	return patchExternal("receive_stream.go", src,
		change{"ReceiveStream", "", "resting Resting"},
		change{"signalRead", "select {\n\tcase s.readChan <- struct{}{}:\n\tdefault:\n\t}", "$\n\ts.resting.Wake()"})
}

// patchIncomingStreamsRest wakes what waits for streams.
func patchIncomingStreamsRest(src []byte) ([]byte, error) {
	return patchExternal("streams_map_incoming.go", src,
		change{"incomingStreamsMap", "", "resting Resting"},
		change{"GetOrOpenStream", "m.nextStreamToOpen = id + 4", "$\n\tm.resting.Wake()"},
		change{"CloseWithError", "close(m.newStreamChan)", "$\n\tm.resting.Wake()"})
}

// patchDatagramQueue wakes what waits for datagrams.
func patchDatagramQueue(src []byte) ([]byte, error) {
	return patchExternal("datagram_queue.go", src,
		change{"datagramQueue", "", "resting Resting"},
		change{"HandleDatagramFrame", "queued = true", "$\n\t\th.resting.Wake()"},
		change{"CloseWithError", "close(h.closed)", "$\n\th.resting.Wake()"})
}

// patchFrameParser has a parser that rests return when it has skipped a frame.
func patchFrameParser(src []byte) ([]byte, error) {
	return patchExternal("http3/frames.go", src,
		change{"frameParser", "", "restingParser"},
		change{"ParseNext", "r.Reset()", "$\n\t\tif p.rests {\n\t\t\treturn nil, errFrameSkipped\n\t\t}"})
}

// patchServerConn has no goroutine wait for the next frame of a client's control stream.
func patchServerConn(src []byte) ([]byte, error) {
	return patchExternal("http3/server_conn.go", src,
		change{"handleControlStream", "f, err := fp.ParseNext(c.qlogger)",
			"if c.rest(fp) {\n\t\t\treturn\n\t\t}\n\t\t$\n\t\tif err == errFrameSkipped {\n\t\t\tcontinue\n\t\t}"})
}

// patchRawConn has no goroutine wait for the first datagram.
func patchRawConn(src []byte) ([]byte, error) {
	return patchExternal("http3/conn.go", src, change{"handleControlStream", "c.qloggerWG.Go", "c.whenDatagram"})
}

// patchTrackedStream wakes what waits for datagrams of a stream.
func patchTrackedStream(src []byte) ([]byte, error) {
	return patchExternal("http3/state_tracking_stream.go", src,
		change{"stateTrackingStream", "", "resting quic.Resting"},
		change{"signalHasDatagram", "select {\n\tcase s.hasData <- struct{}{}:\n\tdefault:\n\t}", "$\n\ts.resting.Wake()"})
}
