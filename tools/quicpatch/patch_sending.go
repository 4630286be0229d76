package main

// What makes sending cheaper (docs/adr/0009-send-path.md): where quic-go's files call
// tree/send_direct.go.txt, tree/stream_shared.go.txt, tree/stream_run.go.txt and tree/stream_source.go.txt.

// sendBuffer is what one call of sendmsg may send. quic-go's 20 kB are 14 packets; the kernel
// segments up to 64 kB.
const sendBuffer = "62 * 1024"

// patchConnectionSending has connections send on their own goroutine, and packets in runs.
// quic-go's goroutine for a send queue looks up which one when it runs; only quic-go's own queue
// keeps the connection from having another one, of a new path, by then.
func patchConnectionSending(src []byte) ([]byte, error) {
	const (
		queue  = "newSendQueue(c.conn)"
		direct = "newDirectSender(c.conn, c.destroyImpl)"
		later  = "go func() {\n\t\tif err := c.sendQueue.Run(); err != nil {\n\t\t\tc.destroyImpl(err)\n\t\t}\n\t}()"
		now    = "go func(s sender) {\n\t\tif err := s.Run(); err != nil {\n\t\t\tc.destroyImpl(err)\n\t\t}\n\t}(c.sendQueue)"
	)
	return patchExternal("connection.go", src,
		change{"preSetup", queue, direct},
		change{"switchToNewPath", queue, direct},
		change{"run", later, now},
		change{"switchToNewPath", later, now},
		change{"sendPacketsWithGSO", "c.appendOneShortHeaderPacket", "c.appendShortHeaderPackets"})
}

// patchSendStreamSharing has frames refer to what WriteShared was given, and take what a source has.
func patchSendStreamSharing(src []byte) ([]byte, error) {
	return patchExternal("send_stream.go", src,
		change{"SendStream", "", "sharedWrite"},
		change{"SendStream", "", "sourcedStream"},
		change{"popNewStreamFrameForPacket", "limitedWrite := s.writeLimiter != nil && s.nextFrame == nil", "s.gather(maxBytes, v)\n\t$"},
		change{"popNewStreamFrame", "f := wire.GetStreamFrame()", "f := s.newFrame()"},
		change{"popNewStreamFrame", "s.getDataForWriting(f, maxDataLen)", "s.fill(f, maxDataLen)"})
}

// patchStreamFrame has frames whose data are shared split and put back without touching it.
func patchStreamFrame(src []byte) ([]byte, error) {
	return patchExternal("stream_frame.go", src,
		change{"StreamFrame", "", "sharedData"},
		change{"MaybeSplitOffFrame", "new := GetStreamFrame()", "if f.shared {\n\t\treturn f.splitShared(n), true\n\t}\n\n\t$"},
		change{"PutBack", "putStreamFrame(f)", "if !f.putBackShared() {\n\t\t$\n\t}"})
}
