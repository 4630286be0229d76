package qmux

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"

	"holocast/internal/qmux/qmuxtest"
)

// hello are the parameters of a hostile client.
var hello = frame{typ: typeParameters, data: parameters{
	data: 1 << 20, uni: 1 << 20, bidiLocal: 1 << 20, bidiRemote: 1 << 20, streamsBidi: 10, streamsUni: 10,
	record: defaultRecord,
}.encode()}

// TestViolations checks the error of each violation by a client.
func TestViolations(t *testing.T) {
	const window = 10_000
	stream := func(id, offset uint64, n int) frame {
		return frame{typ: typeStream, id: id, value: offset, data: make([]byte, n)}
	}
	fin := func(f frame) frame {
		f.fin = true
		return f
	}
	tests := []struct {
		name   string
		frames []frame
		want   quic.TransportErrorCode
	}{
		{"no parameters", []frame{{typ: typeMaxData, value: 1}}, quic.ProtocolViolation},
		{"parameters twice", []frame{hello, hello}, quic.ProtocolViolation},
		{"malformed parameters", []frame{{typ: typeParameters, data: []byte{4}}}, quic.TransportParameterError},
		{"window of a stream", []frame{hello, stream(2, 0, 5001)}, quic.FlowControlError},
		{
			"window of the connection",
			[]frame{hello, stream(2, 0, 5000), stream(6, 0, 5000), stream(10, 0, 1)},
			quic.FlowControlError,
		},
		{
			"window by a reset",
			[]frame{hello, {typ: typeReset, id: 2, value: 5001}},
			quic.FlowControlError,
		},
		{"too many streams", []frame{hello, stream(4*8+2, 0, 1)}, quic.StreamLimitError},
		{"too many requests", []frame{hello, stream(4*8, 0, 1)}, quic.StreamLimitError},
		{"huge stream ID", []frame{hello, stream(1<<61, 0, 1)}, quic.StreamLimitError},
		{"gap", []frame{hello, stream(2, 1, 1)}, quic.ProtocolViolation},
		{"repeated data", []frame{hello, stream(2, 0, 2), stream(2, 1, 2)}, quic.ProtocolViolation},
		{"data after FIN", []frame{hello, fin(stream(2, 0, 1)), stream(2, 1, 1)}, quic.FinalSizeError},
		{"reset below the size", []frame{hello, stream(2, 0, 9), {typ: typeReset, id: 2, value: 8}}, quic.FinalSizeError},
		{"two resets", []frame{hello, {typ: typeReset, id: 2}, {typ: typeReset, id: 2}}, quic.FinalSizeError},
		{"data on our stream", []frame{hello, stream(3, 0, 1)}, quic.StreamStateError},
		{"data on a stream that is not open", []frame{hello, stream(1, 0, 1)}, quic.StreamStateError},
		{"stop of its own stream", []frame{hello, {typ: typeStopSending, id: 2}}, quic.StreamStateError},
		{"credit for a stream that is not open", []frame{hello, {typ: typeMaxStreamData, id: 3}}, quic.StreamStateError},
		{"answer to no ping", []frame{hello, {typ: typePong, value: 1 << 40}}, quic.ProtocolViolation},
		{"pings out of order", []frame{hello, {typ: typePing, value: 5}, {typ: typePing, value: 5}}, quic.ProtocolViolation},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := qmuxtest.New(0, 0)
				c := Server(b, Config{Streams: 8, Window: window, StreamWindow: window / 2})
				for _, f := range tt.frames {
					_ = a.Send(f.append(nil))
				}
				<-c.Context().Done()
				var te *quic.TransportError
				if err := context.Cause(c.Context()); !errors.As(err, &te) || te.ErrorCode != tt.want || te.Remote {
					t.Errorf("closed with %v, want %v", err, tt.want)
				}
				// The client learns why.
				for {
					record, err := a.Receive()
					if err != nil {
						t.Fatal("no CONNECTION_CLOSE")
					}
					list, _ := parseRecord(record)
					if last := list[len(list)-1]; last.typ == typeClose {
						if quic.TransportErrorCode(last.code) != tt.want {
							t.Errorf("CONNECTION_CLOSE with %#x", last.code)
						}
						break
					}
				}
				time.Sleep(2 * closeWait)
			})
		})
	}
}

// TestFlood sends a server what costs the sender little, and checks that it stays small and works.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := qmuxtest.New(0, 0)
		c := Server(b, Config{Streams: 8, Window: 10_000, StreamWindow: 5000})
		_ = a.Send(hello.append(nil))
		var record []byte
		for i := range uint64(1000) {
			record = frame{typ: typePing, value: 2*i + 1}.append(record[:0])
			record = frame{typ: typeMaxData, value: i}.append(record)
			record = frame{typ: typeDataBlocked, value: i}.append(record)
			record = frame{typ: typeStream, id: 2}.append(record)
			record = frame{typ: typeDatagram, data: make([]byte, 1000)}.append(record)
			record = frame{typ: typeDatagram, data: make([]byte, 1000)}.append(record)
			record = frame{typ: typeDatagram, data: make([]byte, 1000)}.append(record)
			_ = a.Send(record)
		}
		synctest.Wait()
		c.mu.Lock()
		if c.incomingBytes > maxDatagramsInBytes || len(c.incoming) > maxDatagramsIn || len(c.receives) != 1 {
			t.Errorf("%d bytes of %d datagrams, %d streams", c.incomingBytes, len(c.incoming), len(c.receives))
		}
		c.mu.Unlock()
		// Streams that are reset at once are not replaced before the application takes them.
		for i := range uint64(8) {
			_ = a.Send(frame{typ: typeReset, id: 4*i + 2}.append(nil))
		}
		synctest.Wait()
		c.mu.Lock()
		if c.maxAccept[uni] != 8 {
			t.Errorf("the client may open %d streams", c.maxAccept[uni])
		}
		c.mu.Unlock()
		str := must(c.AcceptUniStream(t.Context()))(t)
		if _, err := io.ReadAll(str); err == nil {
			t.Error("a reset stream was read")
		}
		_ = c.CloseWithError(0, "")
		time.Sleep(2 * closeWait)
	})
}

// TestPeerThatDoesNotRead checks that a peer that stops reading delays neither Close nor a deadline.
func TestPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := qmuxtest.New(1, 0)
		a.Rate = 0 // b sends a byte per second
		c := Server(b, Config{})
		_ = a.Send(hello.append(nil))
		str := must(c.OpenUniStreamSync(t.Context()))(t)
		_ = str.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := str.Write(make([]byte, 1<<20)); err == nil {
			t.Error("the data was taken")
		}
		_ = c.CloseWithError(0, "")
		time.Sleep(2 * closeWait)
		select {
		case <-b.Done():
		default:
			t.Error("the link is open")
		}
	})
}
