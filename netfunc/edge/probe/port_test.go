//go:build linux

package probe

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"holocast/internal/testlog"
)

// A port in use is logged once, and probing starts when it is free.
func TestPortInUse(t *testing.T) {
	taken, err := net.ListenUDP("udp4", &net.UDPAddr{})
	if err != nil {
		t.Fatal(err)
	}
	port := taken.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	var log testlog.Buffer
	p := &Prober{
		Path: 1, Interface: "lo", Peer: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port),
		Every: 10 * time.Millisecond, Timeout: time.Second, Log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { p.Run(ctx) })
	defer wg.Wait()
	defer stop()
	said := func() int { return strings.Count(log.String(), "probe.port") }
	wait := func(what string, is func() bool) {
		for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not in time: %s\n%s", what, log.String())
			}
		}
	}
	wait("the warning", func() bool { return said() > 0 })
	time.Sleep(2 * reopenAfter)
	_ = taken.Close()
	wait("probes are sent", func() bool { return p.Stats().Sent > 0 })
	if said() != 1 {
		t.Errorf("said %d times:\n%s", said(), log.String())
	}
}
