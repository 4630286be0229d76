package main

// Changes that make sending cheaper (docs/adr/0009-send-path.md). They insert calls to the
// functions in tree/send_direct.go.txt, tree/stream_shared.go.txt, tree/stream_run.go.txt and
// tree/stream_source.go.txt into quic-go's files.

// sendBuffer is the maximum number of bytes passed to sendmsg at once. quic-go's 20 kB hold 14
// packets; the kernel segments up to 64 kB.
const sendBuffer = "62 * 1024"

// patchConnectionSending sends on the connection's own goroutine, in runs of packets. quic-go
// starts a goroutine for c.sendQueue that reads the field only when it runs. With a directSender
// the field may by then hold the queue of a new path, so the patch passes the queue to the
// goroutine.
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

// patchSendStreamSharing lets frames refer to the data of WriteShared, and pulls data from a
// source.
func patchSendStreamSharing(src []byte) ([]byte, error) {
	return patchExternal(
		"send_stream.go",
		src,
		change{"SendStream", "", "sharedWrite"},
		change{"SendStream", "", "sourcedStream"},
		change{
			"popNewStreamFrameForPacket",
			"limitedWrite := s.writeLimiter != nil && s.nextFrame == nil",
			"s.gather(maxBytes, v)\n\t$",
		},
		change{"popNewStreamFrame", "f := wire.GetStreamFrame()", "f := s.newFrame()"},
		change{"popNewStreamFrame", "s.getDataForWriting(f, maxDataLen)", "s.fill(f, maxDataLen)"},
	)
}

// patchStreamFrame splits and puts back frames with shared data without modifying the data.
func patchStreamFrame(src []byte) ([]byte, error) {
	return patchExternal(
		"stream_frame.go",
		src,
		change{"StreamFrame", "", "sharedData"},
		change{
			"MaybeSplitOffFrame",
			"new := GetStreamFrame()",
			"if f.shared {\n\t\treturn f.splitShared(n), true\n\t}\n\n\t$",
		},
		change{"PutBack", "putStreamFrame(f)", "if !f.putBackShared() {\n\t\t$\n\t}"},
	)
}
