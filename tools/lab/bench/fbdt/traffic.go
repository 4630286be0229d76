package fbdt

import (
	"encoding/binary"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"holocast/tools/lab/bench/internal/quantile"
)

// receiver reads windows. Each begins with its number and the time it was sent, in ns since the receiver began.
type receiver struct {
	began time.Time
	bytes atomic.Int64
	sent  atomic.Int64 // windows

	mu      sync.Mutex
	windows map[uint64]window
}

// window holds the times at which a window was sent and arrived; arrived is 0 until then.
type window struct{ sent, arrived time.Duration }

func newReceiver() *receiver { return &receiver{began: time.Now(), windows: map[uint64]window{}} }

// window returns the next window to send, n bytes long.
func (r *receiver) window(n int) []byte {
	b := make([]byte, n)
	number, now := uint64(r.sent.Add(1)-1), time.Since(r.began)
	binary.BigEndian.PutUint64(b, number)
	binary.BigEndian.PutUint64(b[8:], uint64(now))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.windows[number] = window{sent: now}
	return b
}

// read reads one window of len(buf) bytes and records its arrival.
func (r *receiver) read(from io.Reader, buf []byte) error {
	for at := 0; at < len(buf); {
		n, err := from.Read(buf[at:])
		at += n
		r.bytes.Add(int64(n))
		if err != nil && at < len(buf) {
			return err
		}
	}
	number, sent := binary.BigEndian.Uint64(buf), time.Duration(binary.BigEndian.Uint64(buf[8:]))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.windows[number] = window{sent, time.Since(r.began)}
	return nil
}

// delays returns the times from sending to in-order delivery, in ms, of the windows sent between from and to. A
// window that has not arrived by end counts as arriving then; missing is the number of such windows.
func (r *receiver) delays(from, to, end time.Duration) (ms []float64, missing int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := time.Duration(0)
	for number := range uint64(r.sent.Load()) {
		w := r.windows[number]
		if w.arrived == 0 {
			w.arrived = end
			if w.sent >= from && w.sent < to {
				missing++
			}
		}
		before = max(before, w.arrived)
		if w.sent >= from && w.sent < to {
			ms = append(ms, float64(before-w.sent)/1e6)
		}
	}
	return ms, missing
}

// Delivery holds the delivery times of windows.
type Delivery struct {
	Windows int     `json:"windows"`
	Missing int     `json:"missing"` // not delivered by the end
	P50Ms   float64 `json:"p50_ms"`
	P95Ms   float64 `json:"p95_ms"`
	P99Ms   float64 `json:"p99_ms"`

	ms []float64
}

func deliveryOf(ms []float64, missing int) Delivery {
	return Delivery{
		len(ms), missing, quantile.Of(ms, 0.5), quantile.Of(ms, 0.95), quantile.Of(ms, 0.99), ms,
	}
}
