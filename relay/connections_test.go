//go:build linux && (amd64 || arm64)

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/relay/steer"
)

// BenchmarkConnections opens and closes concurrent sessions at a listener with one socket, and at
// one with two sockets, one per processor. Clients and listener share the process.
func BenchmarkConnections(b *testing.B) {
	for _, n := range []int{1, 2} {
		b.Run(fmt.Sprint("sockets=", n), func(b *testing.B) {
			cert, err := devcert.Generate(time.Now(), "127.0.0.1")
			if err != nil {
				b.Fatal(err)
			}
			group, err := steer.Listen("127.0.0.1:0", n, nil)
			if err != nil {
				b.Fatal(err)
			}
			if err := group.Off(); err != nil {
				b.Skip(err)
			}
			addr := group.Sockets()[0].Conn.LocalAddr().String()
			defer group.Close()
			cfg := moqt.ListenConfig{
				Config: quiet,
				TLS:    &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13},
			}
			if cfg.Sockets = group.Sockets(); n == 1 { // the group has two
				group.Close()
				cfg.Sockets = nil
			}
			ln, err := moqt.Listen(addr, cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = ln.Close() }()
			go func() {
				for {
					s, err := ln.Accept(context.Background())
					if err != nil {
						return
					}
					s.Serve(moqt.Handler{})
				}
			}()
			server := ln.Addr().(*net.UDPAddr)
			conf := devcert.Pinned(devcert.Hash(cert))
			conf.NextProtos = []string{wire.ALPN}
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					socket, err := net.ListenUDP("udp", nil)
					if err != nil {
						b.Error(err)
						return
					}
					tr := &quic.Transport{Conn: socket}
					defer func() { _, _ = tr.Close(), socket.Close() }()
					for left.Add(-1) >= 0 {
						c, err := tr.Dial(context.Background(), server, conf, nil)
						if err != nil {
							b.Error(err)
							return
						}
						_ = c.CloseWithError(0, "")
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "connections/s")
		})
	}
}
