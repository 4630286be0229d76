package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/webtransport-go"

	"holocast/internal/moqt/wire"
)

// refuseUpdates runs a proxy at addr (UDP and TCP) between browsers and the relay `behind`. It
// answers REQUEST_UPDATE with REQUEST_ERROR and ends the subscription with UPDATE_FAILED
// (§10.9); with cut it resets the request's stream instead. It forwards everything else.
func refuseUpdates(ctx context.Context, addr, behind string, cut bool) error {
	cert, err := serveCertificate(ctx, addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	srv := &webtransport.Server{
		H3: &http3.Server{
			Addr: addr, Handler: mux, Logger: slog.New(slog.DiscardHandler),
			TLSConfig: http3.ConfigureTLSConfig(&tls.Config{
				Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13,
			}),
			QUICConfig: frontConfig(),
		},
		ApplicationProtocols: []string{wire.ALPN},
		CheckOrigin:          func(*http.Request) bool { return true },
	}
	webtransport.ConfigureHTTP3Server(srv.H3)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		up, err := dialBehind(ctx, behind)
		if err != nil {
			slog.Error("cannot connect to the relay", "err", err)
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		browser, err := srv.Upgrade(w, r)
		if err != nil {
			_ = up.CloseWithError(0, "")
			return
		}
		f := &front{browser: browser, relay: up, cut: cut}
		f.run()
	})
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	slog.Info("refusing updates", "behind", behind)
	if err := srv.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}

func frontConfig() *quic.Config {
	return &quic.Config{
		EnableDatagrams: true, EnableStreamResetPartialDelivery: true,
		MaxIncomingStreams: 1 << 10, MaxIncomingUniStreams: 1 << 10, KeepAlivePeriod: 1500 * time.Millisecond,
	}
}

func dialBehind(ctx context.Context, url string) (*webtransport.Session, error) {
	tr := &webtransport.Transport{
		TLSClientConfig:      &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the test's own relay, on loopback
		QUICConfig:           frontConfig(),
		ApplicationProtocols: []string{wire.ALPN},
	}
	_, s, err := tr.Dial(ctx, url, nil) //nolint:bodyclose // the body is the session
	if err != nil {
		_ = tr.Close()
		return nil, err
	}
	context.AfterFunc(s.Context(), func() { _ = tr.Close() })
	return s, nil
}

// front forwards streams between a browser's session and a session with the relay.
type front struct {
	browser, relay *webtransport.Session
	cut            bool
}

func (f *front) run() {
	var wg sync.WaitGroup
	wg.Go(func() { f.streams(f.browser, f.relay) })
	wg.Go(func() { f.streams(f.relay, f.browser) })
	wg.Go(func() { f.requests(f.browser, f.relay) })
	wg.Go(func() { f.requests(f.relay, f.browser) })
	wg.Go(func() { datagrams(f.browser, f.relay) })
	wg.Go(func() { datagrams(f.relay, f.browser) })
	select {
	case <-f.browser.Context().Done():
		slog.Info("browser's session ended", "reason", context.Cause(f.browser.Context()))
	case <-f.relay.Context().Done():
		slog.Info("relay's session ended", "reason", context.Cause(f.relay.Context()))
	}
	_ = f.relay.CloseWithError(0, "")
	_ = f.browser.CloseWithError(0, "")
	wg.Wait()
}

func datagrams(from, to *webtransport.Session) {
	for {
		b, err := from.ReceiveDatagram(from.Context())
		if err != nil {
			return
		}
		_ = to.SendDatagram(b)
	}
}

// streams forwards one side's unidirectional streams: control, subgroups and fetched objects.
func (f *front) streams(from, to *webtransport.Session) {
	for {
		r, err := from.AcceptUniStream(from.Context())
		if err != nil {
			return
		}
		go func() {
			w, err := to.OpenUniStreamSync(to.Context())
			if err != nil {
				return
			}
			stopped := context.AfterFunc(w.Context(), func() { r.CancelRead(code(context.Cause(w.Context()))) })
			defer stopped()
			if _, err := io.Copy(w, r); err != nil {
				w.CancelWrite(code(err))
				return
			}
			_ = w.Close()
		}()
	}
}

// requests forwards one side's requests, and the answers.
func (f *front) requests(from, to *webtransport.Session) {
	for {
		a, err := from.AcceptStream(from.Context())
		if err != nil {
			return
		}
		go func() {
			b, err := to.OpenStreamSync(to.Context())
			if err != nil {
				return
			}
			var refused atomic.Bool
			go func() {
				if err := pass(b, a, nil); !refused.Load() {
					end(b, a, err)
				}
			}()
			err = pass(a, b, func(m wire.Message) error {
				if m.Type() == wire.TypeRequestUpdate && from == f.browser {
					return errRefused
				}
				return nil
			})
			if errors.Is(err, errRefused) {
				refused.Store(true)
				b.CancelRead(webtransport.StreamErrorCode(wire.StreamCancelled))
				f.refuse(a)
			}
			end(a, b, err)
		}()
	}
}

var errRefused = errors.New("update refused")

// pass forwards messages until the stream ends or check, if not nil, returns an error.
func pass(from, to *webtransport.Stream, check func(wire.Message) error) error {
	in := bufio.NewReader(from)
	for {
		m, err := wire.ReadMessage(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && check != nil {
			err = check(m)
		}
		if err == nil {
			err = send(to, m)
		}
		if err != nil {
			return err
		}
	}
}

// end closes or resets one direction of a request as the other side did.
func end(from, to *webtransport.Stream, err error) {
	if err == nil {
		_ = to.Close()
		return
	}
	from.CancelRead(code(err))
	to.CancelWrite(code(err))
}

func send(to *webtransport.Stream, m wire.Message) error {
	b, err := wire.AppendMessage(nil, m)
	if err != nil {
		return err
	}
	_, err = to.Write(b)
	return err
}

// refuse ends a subscription after an update.
func (f *front) refuse(subscriber *webtransport.Stream) {
	slog.Info("refused an update")
	if f.cut {
		subscriber.CancelWrite(webtransport.StreamErrorCode(wire.StreamInternalError))
		return
	}
	reason := "this relay does not update subscriptions"
	_ = send(subscriber, &wire.RequestError{Code: wire.RequestNotSupported, Reason: reason})
	_ = send(subscriber, &wire.PublishDone{Code: wire.DoneUpdateFailed, StreamCount: wire.StreamCountUnknown})
	_ = subscriber.Close()
}

// code returns the error code with which the peer reset a stream, or INTERNAL_ERROR for other
// errors.
func code(err error) webtransport.StreamErrorCode {
	if e := (*webtransport.StreamError)(nil); errors.As(err, &e) {
		return e.ErrorCode
	}
	return webtransport.StreamErrorCode(wire.StreamInternalError)
}
