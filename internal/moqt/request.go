package moqt

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"holocast/internal/moqt/wire"
)

// requestStream is the bidirectional stream of one request, ours or the peer's.
type requestStream struct {
	s   *Session
	id  uint64
	typ wire.MessageType // of our request
	str stream
	br  *bufio.Reader
	wmu sync.Mutex

	renew atomic.Pointer[func([]wire.Token) error] // asked about tokens of updates; nil = they mean nothing
}

// send writes one message. A peer that does not read loses the
// request: nothing can follow a message that was sent in part.
func (r *requestStream) send(m wire.Message) error {
	b, err := r.s.version.AppendMessage(nil, m)
	if err != nil {
		return err
	}
	r.wmu.Lock()
	defer r.wmu.Unlock()
	_ = r.str.SetWriteDeadline(time.Now().Add(r.s.wait.send))
	if _, err = r.str.Write(b); err != nil {
		r.abort(wire.StreamInternalError)
	}
	return streamError(err)
}

// finish ends our direction.
func (r *requestStream) finish() {
	r.wmu.Lock()
	defer r.wmu.Unlock()
	_ = r.str.Close()
}

// end finishes our direction and takes nothing more of the peer's. Without the
// latter a FIN that nobody read would keep the stream open for good.
func (r *requestStream) end() {
	r.finish()
	r.str.stop(wire.StreamCancelled)
}

// abort ends both directions (§3.3.2).
func (r *requestStream) abort(code wire.StreamCode) {
	r.str.reset(code)
	r.str.stop(code)
}

// read returns the peer's next message on the stream. A GOAWAY, which may come
// in the place of any message, is returned as the *RequestError it amounts to.
func (r *requestStream) read() (wire.Message, error) {
	m, err := r.s.version.ReadMessage(r.br)
	if g, ok := m.(*wire.Goaway); ok && err == nil {
		return nil, r.goaway(g)
	}
	if err == nil {
		return m, nil
	}
	var w *wire.Error
	switch {
	case errors.As(err, &w):
		r.s.fail(err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = protocolViolation("a request stream ends inside a message")
		r.s.fail(err)
	}
	return nil, streamError(err)
}

// goaway is the peer's wish to move this one request elsewhere (§10.4).
func (r *requestStream) goaway(g *wire.Goaway) error {
	var err error
	switch {
	case g.RequestID != nil:
		err = protocolViolation("GOAWAY on a request stream names a request ID")
	case !r.s.client && g.NewSessionURI != "":
		err = protocolViolation("GOAWAY from a client names a URI")
	default:
		return &RequestError{
			Code: wire.RequestGoingAway, Reason: "the peer asks to move the request",
			Redirect: &wire.Redirect{ConnectURI: g.NewSessionURI},
		}
	}
	r.s.fail(err)
	return err
}

// openRequest opens a stream and sends the message that build makes of the
// request's ID.
func (s *Session) openRequest(ctx context.Context, build func(id uint64) wire.Message) (*requestStream, error) {
	s.mu.Lock()
	leaving := s.goawayTold
	s.mu.Unlock()
	if leaving {
		return nil, &RequestError{Code: wire.RequestGoingAway, Reason: "the peer sent GOAWAY"}
	}
	ctx, cancel := withDefaultTimeout(ctx, s.wait.request)
	defer cancel()
	str, err := s.conn.openStream(ctx)
	if err != nil {
		if serr := s.Err(); serr != nil {
			return nil, serr
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", ErrRequestsBlocked, ctx.Err())
		}
		return nil, err
	}
	str.setPriority(controlPriority)
	r := &requestStream{s: s, id: s.takeRequestID(), str: str, br: bufio.NewReaderSize(str, 512)}
	m := build(r.id)
	r.typ = m.Type()
	if err := r.send(m); err != nil {
		r.abort(wire.StreamInternalError)
		return nil, err
	}
	s.mu.Lock()
	s.openRequests++
	s.mu.Unlock()
	return r, nil
}

// withDefaultTimeout gives a context without a deadline one.
func withDefaultTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d)
}

func (s *Session) takeRequestID() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.nextRequest
	s.nextRequest += 2
	return id
}

// closeRequest counts a request of ours or the peer's as over.
func (s *Session) closeRequest() {
	s.mu.Lock()
	s.openRequests--
	s.mu.Unlock()
}

// awaitResponse reads the first response to one of our requests. Whatever is not
// an acceptance ends the request's stream: a refusal, an error, and the end of
// ctx, which cancels the request. Without a deadline of ctx's own it waits for
// extra beyond the usual time.
func (r *requestStream) awaitResponse(ctx context.Context, extra time.Duration) (wire.Message, error) {
	ctx, cancel := withDefaultTimeout(ctx, r.s.wait.request+extra)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { r.abort(wire.StreamCancelled) })
	m, err := r.read()
	cancelled := !stop()
	if serr := r.s.Err(); serr != nil {
		return nil, serr
	}
	switch {
	case cancelled:
		return nil, fmt.Errorf("moqt: no response from the peer: %w", ctx.Err())
	case err == io.EOF:
		err = errors.New("moqt: the peer closed the request without a response")
		fallthrough
	case err != nil:
		r.abort(wire.StreamCancelled)
		return nil, err
	}
	if err := r.s.version.CheckResponse(r.typ, m); err != nil {
		r.s.fail(err)
		return nil, err
	}
	if e, ok := m.(*wire.RequestError); ok {
		r.end()
		return nil, requestError(e)
	}
	return m, nil
}

func requestError(e *wire.RequestError) *RequestError {
	return &RequestError{e.Code, e.Reason, e.RetryInterval, e.Redirect}
}

// unexpectedMessage ends the session because of a message that does not belong
// where it came.
func (r *requestStream) unexpectedMessage(m wire.Message) error {
	err := protocolViolation("unexpected %s on a request stream", m.Type())
	r.s.fail(err)
	return err
}

// Incoming requests.

// Request is what all incoming requests have in common.
type Request struct {
	stream     *requestStream
	Parameters Parameters
	Tokens     []wire.Token // of the message, aliases resolved

	mu       sync.Mutex
	answered bool
	running  sync.WaitGroup // whoever answers, until the request is over
}

// Session is the session the request came on.
func (r *Request) Session() *Session { return r.stream.s }

// Context ends when the peer withdraws the request or the session ends. It
// outlives the request's acceptance.
func (r *Request) Context() context.Context { return r.stream.str.Context() }

// Renewed has f decide about the tokens that the peer sends in updates of the request
// (§10.9): an error, as for RejectWith, refuses the update, which ends the request. It is
// called before the request is accepted.
func (r *Request) Renewed(f func(tokens []wire.Token) error) { r.stream.renew.Store(&f) }

// Revoke ends an accepted request from our side, as if the peer had withdrawn it.
func (r *Request) Revoke(code wire.StreamCode) { r.stream.abort(code) }

// claim makes the caller the one who answers. It calls running.Done when what
// the answer began is over.
func (r *Request) claim() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered {
		return errors.New("moqt: the request was answered already")
	}
	r.answered = true
	r.running.Add(1)
	return nil
}

// Reject refuses the request.
func (r *Request) Reject(code wire.RequestCode, reason string) error {
	return r.RejectWith(&RequestError{Code: code, Reason: reason})
}

// RejectWith refuses the request with all an error says. An err that is no
// *RequestError becomes an internal error.
func (r *Request) RejectWith(err error) error {
	if err := r.claim(); err != nil {
		return err
	}
	defer r.running.Done()
	defer r.stream.end()
	return r.stream.send(refusal(err))
}

func (s *Session) acceptStreams() {
	for {
		str, err := s.conn.acceptStream(s.ctx)
		if err != nil {
			return // the end of the transport's context says why
		}
		done, ok := s.takeStream()
		if ok {
			str.setPriority(controlPriority)
			go func() {
				defer done()
				s.handleRequest(str)
			}()
		} else {
			str.reset(wire.StreamExcessiveLoad)
			str.stop(wire.StreamExcessiveLoad)
		}
		s.paceStreams(true)
	}
}

func (s *Session) handleRequest(str stream) {
	select {
	case <-s.set:
	case <-s.ctx.Done():
		return
	}
	select {
	case <-s.serving:
	case <-s.ctx.Done():
		return
	}
	r := &requestStream{s: s, str: str, br: bufio.NewReaderSize(str, 512)}
	_ = str.SetReadDeadline(time.Now().Add(s.wait.header))
	m, err := r.read()
	if err != nil {
		r.abort(wire.StreamCancelled)
		return
	}
	_ = str.SetReadDeadline(time.Time{})

	req := &Request{stream: r}
	var ns Namespace
	var handle func()
	switch m := m.(type) {
	case *wire.Subscribe:
		r.id, req.Parameters, ns = m.RequestID, m.Parameters, m.Track.Namespace
		handle = func() { s.handleSubscribe(req, m) }
	case *wire.TrackStatus:
		r.id, req.Parameters, ns = m.RequestID, m.Parameters, m.Track.Namespace
		handle = func() { serve(req, s.handler.TrackStatus, &TrackStatusRequest{Request: req, Track: m.Track}) }
	case *wire.Publish:
		r.id, req.Parameters, ns = m.RequestID, m.Parameters, m.Track.Namespace
		handle = func() { s.handlePublish(req, m) }
	case *wire.Fetch:
		r.id, req.Parameters = m.RequestID, m.Parameters
		if m.FetchType == wire.FetchStandalone {
			ns = m.Track.Namespace
		}
		handle = func() { s.handleFetch(req, m) }
	case *wire.PublishNamespace:
		r.id, req.Parameters, ns = m.RequestID, m.Parameters, m.Namespace
		handle = func() {
			serve(req, s.handler.PublishNamespace, &NamespaceRequest{Request: req, Namespace: m.Namespace})
		}
	case *wire.SubscribeNamespace:
		r.id, req.Parameters, ns = m.RequestID, m.Parameters, m.Prefix
		handle = func() {
			s.handleDiscovery(&DiscoveryRequest{Request: req, Prefix: m.Prefix, prefix: m.Prefix}, s.handler.SubscribeNamespace)
		}
	case *wire.SubscribeTracks:
		r.id, req.Parameters, ns = m.RequestID, m.Parameters, m.Prefix
		handle = func() {
			d := &DiscoveryRequest{Request: req, Prefix: m.Prefix, prefix: m.Prefix, Tracks: true}
			s.handleDiscovery(d, s.handler.SubscribeTracks)
		}
	default:
		_ = r.unexpectedMessage(m)
		return
	}

	s.mu.Lock()
	err = s.requests.check(r.id)
	if err == nil {
		req.Tokens, err = s.tokens.resolve(req.Parameters.AuthorizationTokens)
	}
	var isSubscribe bool
	if err == nil {
		if _, isSubscribe = m.(*wire.Subscribe); isSubscribe {
			s.joinable[r.id] = nil // pending
		}
		s.openRequests++
		s.notify()
	}
	s.mu.Unlock()
	if err != nil {
		s.fail(err)
		return
	}
	defer s.closeRequest()
	if isSubscribe {
		defer func() {
			s.mu.Lock()
			delete(s.joinable, r.id)
			s.notify()
			s.mu.Unlock()
		}()
	}
	s.controlMu.Lock()
	leaving := s.goawaySent
	s.controlMu.Unlock()
	if leaving {
		_ = req.Reject(wire.RequestGoingAway, "this endpoint is going away")
		return
	}
	// §3.2.1, §3.2.2: the application has no say in these.
	if len(ns) > 0 && (ns[0] == "." || ns[0] == ".session") {
		_ = req.Reject(wire.RequestDoesNotExist, "reserved namespace")
		return
	}
	if req.Parameters.RangeFilters {
		_ = req.Reject(wire.RequestInvalidFilter, "range filters were not offered")
		return
	}
	handle()
}

// serve calls h for a request, sees to it that there is an answer and waits for
// what an acceptance began.
func serve[R any](req *Request, h func(R), r R) {
	if h == nil {
		_ = req.Reject(wire.RequestNotSupported, "not supported here")
		return
	}
	h(r)
	_ = req.Reject(wire.RequestInternalError, "the request was not answered") // fails if it was
	req.running.Wait()
}

// TrackStatusRequest is an incoming TRACK_STATUS (§10.14).
type TrackStatusRequest struct {
	*Request
	Track TrackName
}

// Accept answers as to a SUBSCRIBE.
func (r *TrackStatusRequest) Accept(info TrackInfo) error {
	if err := r.claim(); err != nil {
		return err
	}
	defer r.running.Done()
	defer r.stream.end()
	return r.stream.send(&wire.RequestOK{Parameters: info.parameters(), Properties: info.Properties})
}

// TrackStatus asks what a SUBSCRIBE to a track would be answered (§10.14).
func (s *Session) TrackStatus(ctx context.Context, track TrackName, tokens ...wire.Token) (largest *Location, props Properties, err error) {
	r, err := s.openRequest(ctx, func(id uint64) wire.Message {
		return &wire.TrackStatus{RequestID: id, Track: track, Parameters: Parameters{AuthorizationTokens: tokens}}
	})
	if err != nil {
		return nil, nil, err
	}
	defer s.closeRequest()
	m, err := r.awaitResponse(ctx, 0)
	if err != nil {
		return nil, nil, err
	}
	r.end()
	ok, isOK := m.(*wire.RequestOK)
	if !isOK {
		return nil, nil, r.unexpectedMessage(m)
	}
	return ok.Parameters.LargestObject, ok.Properties, nil
}
