package moqt

import (
	"io"
	"time"

	"github.com/quic-go/quic-go"
)

// Source is what SubgroupWriter.Send sends. Its methods are called with locks of the transport
// held: they return at once, and call nothing of the session. Deadline may be called at any time.
type Source interface {
	// Next returns the bytes that follow, which nobody changes any more; none where more is to
	// come, of which SubgroupWriter.More tells. With an error nothing follows: io.EOF is the end
	// of the subgroup.
	Next() ([]byte, error)
	// Deadline is by when the bytes that Next returned last are to be sent; zero = any time.
	Deadline() time.Time
}

// sourced is a stream of the patched quic-go, whose packets take their data from a source
// (tools/quicpatch/tree/stream_source.go.txt).
type sourced interface {
	StartSource(head []byte, source interface {
		Next() ([]byte, error)
		Deadline() time.Time
	}) error
	More()
	Retime()
	WaitSource() error
}

// asSourced is the stream itself where the patched quic-go made it, otherwise nil.
func asSourced(s *quic.SendStream) sourced {
	q, _ := any(s).(sourced)
	return q
}

// wtSource is the QUIC stream below a WebTransport stream. Errors are left to the latter: they are
// the session's.
type wtSource struct {
	sourced
	s wtSend
}

func (w wtSource) StartSource(head []byte, source interface {
	Next() ([]byte, error)
	Deadline() time.Time
},
) error {
	if len(head) > 0 { // behind WebTransport's own
		if _, err := w.s.Write(head); err != nil {
			return err
		}
		w.s.setReliable()
	}
	return w.failed(w.sourced.StartSource(nil, source))
}

func (w wtSource) WaitSource() error { return w.failed(w.sourced.WaitSource()) }

func (w wtSource) failed(err error) error {
	if err == nil {
		return nil
	}
	if _, e := w.s.Write(nil); e != nil {
		return e
	}
	return err
}

// Send sends what src has, and waits until that is sent. Close is to be called when it returns no
// error, and Reset when it returns src's. When bytes are not sent by their deadline it resets the
// stream and fails with ErrDeliveryTimeout.
//
// With the patched quic-go nobody is woken for what follows: the transport asks src for it as it makes
// packets.
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
	return w.failed(err)
}

// More says that the source of Send has more. It may be called at any time, by anybody who holds no
// lock that the source takes.
func (w *SubgroupWriter) More() {
	if w.pull != nil {
		w.pull.More()
		return
	}
	select {
	case w.grown <- struct{}{}:
	default:
	}
}

// Retime says that the source of Send has more or another deadline. It may be called as More.
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

// copy is Send where the transport takes no source.
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
		case <-w.grown:
		case <-w.str.Context().Done():
			return w.flush([]byte{0}, w.str.Write) // fails, and says why
		}
	}
}
