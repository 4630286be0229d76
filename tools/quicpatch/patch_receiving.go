package main

// Changes that make receiving cheaper (docs/adr/0009-send-path.md). They insert calls to the
// functions in tree/receive_piece.go.txt, tree/sys_conn_piece.go.txt and tree/receive_direct.go.txt
// into quic-go's files.

// patchConnectionPieces lets a connection receive several datagrams in one call.
func patchConnectionPieces(src []byte) ([]byte, error) {
	const datagrams = "c.receivedPieces.datagrams"
	return patchExternal(
		"connection.go",
		src,
		change{"receivedPacket", "", "pieceOf"},
		change{"receivedPacket", "", "askedAddress"},
		change{"Conn", "", "receivedPieces"},
		change{"handlePacket", "c.receivedPackets.Len()", datagrams},
		change{"handlePacket", "c.receivedPackets.PushBack(p)", "$\n\t" + datagrams + " += p.count()"},
		change{"handlePackets", "p := c.receivedPackets.PopFront()", "$\n\t\t" + datagrams + " -= p.count()"},
		change{
			"handlePackets",
			"c.handleOnePacket(p, datagramPayloadChecksum)",
			"c.handleReceived(p, datagramPayloadChecksum)",
		},
		change{"handlePackets", "!hasMorePackets", "$ || c.tookEnough()"},
	)
}

// patchOOBConn reads several datagrams from a socket in one call.
func patchOOBConn(src []byte) ([]byte, error) {
	return patchExternal("sys_conn_oob.go", src, change{"ReadPacket", "func", "readDatagram"})
}

// patchTransport passes on several datagrams together, answers Initial packets of a flood, and
// adapts the size of stateless resets to the packets that cause them.
func patchTransport(src []byte) ([]byte, error) {
	return patchExternal("transport.go", src,
		change{"listen", "t.handlePacket(p)", "t.handlePiece(p)"},
		change{"handlePacket", "t.mutex.Lock()", "if t.retryAtOnce(&p) {\n\t\treturn\n\t}\n\t$"},
		change{
			"sendStatelessReset", "make([]byte, protocol.MinStatelessResetSize-16, protocol.MinStatelessResetSize)",
			"make([]byte, resetSize(len(p.data))-16, resetSize(len(p.data)))",
		})
}

// patchServer records the time of the last Retry, so that the reading goroutine answers the following
// Initial packets of a flood.
func patchServer(src []byte) ([]byte, error) {
	return patchExternal("server.go", src,
		change{"baseServer", "", "lastRetry"},
		change{"handleInitialImpl", "s.verifySourceAddress(p.remoteAddr)", "s.verify(p)"})
}

// patchBufferPool returns buffers that hold several datagrams to their pool.
func patchBufferPool(src []byte) ([]byte, error) {
	return patchExternal(
		"buffer_pool.go",
		src,
		change{
			"putBack",
			`panic("putPacketBuffer called with packet of wrong size!")`,
			"if !b.putBackPiece() {\n\t\t$\n\t}",
		},
	)
}

// patchConnectionStreams passes on stream data without copying it from its packet.
func patchConnectionStreams(src []byte) ([]byte, error) {
	return patchExternal(
		"connection.go",
		src,
		change{"Conn", "", "receivedStream"},
		change{"handlePackets", "func", "handleQueuedPackets"},
		change{
			"handleFrames",
			"c.frameParser.ParseStreamFrame(frameType, data, c.version)",
			"c.parseStreamFrame(frameType, data)",
		},
		change{
			"handleFrames",
			"c.streamsMap.HandleStreamFrame(streamFrame, rcvTime)",
			"c.handleStreamFrame(streamFrame, rcvTime)",
		},
	)
}

// patchReceiveStream copies data straight into the buffer of a waiting Read, and lets the
// connection wake the reader.
func patchReceiveStream(src []byte) ([]byte, error) {
	return patchExternal("receive_stream.go", src,
		change{"ReceiveStream", "", "direct directRead"},
		change{"handleStreamFrameImpl", "s.frameQueue.Push(frame.Data, frame.Offset, frame.PutBack)", "s.take(frame)"},
		change{"handleStreamFrameImpl", "s.signalRead()", ""},
		change{"readImpl", "s.mutex.Unlock()", "s.direct.room = p\n\t\t\t$"},
		change{"readImpl", "s.mutex.Lock()", `$
			if stream, conn, n := s.readDirectly(); n > 0 {
				return stream, conn, n, nil
			}`})
}

// patchPacketFrame lets frames refer to their packet.
func patchPacketFrame(src []byte) ([]byte, error) {
	return patchExternal("stream_frame.go", src, change{"StreamFrame", "", "packetData"})
}

// patchIncomingStreams raises the peer's stream limit only when the increase is worth a packet
// (tree/stream_grant.go.txt).
func patchIncomingStreams(src []byte) ([]byte, error) {
	return patchExternal("streams_map_incoming.go", src,
		change{"deleteStream", "maxStream <= protocol.MaxStreamID", "$ && m.worthGranting(maxStream)"})
}
