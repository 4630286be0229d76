package main

// What makes receiving cheaper (docs/adr/0009-send-path.md): where quic-go's files call
// tree/receive_piece.go.txt, tree/sys_conn_piece.go.txt and tree/receive_direct.go.txt.

// patchConnectionPieces has connections take several datagrams at once.
func patchConnectionPieces(src []byte) ([]byte, error) {
	const datagrams = "c.receivedPieces.datagrams"
	return patchExternal("connection.go", src,
		change{"receivedPacket", "", "pieceOf"},
		change{"receivedPacket", "", "askedAddress"},
		change{"Conn", "", "receivedPieces"},
		change{"handlePacket", "c.receivedPackets.Len()", datagrams},
		change{"handlePacket", "c.receivedPackets.PushBack(p)", "$\n\t" + datagrams + " += p.count()"},
		change{"handlePackets", "p := c.receivedPackets.PopFront()", "$\n\t\t" + datagrams + " -= p.count()"},
		change{"handlePackets", "c.handleOnePacket(p, datagramPayloadChecksum)", "c.handleReceived(p, datagramPayloadChecksum)"},
		change{"handlePackets", "!hasMorePackets", "$ || c.tookEnough()"})
}

// patchOOBConn has a socket read several datagrams at once.
func patchOOBConn(src []byte) ([]byte, error) {
	return patchExternal("sys_conn_oob.go", src, change{"ReadPacket", "func", "readDatagram"})
}

// patchTransport passes several datagrams on at once, and answers first packets of a flood.
func patchTransport(src []byte) ([]byte, error) {
	return patchExternal("transport.go", src,
		change{"listen", "t.handlePacket(p)", "t.handlePiece(p)"},
		change{"handlePacket", "t.mutex.Lock()", "if t.retryAtOnce(&p) {\n\t\treturn\n\t}\n\t$"})
}

// patchServer has first packets of a flood answered where they are read.
func patchServer(src []byte) ([]byte, error) {
	return patchExternal("server.go", src,
		change{"baseServer", "", "lastRetry"},
		change{"handleInitialImpl", "s.verifySourceAddress(p.remoteAddr)", "s.verify(p)"})
}

// patchBufferPool has buffers of several datagrams put back.
func patchBufferPool(src []byte) ([]byte, error) {
	return patchExternal("buffer_pool.go", src,
		change{"putBack", `panic("putPacketBuffer called with packet of wrong size!")`, "if !b.putBackPiece() {\n\t\t$\n\t}"})
}

// patchConnectionStreams passes stream data on in the packet that they came in.
func patchConnectionStreams(src []byte) ([]byte, error) {
	return patchExternal("connection.go", src,
		change{"Conn", "", "receivedStream"},
		change{"handlePackets", "func", "handleQueuedPackets"},
		change{"handleFrames", "c.frameParser.ParseStreamFrame(frameType, data, c.version)", "c.parseStreamFrame(frameType, data)"},
		change{"handleFrames", "c.streamsMap.HandleStreamFrame(streamFrame, rcvTime)", "c.handleStreamFrame(streamFrame, rcvTime)"})
}

// patchReceiveStream has data read directly, and the reader woken by the connection.
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

// patchPacketFrame has frames refer to the packet that they came in.
func patchPacketFrame(src []byte) ([]byte, error) {
	return patchExternal("stream_frame.go", src, change{"StreamFrame", "", "packetData"})
}

// patchIncomingStreams has the peer told of further streams it may open when that is worth a packet
// (tree/stream_grant.go.txt).
func patchIncomingStreams(src []byte) ([]byte, error) {
	return patchExternal("streams_map_incoming.go", src,
		change{"deleteStream", "maxStream <= protocol.MaxStreamID", "$ && m.worthGranting(maxStream)"})
}
