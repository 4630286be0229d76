package connect

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/sessiontest/fakepath"
)

// TestKeepResumes checks, in fake time, that Keep starts a session with early data after a loss if it has
// a ticket, and that it reconnects to a relay that has restarted with other keys.
func TestKeepResumes(t *testing.T) {
	fakepath.Test(t, func(t *testing.T) {
		const rtt = 160 * time.Millisecond
		path := fakepath.New(fakepath.Direction{Delay: rtt / 2}, fakepath.Direction{Delay: rtt / 2})
		defer path.Close()
		cert, err := devcert.Generate(time.Now(), "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		var ln *moqt.Listener
		listen := func() {
			cfg := moqt.ListenConfig{
				Config: quiet, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, EarlyData: true,
			}
			cfg.Packets = path.A
			if ln, err = moqt.Listen("", cfg); err != nil {
				t.Fatal(err)
			}
			go func(ln *moqt.Listener) {
				for {
					s, err := ln.Accept(context.Background())
					if err != nil {
						return
					}
					s.Serve(moqt.Handler{TrackStatus: func(r *moqt.TrackStatusRequest) {
						_ = r.Accept(moqt.TrackInfo{})
					}})
				}
			}(ln)
		}
		listen()
		hash := devcert.Hash(cert)
		cfg := quiet
		cfg.Packets = path.B
		var trips []int
		k := newKeeper(
			Target{URL: "moqt://192.0.2.1:4443/x", CertificateHash: hex.EncodeToString(hash[:])}, moqt.Handler{}, cfg,
			func(ctx context.Context, s *moqt.Session) error {
				track := moqt.TrackName{Namespace: moqt.Namespace{"a"}, Name: "b"}
				began := time.Now()
				if _, _, err := s.TrackStatus(ctx, track); err != nil {
					return err
				}
				trips = append(trips, int(time.Since(began)/rtt))
				if time.Sleep(rtt); len(trips) == 4 {
					return Final(errors.New("enough"))
				}
				if len(trips) == 2 {
					_ = ln.Close()
					listen()
				}
				s.Close(wire.NoError, "")
				return errors.New("lost")
			}, false)
		took := []time.Duration{}
		open := k.open
		k.open = func(ctx context.Context, t Target, h moqt.Handler) (*moqt.Session, error) {
			began := time.Now()
			s, err := open(ctx, t, h)
			if err == nil {
				took = append(took, time.Since(began))
			}
			return s, err
		}
		if err := k.keep(t.Context()); err == nil || err.Error() != "enough" {
			t.Fatal(err)
		}
		_ = ln.Close()
		// Round trips of Dial and of the request: new, resumed, restarted relay, resumed.
		for i, want := range [][2]int{{2, 1}, {0, 1}, {0, 2}, {0, 1}} {
			if got := [2]int{int(took[i] / rtt), trips[i]}; got != want {
				t.Errorf("session %d: %v round trips, want %v", i, got, want)
			}
		}
	})
}
