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

// requestStream is the bidirectional stream of one request, from either side.
type requestStream struct {
	s   *Session
	id  uint64
	typ wire.MessageType // type of a request that we sent
	str stream
	br  *bufio.Reader
	wmu sync.Mutex

	checkTokens atomic.Pointer[func([]wire.Token) error] // checks the tokens of updates; nil accepts all tokens
}

// send writes one message. If the peer does not read it in time, the request is aborted, because no
// message can follow a partial one.
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

// finish closes our direction.
func (r *requestStream) finish() {
	r.wmu.Lock()
	defer r.wmu.Unlock()
	_ = r.str.Close()
}

// end closes our direction and stops the peer's. Otherwise a FIN that is never read would keep the
// stream open.
func (r *requestStream) end() {
	r.finish()
	r.str.stop(wire.StreamCancelled)
}

// abort resets both directions (§3.3.2).
func (r *requestStream) abort(code wire.StreamCode) {
	r.str.reset(code)
	r.str.stop(code)
}

// read returns the peer's next message on the stream. A GOAWAY, which may replace any message, is
// returned as a *RequestError.
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

// goaway converts a GOAWAY for this request (§10.4) to an error.
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

// openRequest opens a stream and sends the message that build returns for the request ID.
func (s *Session) openRequest(ctx context.Context, build func(id uint64) wire.Message) (*requestStream, error) {
	s.mu.Lock()
	leaving := s.goawayReceived
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

// withDefaultTimeout adds a timeout to a context without a deadline.
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

// closeRequest decrements the number of open requests.
func (s *Session) closeRequest() {
	s.mu.Lock()
	s.openRequests--
	s.mu.Unlock()
}

// awaitResponse reads the response to one of our requests. It aborts the request on a refusal, on
// an error, and when ctx is done. If ctx has no deadline it waits for the default timeout plus
// extra.
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

// unexpectedMessage ends the session because of a message that is not allowed here.
func (r *requestStream) unexpectedMessage(m wire.Message) error {
	err := protocolViolation("unexpected %s on a request stream", m.Type())
	r.s.fail(err)
	return err
}

// Incoming requests.

// Request is the common part of incoming requests.
type Request struct {
	stream     *requestStream // of the subscription, for a fill
	fill       *fill          // nil for other requests
	Parameters Parameters
	Tokens     []wire.Token // with aliases resolved

	mu       sync.Mutex
	answered bool
	running  sync.WaitGroup // until the accepted request ends
}

// Session returns the session that received the request.
func (r *Request) Session() *Session { return r.stream.s }

// Context returns a context that is cancelled when the peer withdraws the request or the session
// ends, even after the request was accepted.
func (r *Request) Context() context.Context {
	if r.fill != nil {
		return r.fill.ctx
	}
	return r.stream.str.Context()
}

// Renewed sets the function that checks the tokens in REQUEST_UPDATEs (§10.9). An error refuses the
// update as RejectWith does, and ends the request. Call Renewed before accepting the request. A
// fill ends with its subscription instead.
func (r *Request) Renewed(f func(tokens []wire.Token) error) {
	if r.fill == nil {
		r.stream.checkTokens.Store(&f)
	}
}

// Revoke ends an accepted request from our side, as if the peer had withdrawn it.
func (r *Request) Revoke(code wire.StreamCode) {
	if r.fill != nil {
		r.fill.cancel()
		return
	}
	r.stream.abort(code)
}

// startResponse marks the request as answered. It fails if the request was already answered. The
// caller must call running.Done when the accepted request has ended.
func (r *Request) startResponse() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered {
		return errors.New("moqt: the request was already answered")
	}
	r.answered = true
	r.running.Add(1)
	return nil
}

// Reject refuses the request.
func (r *Request) Reject(code wire.RequestCode, reason string) error {
	return r.RejectWith(&RequestError{Code: code, Reason: reason})
}

// RejectWith refuses the request with the fields of a *RequestError. Other errors are sent as
// internal errors.
func (r *Request) RejectWith(err error) error {
	if err := r.startResponse(); err != nil {
		return err
	}
	defer r.running.Done()
	if r.fill != nil {
		return r.fill.refuse(err)
	}
	defer r.stream.end()
	return r.stream.send(refusal(err))
}

// included returns the track properties for the response, which the peer may not want (draft-22
// §9.20.21).
func (r *Request) included(props Properties) Properties {
	if i := r.Parameters.IncludeProperties; i != nil && !*i {
		return nil
	}
	return props
}

func (s *Session) acceptStreams() {
	for {
		str, err := s.conn.acceptStream(s.ctx)
		if err != nil {
			return // the cause is in the transport's context
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
	case <-s.setupDone:
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
	if !replayable(m) && s.established(str.Context()) != nil {
		return
	}

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
			d := &DiscoveryRequest{Request: req, Prefix: m.Prefix, prefix: m.Prefix}
			s.handleDiscovery(d, s.handler.SubscribeNamespace)
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
	// Reserved namespaces are refused without asking the application (§3.2.1, §3.2.2).
	if len(ns) > 0 && (ns[0] == "." || ns[0] == ".session") {
		_ = req.Reject(wire.RequestDoesNotExist, "reserved namespace")
		return
	}
	if p := req.Parameters; p.RangeFilters || p.Fill != nil && p.Fill.RangeFilters {
		_ = req.Reject(wire.RequestInvalidFilter, "range filters were not offered")
		return
	}
	handle()
}

// serve calls h for a request, rejects the request if h does not answer it, and waits until an
// accepted request ends.
func serve[R any](req *Request, h func(R), r R) {
	if h == nil {
		_ = req.Reject(wire.RequestNotSupported, "not supported here")
		return
	}
	h(r)
	_ = req.Reject(wire.RequestInternalError, "the request was not answered") // fails if it was answered
	req.running.Wait()
}

// TrackStatusRequest is an incoming TRACK_STATUS (§10.14).
type TrackStatusRequest struct {
	*Request
	Track TrackName
}

// Accept responds with the same information as SUBSCRIBE_OK.
func (r *TrackStatusRequest) Accept(info TrackInfo) error {
	if err := r.startResponse(); err != nil {
		return err
	}
	defer r.running.Done()
	defer r.stream.end()
	p := info.parameters()
	if r.stream.s.version >= wire.Draft20 {
		p.Expires = nil // draft-22 §9.3
	}
	return r.stream.send(&wire.RequestOK{Parameters: p, Properties: r.included(info.Properties)})
}

// TrackStatus asks for a track's state without subscribing (§10.14).
func (s *Session) TrackStatus(
	ctx context.Context,
	track TrackName,
	tokens ...wire.Token,
) (largest *Location, props Properties, err error) {
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
