package main

import (
	"encoding/binary"
	"net"
	"testing"
	"time"
)

// TestPath sends numbered packets to a server that echoes the sender's address, until every kind of
// impairment has occurred.
func TestPath(t *testing.T) {
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for b := make([]byte, 100); ; {
			n, from, err := server.ReadFromUDP(b)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDP(append(b[:n], from.String()...), from)
		}
	}()
	p, err := listen("127.0.0.1:0", server.LocalAddr().String(), conditions{0.1, 0.1, 0.1, 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	client, err := net.DialUDP("udp", nil, p.front.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	seen, last := map[uint32]int{}, uint32(0)
	addresses := map[string]bool{}
	var twice, late, sent uint32
	b := make([]byte, 200)
	for end := time.Now().Add(time.Minute); twice == 0 || late == 0 || len(addresses) < 3 || p.lost.Load() == 0; {
		if time.Now().After(end) {
			t.Fatalf("after %d packets: %d addresses, %d twice, %d late; %v", sent, len(addresses), twice, late, p)
		}
		sent++
		if _, err := client.Write(binary.BigEndian.AppendUint32(nil, sent)); err != nil {
			t.Fatal(err)
		}
		_ = client.SetReadDeadline(time.Now().Add(time.Millisecond))
		n, err := client.Read(b)
		if err != nil {
			continue
		}
		number := binary.BigEndian.Uint32(b)
		addresses[string(b[4:n])] = true
		if seen[number]++; seen[number] > 1 {
			twice++
		} else if number < last {
			late++
		}
		last = max(last, number)
	}
}
