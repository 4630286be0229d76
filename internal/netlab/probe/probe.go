//go:build linux

// Package probe measures a path with timestamped UDP packets. Sender and receiver run on one
// machine and share a clock; the kernel timestamps arrivals.
package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

const (
	header  = 16 // payload: send time, UNIX ns u64; sequence number u64
	batch   = 64 // packets per system call
	maxSize = 1472
	// pause is the sender's sleep between bursts of due packets.
	pause = 100 * time.Microsecond
)

// A Flow is a stream of packets at a constant rate.
type Flow struct {
	Send, Receive *net.UDPConn // opened in their namespaces
	To            netip.AddrPort
	Size          int     // bytes of UDP payload, 16 to 1472
	PacketRate    float64 // packets per second
	Duration      time.Duration
	Linger        time.Duration // time to wait for packets in flight
}

// A Result reports the outcome of a flow.
type Result struct {
	Sent      uint64 `json:"sent"`
	Received  uint64 `json:"received"`
	Reordered uint64 `json:"reordered"` // arrived after a packet sent later
	Refused   uint64 `json:"refused"`   // rejected by the sender's kernel
	// Packets received per second: the median over intervals of 0.1 s between the first and the
	// last arrival, so that pauses of the sender do not count.
	PacketRate float64 `json:"packets_per_s"`
	// One-way delay in milliseconds, from the sender's system call to the kernel's receive
	// timestamp.
	DelayMin float64 `json:"delay_min_ms"`
	DelayP50 float64 `json:"delay_p50_ms"`
	DelayP99 float64 `json:"delay_p99_ms"`
	DelayMax float64 `json:"delay_max_ms"`
}

// Listen opens a socket for a flow in the namespace of the calling thread.
func Listen(ctx context.Context, address netip.AddrPort) (*net.UDPConn, error) {
	config := net.ListenConfig{}
	c, err := config.ListenPacket(ctx, "udp4", address.String())
	if err != nil {
		return nil, err
	}
	conn := c.(*net.UDPConn)
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = errors.Join(
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20),
		)
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, errors.Join(fmt.Errorf("probe socket: %w", err), conn.Close())
	}
	return conn, nil
}

// Run sends the flow and reports the arrivals. If ctx is cancelled early, the report covers the
// packets so far.
func (f Flow) Run(ctx context.Context) (Result, error) {
	if f.Size < header || f.Size > maxSize {
		return Result{}, fmt.Errorf("probe: payload of %d bytes, want %d to %d", f.Size, header, maxSize)
	}
	type arrived struct {
		r   Result
		err error
	}
	received := make(chan arrived, 1)
	if err := f.Receive.SetReadDeadline(time.Time{}); err != nil {
		return Result{}, err
	}
	go func() {
		r, err := f.receive()
		received <- arrived{r, err}
	}()
	sent, refused, err := f.send(ctx)
	if deadline := f.Receive.SetReadDeadline(time.Now().Add(f.Linger)); deadline != nil {
		return Result{}, deadline
	}
	a := <-received
	a.r.Sent, a.r.Refused = sent, refused
	return a.r, errors.Join(err, a.err)
}

func (f Flow) send(ctx context.Context) (sent, refused uint64, err error) {
	conn := ipv4.NewPacketConn(f.Send)
	to := net.UDPAddrFromAddrPort(f.To)
	messages := make([]ipv4.Message, batch)
	for i := range messages {
		messages[i] = ipv4.Message{Buffers: [][]byte{make([]byte, f.Size)}, Addr: to}
	}
	for start := time.Now(); ctx.Err() == nil; {
		elapsed := time.Since(start)
		if elapsed >= f.Duration {
			break
		}
		due := uint64(elapsed.Seconds()*f.PacketRate) + 1
		if due <= sent {
			time.Sleep(pause)
			continue
		}
		n := int(min(due-sent, batch))
		for i := range n {
			binary.LittleEndian.PutUint64(messages[i].Buffers[0], uint64(time.Now().UnixNano()))
			binary.LittleEndian.PutUint64(messages[i].Buffers[0][8:], sent+uint64(i))
		}
		done, err := conn.WriteBatch(messages[:n], 0)
		if err != nil {
			if !errors.Is(err, unix.ENOBUFS) {
				return sent, refused, fmt.Errorf("probe: %w", err)
			}
			refused++
			done = 1
		}
		sent += uint64(done)
	}
	return sent, refused, nil
}

func (f Flow) receive() (r Result, err error) {
	conn := ipv4.NewPacketConn(f.Receive)
	messages := make([]ipv4.Message, batch)
	for i := range messages {
		messages[i] = ipv4.Message{Buffers: [][]byte{make([]byte, maxSize)}, OOB: make([]byte, 64)}
	}
	var delays []time.Duration
	var arrivals []int64
	highest := uint64(0)
	for {
		n, err := conn.ReadBatch(messages, 0)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return r, fmt.Errorf("probe: %w", err)
		}
		for _, m := range messages[:n] {
			at, ok := stamp(m.OOB[:m.NN])
			if m.N != f.Size || !ok {
				continue // another flow's packet
			}
			payload := m.Buffers[0]
			number := binary.LittleEndian.Uint64(payload[8:])
			if number < highest {
				r.Reordered++
			}
			highest = max(highest, number)
			delays = append(delays, time.Duration(at-int64(binary.LittleEndian.Uint64(payload))))
			arrivals = append(arrivals, at)
		}
	}
	r.Received = uint64(len(delays))
	if len(delays) == 0 {
		return r, nil
	}
	r.PacketRate = medianRate(arrivals, 100*time.Millisecond)
	slices.Sort(delays)
	at := func(share float64) float64 { return float64(delays[int(share*float64(len(delays)-1))]) / 1e6 }
	r.DelayMin, r.DelayP50, r.DelayP99, r.DelayMax = at(0), at(0.5), at(0.99), at(1)
	return r, nil
}

// medianRate returns the median number of arrivals per second over the whole intervals that
// arrivals span, or 0 if they span none. Times are nanoseconds, nearly in order.
func medianRate(arrivals []int64, interval time.Duration) float64 {
	first, last := slices.Min(arrivals), slices.Max(arrivals)
	counts := make([]int, (last-first)/int64(interval))
	if len(counts) == 0 {
		return 0
	}
	for _, at := range arrivals {
		if i := (at - first) / int64(interval); i < int64(len(counts)) {
			counts[i]++
		}
	}
	slices.Sort(counts)
	return float64(counts[len(counts)/2]) / interval.Seconds()
}

// stamp returns the SCM_TIMESTAMPNS timestamp in a message's control data, in UNIX ns.
func stamp(oob []byte) (int64, bool) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0, false
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS &&
			len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
			t := (*unix.Timespec)(unsafe.Pointer(&m.Data[0]))
			return t.Nano(), true
		}
	}
	return 0, false
}
