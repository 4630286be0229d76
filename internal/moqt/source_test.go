package moqt

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"holocast/internal/moqt/wire"
)

// bits is a source that returns the pieces of list one by one.
type bits struct {
	mu   sync.Mutex
	list [][]byte
	err  error // returned after the pieces
	by   time.Time
}

func (b *bits) Next() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.list) == 0 {
		return nil, b.err
	}
	first := b.list[0]
	b.list = b.list[1:]
	return first, nil
}

func (b *bits) Deadline() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.by
}

func (b *bits) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// forSenders runs f with streams that pull from a source, if the build supports them, and with
// streams that are written to.
func forSenders(
	t *testing.T,
	f func(t *testing.T, p *pair, sub *Subscription, open func(group uint64) *SubgroupWriter),
) {
	for _, name := range []string{"pulled", "written"} {
		t.Run(name, func(t *testing.T) {
			forTransports(t, func(t *testing.T, connect func(client, server Handler) *pair) {
				p, sub, pub := subscribed(t, connect, TrackInfo{}, SubscribeOptions{})
				f(t, p, sub, func(group uint64) *SubgroupWriter {
					w, err := pub.OpenSubgroup(wire.SubgroupHeader{Group: group})
					if err != nil {
						t.Fatal(err)
					}
					if name == "written" {
						w.pull = nil
					}
					return w
				})
			})
		})
	}
}

// TestSend checks that all data of a source arrive.
func TestSend(t *testing.T) {
	forSenders(t, func(t *testing.T, p *pair, sub *Subscription, open func(group uint64) *SubgroupWriter) {
		payload := bytes.Repeat([]byte("0123456789"), 10_000)
		header, err := new(wire.ObjectEncoder).Append(nil, Object{PayloadLength: uint64(len(payload))})
		if err != nil {
			t.Fatal(err)
		}
		w, src := open(5), &bits{list: [][]byte{header[:1]}, by: time.Now().Add(time.Hour)}
		go func() {
			for rest := append(header[1:], payload...); len(rest) > 0; {
				n := min(1+len(rest)/3, len(rest))
				src.change(func() { src.list = append(src.list, rest[:n]) })
				rest = rest[n:]
				w.More()
			}
			src.change(func() { src.err = io.EOF })
			w.More()
		}()
		sent := make(chan error, 1)
		go func() { sent <- errors.Join(w.Send(src), w.Close()) }()
		r, err := sub.AcceptSubgroup(p.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.NextObject(); err != nil || r.Group != 5 {
			t.Fatalf("group %d: %v", r.Group, err)
		}
		if got, err := r.ReadPayload(nil, 1<<20); err != nil || !bytes.Equal(got, payload) {
			t.Errorf("%d of %d bytes: %v", len(got), len(payload), err)
		}
		if _, err := r.NextObject(); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		w.More() // late, without effect
	})
}

// TestSendFails checks that Send returns the error that ended its source early, and that the
// subscriber can identify the subgroup.
func TestSendFails(t *testing.T) {
	gone := errors.New("no longer kept")
	for name, c := range map[string]struct {
		size int
		do   func(w *SubgroupWriter, src *bits)
		want error
		code wire.StreamCode
	}{
		"source": {10, func(w *SubgroupWriter, src *bits) {
			src.change(func() { src.err = gone })
			w.More()
		}, gone, wire.StreamTooFarBehind},
		"abort": {
			10, func(w *SubgroupWriter, _ *bits) { w.Abort(wire.StreamTooFarBehind) },
			&StreamError{Code: wire.StreamTooFarBehind}, wire.StreamTooFarBehind,
		},
		"deadline": {
			1 << 24, func(w *SubgroupWriter, src *bits) { src.change(func() { src.by = time.Now() }); w.Retime() },
			ErrDeliveryTimeout, wire.StreamDeliveryTimeout,
		},
	} {
		t.Run(name, func(t *testing.T) {
			forSenders(t, func(t *testing.T, p *pair, sub *Subscription, open func(group uint64) *SubgroupWriter) {
				w, src := open(7), &bits{list: [][]byte{make([]byte, c.size)}}
				sent := make(chan error, 1)
				go func() {
					err := w.Send(src)
					if errors.Is(err, gone) {
						w.Reset(wire.StreamTooFarBehind)
					}
					sent <- err
				}()
				r, err := sub.AcceptSubgroup(p.ctx)
				if err != nil || r.Group != 7 {
					t.Fatalf("subgroup %+v, %v", r, err)
				}
				c.do(w, src)
				if err := <-sent; !errors.Is(err, c.want) && err.Error() != c.want.Error() {
					t.Errorf("Send: %v, want %v", err, c.want)
				}
				for err == nil {
					_, err = r.ReadRaw(make([]byte, 1<<16))
				}
				var e *StreamError
				if !errors.As(err, &e) || e.Code != c.code || !e.Remote {
					t.Errorf("the subscriber reads %v, want code %v", err, c.code)
				}
			})
		})
	}
}
