//go:build linux

package study

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"syscall"
	"time"
)

// UDP packets hold a header (segment u32, offset u32, length u32, capture time u64) and the payload.
const (
	udpHeader  = 20
	udpPayload = 1400 // with the header
)

// openUDP sends segments in packets, at rate bit/s, or without pauses for rate 0.
func (t *transfer) openUDP(rate float64) error {
	server, client, err := t.udpSockets()
	if err != nil {
		return err
	}
	for _, c := range []*net.UDPConn{server, client} {
		raw, err := c.SyscallConn()
		if err != nil {
			return err
		}
		if err := control(t.buffers)("", "", raw); err != nil {
			return err
		}
	}
	t.began = time.Now()
	if _, err := client.WriteToUDPAddrPort([]byte("get"), t.address()); err != nil {
		return err
	}
	var request [8]byte
	if err := server.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	_, to, err := server.ReadFromUDPAddrPort(request[:])
	if err != nil {
		return err
	}
	t.working.Go(func() { t.receiveUDP(client) })
	number, next := uint32(0), time.Now()
	t.send = func(ctx context.Context, segment []byte) error {
		number++
		packet := make([]byte, udpPayload)
		if now := time.Now(); next.Before(now) {
			next = now
		}
		for at := 0; at < len(segment) && ctx.Err() == nil; {
			n := copy(packet[udpHeader:], segment[at:])
			binary.BigEndian.PutUint32(packet, number)
			binary.BigEndian.PutUint32(packet[4:], uint32(at))
			binary.BigEndian.PutUint32(packet[8:], uint32(len(segment)))
			copy(packet[12:], segment[:8])
			if rate > 0 {
				next = next.Add(time.Duration(8e9 * float64(n) / rate))
				// Sleeps are coarse: packets leave in groups of a few.
				if wait := time.Until(next); wait > 100*time.Microsecond {
					time.Sleep(wait)
				}
			}
			_, err := server.WriteToUDPAddrPort(packet[:udpHeader+n], to)
			if err != nil && !errors.Is(err, syscall.ENOBUFS) { // a full queue loses the packet
				return err
			}
			at += n
		}
		return ctx.Err()
	}
	return nil
}

func (t *transfer) receiveUDP(c *net.UDPConn) {
	buf := make([]byte, 2048)
	have := map[uint32]int{} // bytes by segment
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if n < udpHeader {
			continue
		}
		payload := n - udpHeader
		t.sink.count(payload)
		number := binary.BigEndian.Uint32(buf)
		have[number] += payload
		if have[number] == int(binary.BigEndian.Uint32(buf[8:])) {
			delete(have, number)
			t.sink.complete(buf[12:20])
		}
	}
}
