package moqt

import (
	"io"
	"time"

	"github.com/quic-go/quic-go"
)

// Source provides the data that SubgroupWriter.Send sends. Its methods are called with transport
// locks held, so they must not block or call the session. Deadline may be called at any time.
type Source interface {
	// Next returns the next bytes, which must not be modified afterwards. No bytes means that more
	// will follow, announced with SubgroupWriter.More. An error is final: io.EOF ends the subgroup.
	Next() ([]byte, error)
	// Deadline returns the time by which the bytes last returned by Next must be sent; zero means
	// none.
	Deadline() time.Time
}

// sourceStream is a stream of the patched quic-go that pulls its data from a source as it builds
// packets (tools/quicpatch/tree/stream_source.go.txt).
type sourceStream interface {
	StartSource(head []byte, source interface {
		Next() ([]byte, error)
		Deadline() time.Time
	}) error
	More()
	Retime()
	WaitSource() error
}

// asSourceStream returns s as a sourceStream, or nil with the published quic-go.
func asSourceStream(s *quic.SendStream) sourceStream {
	q, _ := any(s).(sourceStream)
	return q
}

// wtSource is the QUIC stream under a WebTransport stream. It converts errors to those of the
// WebTransport stream, which carry the session's error.
type wtSource struct {
	sourceStream
	s wtSend
}

func (w wtSource) StartSource(head []byte, source interface {
	Next() ([]byte, error)
	Deadline() time.Time
},
) error {
	if len(head) > 0 { // follows the WebTransport stream header
		if _, err := w.s.Write(head); err != nil {
			return err
		}
		w.s.setReliable()
	}
	return w.streamError(w.sourceStream.StartSource(nil, source))
}

func (w wtSource) WaitSource() error { return w.streamError(w.sourceStream.WaitSource()) }

func (w wtSource) streamError(err error) error {
	if err == nil {
		return nil
	}
	if _, e := w.s.Write(nil); e != nil {
		return e
	}
	return err
}

// Send sends the data of src and waits until it is sent. If it returns nil, call Close; if it
// returns an error of src, call Reset. If data misses its deadline, Send resets the stream and
// returns ErrDeliveryTimeout.
//
// With the patched quic-go no goroutine wakes up for further data: the transport pulls it from src
// as it builds packets.
func (w *SubgroupWriter) Send(src Source) error {
	w.mu.Lock()
	w.src = src
	if w.pull == nil {
		w.mu.Unlock()
		return w.copy(src)
	}
	err := w.pull.StartSource(w.header, src)
	if err == nil {
		w.header = nil
	}
	w.mu.Unlock()
	if err == nil {
		err = w.pull.WaitSource()
	}
	return w.writeError(err)
}

// More announces that the source has more data. It may be called at any time, but not while holding
// a lock that the source takes.
func (w *SubgroupWriter) More() {
	if w.pull != nil {
		w.pull.More()
		return
	}
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// Retime announces that the source has more data or a new deadline. The rules of More apply.
func (w *SubgroupWriter) Retime() {
	if w.pull != nil {
		w.pull.Retime()
		return
	}
	w.mu.Lock()
	src := w.src
	w.mu.Unlock()
	if src != nil {
		w.SetDeadline(src.Deadline())
	}
	w.More()
}

// copy implements Send for transports without sources.
func (w *SubgroupWriter) copy(src Source) error {
	for {
		b, err := src.Next()
		if len(b) > 0 {
			w.SetDeadline(src.Deadline())
			if err := w.flush(b, w.str.Write); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case len(b) > 0:
			continue
		}
		w.SetDeadline(time.Time{})
		select {
		case <-w.more:
		case <-w.str.Context().Done():
			return w.flush([]byte{0}, w.str.Write) // fails with the cause
		}
	}
}
