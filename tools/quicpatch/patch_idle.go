package main

// What makes an idle connection small (docs/adr/0009-send-path.md): where quic-go's files call
// tree/internal_handshake_finished.go.txt and tree/idle.go.txt.

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
