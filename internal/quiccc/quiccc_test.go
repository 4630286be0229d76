package quiccc_test

import (
	"context"
	"io"
	"testing"

	"github.com/quic-go/quic-go"

	"holocast/internal/congestion"
	"holocast/internal/quiccc"
	"holocast/internal/quiccc/quiccctest"
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
			e, ok := quiccc.Estimates(server)
			if ok != quiccc.Patched() {
				t.Fatalf("estimates %v with patched quic-go %v", ok, quiccc.Patched())
			}
			if !ok {
				return
			}
			if e.Controller != name || e.Delivered < 1<<20 || e.Bandwidth <= 0 || e.MinRTT <= 0 || e.Window <= 0 {
				t.Errorf("estimates after 4 MiB: %+v", e)
			}
			if e, ok := quiccc.Estimates(client); !ok || e.Controller != name {
				t.Errorf("the client's estimates: %+v, %v", e, ok)
			}
		})
	}
}

func TestUnknownController(t *testing.T) {
	if _, err := quiccc.WithController(t.Context(), "tahoe"); err == nil {
		t.Error("no error for a dialer")
	}
	if _, err := quiccc.ConnContext("tahoe"); err == nil {
		t.Error("no error for a listener")
	}
}

// pair connects a client and a server over the loopback interface; "stock" uses quic-go's own
// congestion control.
func pair(t testing.TB, name string) (client, server *quic.Conn) {
	t.Helper()
	ctx := t.Context()
	if name == "stock" {
		name = ""
	} else {
		var err error
		if ctx, err = quiccc.WithController(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	_, ln := quiccctest.Listen(t, name, nil)
	client, err := quic.DialAddr(ctx, ln.Addr().String(), quiccctest.ClientTLS(), nil)
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
