package moqt

import (
	"errors"
	"io"
	"runtime"
	"testing"

	"holocast/internal/moqt/wire"
)

// benchSubscription returns one subscription over loopback.
func benchSubscription(b *testing.B, scheme string) (*pair, *Subscription, *Publication) {
	b.Helper()
	pubs := make(chan *Publication, 1)
	p := connect(b, scheme, Handler{}, source(pubs, TrackInfo{}))
	sub, err := p.client.Subscribe(b.Context(), testTrack, SubscribeOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return p, sub, <-pubs
}

// BenchmarkFrames sends point-cloud frames, each as a 400 kB group.
func BenchmarkFrames(b *testing.B) {
	for _, scheme := range transports {
		b.Run(scheme, func(b *testing.B) {
			_, sub, pub := benchSubscription(b, scheme)
			frame := make([]byte, 400_000)
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			b.ResetTimer()
			go func() {
				for g := range uint64(b.N) {
					w, err := pub.OpenSubgroup(wire.SubgroupHeader{Group: g})
					if err == nil {
						err = w.WriteObject(Object{}, frame)
					}
					if err == nil {
						err = w.Close()
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			}()
			var buf []byte
			for range b.N {
				r, err := sub.AcceptSubgroup(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				if _, err = r.NextObject(); err == nil {
					buf, err = r.ReadPayload(buf, len(frame))
				}
				if err == nil {
					_, err = r.NextObject()
				}
				if err != io.EOF {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSmallObjects sends 100-byte objects in one subgroup.
func BenchmarkSmallObjects(b *testing.B) {
	for _, scheme := range transports {
		b.Run(scheme, func(b *testing.B) {
			_, sub, pub := benchSubscription(b, scheme)
			payload := make([]byte, 100)
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			b.ResetTimer()
			go func() {
				w, err := pub.OpenSubgroup(wire.SubgroupHeader{})
				for id := uint64(0); id < uint64(b.N) && err == nil; id++ {
					err = w.WriteObject(Object{ID: id}, payload)
				}
				if err == nil {
					err = w.Close()
				}
				if err != nil {
					b.Error(err)
				}
			}()
			r, err := sub.AcceptSubgroup(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			var buf []byte
			for range b.N {
				if _, err = r.NextObject(); err == nil {
					buf, err = r.ReadPayload(buf, len(payload))
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDatagrams sends 200-byte objects as datagrams at full speed, and reports the fraction
// that arrives.
func BenchmarkDatagrams(b *testing.B) {
	for _, scheme := range transports {
		b.Run(scheme, func(b *testing.B) {
			p, sub, pub := benchSubscription(b, scheme)
			payload := make([]byte, 200)
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			b.ResetTimer()
			arrived := make(chan int)
			go func() {
				n := 0
				for {
					d, err := sub.AcceptDatagram(b.Context())
					if err != nil || d.EndOfGroup {
						arrived <- n
						return
					}
					n++
				}
			}()
			for i := range uint64(b.N) {
				for {
					err := pub.SendDatagram(Datagram{Group: i, Payload: payload})
					if err == nil {
						break
					}
					if !errors.Is(err, ErrQueueFull) {
						b.Fatal(err)
					}
					runtime.Gosched()
				}
			}
			for done := false; !done; { // the last object may be lost too
				_ = pub.SendDatagram(Datagram{Group: uint64(b.N), EndOfGroup: true})
				select {
				case n := <-arrived:
					b.ReportMetric(float64(n)/float64(b.N), "arrived/op")
					done = true
				case <-p.ctx.Done():
					b.Fatal("no datagram arrives")
				default:
				}
			}
		})
	}
}
