package quiccc

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"holocast/internal/congestion"
)

func TestConnectionsUseTheController(t *testing.T) {
	for _, name := range congestion.Names() {
		t.Run(name, func(t *testing.T) {
			client, server := pair(t, name)
			go func() {
				s, err := server.OpenUniStream()
				if err == nil {
					_, _ = s.Write(make([]byte, 4<<20))
					_ = s.Close()
				}
			}()
			s, err := client.AcceptUniStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, s)
			if err != nil || n != 4<<20 {
				t.Fatalf("received %d bytes: %v", n, err)
			}
			e, ok := Estimates(server)
			if ok != Patched() {
				t.Fatalf("estimates %v with patched quic-go %v", ok, Patched())
			}
			if !ok {
				return
			}
			if e.Controller != name || e.Delivered < 1<<20 || e.Bandwidth <= 0 || e.MinRTT <= 0 || e.Window <= 0 {
				t.Errorf("estimates after 4 MiB: %+v", e)
			}
			if e, ok := Estimates(client); !ok || e.Controller != name {
				t.Errorf("the client's estimates: %+v, %v", e, ok)
			}
		})
	}
}

func TestUnknownController(t *testing.T) {
	if _, err := WithController(t.Context(), "tahoe"); err == nil {
		t.Error("no error for a dialer")
	}
	if _, err := ConnContext("tahoe"); err == nil {
		t.Error("no error for a listener")
	}
}

// pair connects a client and a server over the loopback interface; "stock" asks for
// no controller.
func pair(t testing.TB, name string) (client, server *quic.Conn) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, tr := t.Context(), &quic.Transport{Conn: udp}
	if name != "stock" {
		if tr.ConnContext, err = ConnContext(name); err != nil {
			t.Fatal(err)
		}
		if ctx, err = WithController(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = tr.Close(); _ = udp.Close() })
	ln, err := tr.Listen(&tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: k}},
		NextProtos:   []string{"test"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err = quic.DialAddr(ctx, udp.LocalAddr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"test"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.CloseWithError(0, "") })
	server, err = ln.Accept(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return client, server
}
