package moqt

import (
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"holocast/internal/moqt/wire"
)

// everything is an Admission without limits.
type everything struct{}

func (everything) OpenStream() bool          { return true }
func (everything) CloseStream()              {}
func (everything) Opened(bool) time.Duration { return 0 }
func (everything) GrowWindow(uint64) bool    { return true }
func (everything) Close()                    {}

// TestGreedyWindow checks that a greedy address starts with a small receive window.
func TestGreedyWindow(t *testing.T) {
	for name, c := range map[string]struct {
		greedy bool
		within time.Duration
		sent   func(n int, err error) bool
	}{
		"greedy": {true, 300 * time.Millisecond, func(n int, err error) bool { return err != nil && n <= greedyWindow }},
		"other":  {false, time.Minute, func(n int, err error) bool { return err == nil }},
	} {
		t.Run(name, func(t *testing.T) {
			serverTLS, clientTLS := testTLS(t)
			ln, err := Listen("127.0.0.1:0", ListenConfig{
				Config: Config{Log: slog.New(slog.DiscardHandler), waits: patient()}, TLS: serverTLS,
				Admit:  func(net.Addr) (Admission, error) { return everything{}, nil },
				Greedy: func(net.Addr) bool { return c.greedy },
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = ln.Close() })
			clientTLS.NextProtos = []string{wire.ALPN}
			conn, err := quic.DialAddr(t.Context(), ln.Addr().String(), clientTLS, quicConfig())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.CloseWithError(0, "") }()
			p := &rawPeer{Conn: conn, t: t, ctx: t.Context()}
			// Without a SETUP the server reads no further than this header.
			str := p.uni([]byte{0x10, 0, 0, 0})
			if err := str.SetWriteDeadline(time.Now().Add(c.within)); err != nil {
				t.Fatal(err)
			}
			if n, err := str.Write(make([]byte, firstStreamWindow/2)); !c.sent(n, err) {
				t.Errorf("%d bytes were sent, then %v", n, err)
			}
		})
	}
}
