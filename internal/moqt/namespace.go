package moqt

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"holocast/internal/moqt/wire"
)

// NamespaceRequest is an incoming PUBLISH_NAMESPACE (§10.15).
type NamespaceRequest struct {
	*Request
	Namespace Namespace
}

// Accept calls accepted, if set, and accepts the namespace. It returns when the publisher withdraws
// the namespace or the session ends.
func (r *NamespaceRequest) Accept(accepted func()) error {
	if err := r.startResponse(); err != nil {
		return err
	}
	defer r.running.Done()
	if accepted != nil {
		accepted()
	}
	if err := r.stream.send(&wire.RequestOK{}); err != nil {
		return err
	}
	return r.untilWithdrawn(nil)
}

// untilWithdrawn answers updates of an accepted request until the peer withdraws it by ending its
// direction of the stream (draft-18 only) or stopping ours. apply, if set, applies and answers an
// update; its error ends the request (§10.9).
func (r *Request) untilWithdrawn(apply func(Parameters) error) error {
	defer r.stream.end()
	stop := context.AfterFunc(r.Context(), func() { r.stream.str.stop(wire.StreamCancelled) })
	defer stop()
	for {
		m, err := r.stream.read()
		switch {
		case err == io.EOF && r.stream.s.version >= wire.Draft19: // not a cancellation (§3.3.2)
			<-r.Context().Done()
			return streamError(context.Cause(r.Context()))
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		u, ok := m.(*wire.RequestUpdate)
		if !ok {
			return r.stream.unexpectedMessage(m)
		}
		refused, err := r.stream.update(u)
		switch {
		case err != nil:
		case refused != nil:
			return errors.Join(requestError(refused), r.stream.send(refused))
		case apply != nil:
			err = apply(u.Parameters)
		default:
			err = r.stream.send(&wire.RequestOK{})
		}
		if err != nil {
			return err
		}
	}
}

// PublishedNamespace is a namespace that the peer accepted from us.
type PublishedNamespace struct {
	r    *requestStream
	done chan struct{}
	once sync.Once
	err  error
}

// PublishNamespace announces that we have tracks under ns (§10.15). The peer then sends requests
// for them to the session's Handler. The announcement is not sent as early data.
func (s *Session) PublishNamespace(
	ctx context.Context,
	ns Namespace,
	tokens ...wire.Token,
) (*PublishedNamespace, error) {
	if err := (TrackName{Namespace: ns}).Validate(); err != nil {
		return nil, err
	}
	if err := s.established(ctx); err != nil {
		return nil, err
	}
	r, err := s.openAccepted(ctx, func(id uint64) wire.Message {
		return &wire.PublishNamespace{RequestID: id, Namespace: ns, Parameters: Parameters{AuthorizationTokens: tokens}}
	})
	if err != nil {
		return nil, err
	}
	p := &PublishedNamespace{r: r, done: make(chan struct{})}
	go func() {
		m, err := r.read()
		switch err {
		case nil:
			err = r.unexpectedMessage(m)
		case io.EOF:
			// A FIN from the peer does not revoke the request; a reset or STOP_SENDING does
			// (§3.3.2).
			<-r.str.Context().Done()
			err = streamError(context.Cause(r.str.Context()))
		}
		if serr := s.Err(); serr != nil {
			err = serr
		}
		p.end(err)
	}()
	return p, nil
}

// openAccepted sends a request and waits for REQUEST_OK. The caller must call closeRequest when the
// request ends.
func (s *Session) openAccepted(ctx context.Context, build func(id uint64) wire.Message) (*requestStream, error) {
	r, err := s.openRequest(ctx, build)
	if err != nil {
		return nil, err
	}
	m, err := r.awaitResponse(ctx, 0)
	if err == nil {
		if _, ok := m.(*wire.RequestOK); !ok {
			err = r.unexpectedMessage(m)
		}
	}
	if err != nil {
		s.closeRequest()
		return nil, err
	}
	return r, nil
}

func (p *PublishedNamespace) end(err error) {
	p.once.Do(func() {
		p.err = err
		close(p.done)
		p.r.abort(wire.StreamCancelled)
		p.r.s.closeRequest()
	})
}

// Done is closed when the peer revokes its acceptance, the namespace is withdrawn or the session
// ends. Err then returns the reason.
func (p *PublishedNamespace) Done() <-chan struct{} { return p.done }

// Err returns nil while the namespace is published, then the reason it ended.
func (p *PublishedNamespace) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Withdraw withdraws the namespace. Subscriptions continue.
func (p *PublishedNamespace) Withdraw() { p.end(&StreamError{Code: wire.StreamCancelled}) }

// DiscoveryRequest is an incoming SUBSCRIBE_NAMESPACE, or SUBSCRIBE_TRACKS if Tracks is set (§10.18,
// §10.19).
type DiscoveryRequest struct {
	*Request
	Prefix Namespace // as first requested
	Tracks bool
	// Move, if set before the request is accepted, decides on a change of prefix (§10.9.2). An
	// error refuses the change as RejectWith does, and ends the request. moved is called after the
	// subscriber has been informed.
	Move func(prefix Namespace) (moved func(), err error)

	prefix Namespace // current; under the session's mu
}

// handleDiscovery refuses a prefix that overlaps another of the same kind.
func (s *Session) handleDiscovery(r *DiscoveryRequest, h func(*DiscoveryRequest)) {
	free := s.waitFor(s.ctx, s.wait.cancel, func() bool {
		if slices.ContainsFunc(s.discoveries, r.overlaps) {
			return false
		}
		s.discoveries = append(s.discoveries, r)
		return true
	})
	if !free {
		_ = r.RejectWith(errPrefixOverlap)
		return
	}
	serve(r.Request, h, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discoveries = slices.DeleteFunc(s.discoveries, func(d *DiscoveryRequest) bool { return d == r })
	s.notify()
}

var errPrefixOverlap = &RequestError{
	Code:   wire.RequestPrefixOverlap,
	Reason: "the prefix overlaps that of another request",
}

// overlaps reports whether the prefixes of r and d overlap. s.mu is held.
func (r *DiscoveryRequest) overlaps(d *DiscoveryRequest) bool {
	return r != d && r.Tracks == d.Tracks && (r.prefix.HasPrefix(d.prefix) || d.prefix.HasPrefix(r.prefix))
}

// move changes the request's prefix unless it overlaps another request.
func (r *DiscoveryRequest) move(to Namespace) error {
	s := r.stream.s
	s.mu.Lock()
	defer s.mu.Unlock()
	from := r.prefix
	r.prefix = to
	if slices.ContainsFunc(s.discoveries, r.overlaps) {
		r.prefix = from
		return errPrefixOverlap
	}
	s.notify()
	return nil
}

// Accept sends REQUEST_OK and calls begin, which may start announcing. It returns when the
// subscriber withdraws the request.
func (r *DiscoveryRequest) Accept(begin func(*Announcer)) error {
	if err := r.startResponse(); err != nil {
		return err
	}
	defer r.running.Done()
	if err := r.stream.send(&wire.RequestOK{}); err != nil {
		return err
	}
	a := &Announcer{r: r.stream, prefix: r.Prefix, active: map[string]Namespace{}}
	begin(a)
	return r.untilWithdrawn(func(p Parameters) error {
		if p.NamespacePrefix == nil || p.NamespacePrefix.Equal(a.prefix) {
			return r.stream.send(&wire.RequestOK{})
		}
		moved, err := func() {}, error(
			&RequestError{Code: wire.RequestNotSupported, Reason: "the prefix cannot be changed; subscribe again"},
		)
		if r.Move != nil {
			moved, err = r.Move(*p.NamespacePrefix)
		}
		if err == nil {
			err = r.move(*p.NamespacePrefix)
		}
		if err != nil {
			return errors.Join(err, r.stream.send(refusal(err)))
		}
		if err := a.move(*p.NamespacePrefix); err != nil {
			return err
		}
		moved()
		return nil
	})
}

// Announcer announces namespaces to a subscriber. Its methods are safe for concurrent use.
type Announcer struct {
	r *requestStream

	mu     sync.Mutex
	prefix Namespace
	active map[string]Namespace // announced, not withdrawn
}

// Added announces a namespace under the prefix, unless it is already announced.
func (a *Announcer) Added(ns Namespace) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := ns.String()
	if _, known := a.active[key]; known || !ns.HasPrefix(a.prefix) {
		return nil
	}
	a.active[key] = ns
	return a.r.send(&wire.NamespaceAdded{Suffix: ns[len(a.prefix):]})
}

// Done withdraws an announced namespace.
func (a *Announcer) Done(ns Namespace) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := ns.String()
	if _, known := a.active[key]; !known {
		return nil
	}
	delete(a.active, key)
	return a.r.send(&wire.NamespaceDone{Suffix: ns[len(a.prefix):]})
}

// move changes the prefix. It withdraws namespaces outside the new prefix before it answers,
// because suffixes refer to the old prefix until then.
func (a *Announcer) move(to Namespace) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, ns := range a.active {
		if ns.HasPrefix(to) {
			continue
		}
		delete(a.active, key)
		if err := a.r.send(&wire.NamespaceDone{Suffix: ns[len(a.prefix):]}); err != nil {
			return err
		}
	}
	a.prefix = to
	return a.r.send(&wire.RequestOK{})
}

// Blocked reports that a track could not be published because Publish failed with
// ErrRequestsBlocked.
func (a *Announcer) Blocked(track TrackName) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !track.Namespace.HasPrefix(a.prefix) {
		return nil
	}
	return a.r.send(&wire.PublishBlocked{NamespaceSuffix: track.Namespace[len(a.prefix):], Name: track.Name})
}

// NamespaceEvent is a namespace that appeared (Added) or disappeared.
type NamespaceEvent struct {
	Namespace Namespace
	Added     bool
}

// maxNamespaces bounds the namespaces stored per SubscribeNamespace.
const maxNamespaces = 1 << 14

// SubscribeNamespace reports the namespaces under prefix until ctx is done (§10.18). The channel is
// closed at the end of the subscription; all its namespaces then count as withdrawn.
func (s *Session) SubscribeNamespace(
	ctx context.Context,
	prefix Namespace,
	tokens ...wire.Token,
) (<-chan NamespaceEvent, error) {
	n, err := s.FollowNamespaces(ctx, prefix, tokens...)
	if err != nil {
		return nil, err
	}
	return n.Events, nil
}

// Namespaces is a SUBSCRIBE_NAMESPACE with a changeable prefix.
type Namespaces struct {
	// Events reports namespaces that appear and disappear. It is closed when the subscription ends.
	Events <-chan NamespaceEvent

	s      *Session
	r      *requestStream
	events chan NamespaceEvent
	active map[string]Namespace

	mu     sync.Mutex
	prefix Namespace
	moves  []prefixMove // unanswered
	over   bool
}

type prefixMove struct {
	to   Namespace
	done chan error
}

// FollowNamespaces is SubscribeNamespace with a changeable prefix.
func (s *Session) FollowNamespaces(ctx context.Context, prefix Namespace, tokens ...wire.Token) (*Namespaces, error) {
	r, err := s.openAccepted(ctx, func(id uint64) wire.Message {
		return &wire.SubscribeNamespace{
			RequestID:  id,
			Prefix:     prefix,
			Parameters: Parameters{AuthorizationTokens: tokens},
		}
	})
	if err != nil {
		return nil, err
	}
	events := make(chan NamespaceEvent)
	n := &Namespaces{Events: events, s: s, r: r, events: events, prefix: prefix, active: map[string]Namespace{}}
	go func() {
		defer close(events)
		defer n.end()
		s.follow(ctx, r, func(m wire.Message) bool { return n.handle(ctx, m) })
	}()
	return n, nil
}

// Move changes the prefix (§10.9.2). Namespaces outside the new one are reported as gone. A refusal
// ends the subscription.
func (n *Namespaces) Move(ctx context.Context, prefix Namespace) error {
	m := prefixMove{prefix, make(chan error, 1)}
	n.mu.Lock()
	if n.over || len(n.moves) >= n.s.maxUpdates() {
		n.mu.Unlock()
		return errors.Join(ErrQueueFull, n.s.Err())
	}
	n.moves = append(n.moves, m)
	err := n.r.send(
		&wire.RequestUpdate{RequestID: n.s.takeRequestID(), Parameters: Parameters{NamespacePrefix: &prefix}},
	)
	n.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case err := <-m.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end fails the pending moves.
func (n *Namespaces) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
	for _, m := range n.moves {
		m.done <- errors.New("moqt: the namespace subscription has ended")
	}
	n.moves = nil
}

// handle processes one message from the publisher and reports whether the subscription continues.
func (n *Namespaces) handle(ctx context.Context, m wire.Message) bool {
	switch m := m.(type) {
	case *wire.RequestOK:
		return n.moved(ctx)
	case *wire.RequestError:
		n.mu.Lock()
		defer n.mu.Unlock()
		if len(n.moves) == 0 {
			_ = n.r.unexpectedMessage(m)
			return false
		}
		n.moves[0].done <- requestError(m)
		n.moves = n.moves[1:]
		return false
	}
	e, err := namespaceEvent(n.prefix, m, n.active)
	if err != nil {
		n.s.fail(err)
		return false
	}
	if len(n.active) > maxNamespaces {
		n.s.log.Warn(
			"moqt namespace subscription cancelled: too many namespaces",
			"prefix",
			truncate(n.prefix.String()),
			"peer",
			n.s.RemoteAddr(),
		)
		return false
	}
	return n.emit(ctx, e)
}

// moved applies a move that the publisher accepted.
func (n *Namespaces) moved(ctx context.Context) bool {
	n.mu.Lock()
	if len(n.moves) == 0 {
		n.mu.Unlock()
		_ = n.r.unexpectedMessage(&wire.RequestOK{})
		return false
	}
	m := n.moves[0]
	n.moves = n.moves[1:]
	n.prefix = m.to
	n.mu.Unlock()
	m.done <- nil
	for key, ns := range n.active {
		if !ns.HasPrefix(m.to) {
			delete(n.active, key)
			if !n.emit(ctx, NamespaceEvent{Namespace: ns}) {
				return false
			}
		}
	}
	return true
}

func (n *Namespaces) emit(ctx context.Context, e NamespaceEvent) bool {
	select {
	case n.events <- e:
		return true
	case <-ctx.Done():
	case <-n.s.ctx.Done():
	}
	return false
}

// follow passes the messages of an accepted request to f until the request ends, ctx is done or f
// returns false.
func (s *Session) follow(ctx context.Context, r *requestStream, f func(wire.Message) bool) {
	stop := context.AfterFunc(ctx, func() { r.abort(wire.StreamCancelled) })
	defer func() {
		stop()
		r.abort(wire.StreamCancelled)
		s.closeRequest()
	}()
	for {
		m, err := r.read()
		if err != nil || !f(m) {
			return
		}
	}
}

// namespaceEvent converts a message to an event and updates active, the announced namespaces.
func namespaceEvent(prefix Namespace, m wire.Message, active map[string]Namespace) (NamespaceEvent, error) {
	var e NamespaceEvent
	switch m := m.(type) {
	case *wire.NamespaceAdded:
		e = NamespaceEvent{slices.Concat(prefix, m.Suffix), true}
	case *wire.NamespaceDone:
		e = NamespaceEvent{slices.Concat(prefix, m.Suffix), false}
	default:
		return e, protocolViolation("unexpected %s on a request stream", m.Type())
	}
	if err := (TrackName{Namespace: e.Namespace}).Validate(); err != nil {
		return e, protocolViolation("%s: %v", m.Type(), err)
	}
	key := e.Namespace.String()
	if e.Added {
		active[key] = e.Namespace
	} else if _, known := active[key]; !known {
		return e, protocolViolation("NAMESPACE_DONE without its NAMESPACE")
	} else {
		delete(active, key)
	}
	return e, nil
}

// SubscribeTracks requests a PUBLISH of every track under prefix until ctx is done (§10.19). The
// session's Handler receives them.
func (s *Session) SubscribeTracks(ctx context.Context, prefix Namespace, tokens ...wire.Token) error {
	return s.subscribeTracks(ctx, prefix, Parameters{AuthorizationTokens: tokens})
}

// SubscribeTracksPaused is SubscribeTracks with forward state 0: no objects are sent before a
// PUBLISH is accepted, nor afterwards if it is accepted as paused.
func (s *Session) SubscribeTracksPaused(ctx context.Context, prefix Namespace, tokens ...wire.Token) error {
	return s.subscribeTracks(ctx, prefix, Parameters{AuthorizationTokens: tokens, Forward: new(false)})
}

func (s *Session) subscribeTracks(ctx context.Context, prefix Namespace, p Parameters) error {
	r, err := s.openAccepted(ctx, func(id uint64) wire.Message {
		return &wire.SubscribeTracks{RequestID: id, Prefix: prefix, Parameters: p}
	})
	if err != nil {
		return err
	}
	go s.follow(ctx, r, func(m wire.Message) bool {
		b, ok := m.(*wire.PublishBlocked)
		if !ok {
			_ = r.unexpectedMessage(m)
			return false
		}
		name := TrackName{Namespace: slices.Concat(prefix, b.NamespaceSuffix), Name: b.Name}
		s.log.Warn(
			"moqt track not published to us: too many requests are open",
			"track",
			truncate(name.String()),
			"peer",
			s.RemoteAddr(),
		)
		return true
	})
	return nil
}
