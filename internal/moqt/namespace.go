package moqt

import (
	"context"
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

// Accept takes the namespace and returns when the publisher withdraws it or the
// session ends.
func (r *NamespaceRequest) Accept(accepted func()) error {
	if err := r.claim(); err != nil {
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

// untilWithdrawn answers updates until the peer withdraws an accepted request,
// by ending its direction of the stream or refusing ours. refuse, where set, may
// turn an update down, which ends the request (§10.9).
func (r *Request) untilWithdrawn(refuse func(Parameters) *wire.RequestError) error {
	defer r.stream.end()
	stop := context.AfterFunc(r.Context(), func() { r.stream.str.stop(wire.StreamCancelled) })
	defer stop()
	for {
		m, err := r.stream.read()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		u, ok := m.(*wire.RequestUpdate)
		if !ok {
			return r.stream.unexpectedMessage(m)
		}
		if err := r.stream.s.checkUpdate(u); err != nil {
			return err
		}
		if refuse != nil {
			if e := refuse(u.Parameters); e != nil {
				return r.stream.send(e)
			}
		}
		if err := r.stream.send(&wire.RequestOK{}); err != nil {
			return err
		}
	}
}

// PublishedNamespace is a namespace the peer accepted from us.
type PublishedNamespace struct {
	r    *requestStream
	done chan struct{}
	once sync.Once
	err  error
}

// PublishNamespace tells the peer that we have tracks under ns (§10.15). The peer
// then sends its requests for them to the session's Handler.
func (s *Session) PublishNamespace(ctx context.Context, ns Namespace, tokens ...wire.Token) (*PublishedNamespace, error) {
	if err := (TrackName{Namespace: ns}).Validate(); err != nil {
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
			// A peer that has nothing more to say has not revoked anything: that
			// takes a reset or STOP_SENDING (§3.3.2).
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

// openAccepted opens a request that REQUEST_OK accepts. Its user calls
// closeRequest when it is over.
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

// Done is closed when the peer revoked its acceptance, the namespace was
// withdrawn or the session ended; Err then says which.
func (p *PublishedNamespace) Done() <-chan struct{} { return p.done }

// Err is nil while the namespace is published, then why it no longer is.
func (p *PublishedNamespace) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Withdraw stops offering the namespace; subscriptions go on.
func (p *PublishedNamespace) Withdraw() { p.end(&StreamError{Code: wire.StreamCancelled}) }

// DiscoveryRequest is an incoming SUBSCRIBE_NAMESPACE, or with Tracks a
// SUBSCRIBE_TRACKS (§10.18, §10.19).
type DiscoveryRequest struct {
	*Request
	Prefix Namespace
	Tracks bool
}

// handleDiscovery refuses a prefix that overlaps another of the same kind.
func (s *Session) handleDiscovery(r *DiscoveryRequest, h func(*DiscoveryRequest)) {
	free := s.waitFor(s.wait.cancel, func() bool {
		if slices.ContainsFunc(s.discoveries, r.overlaps) {
			return false
		}
		s.discoveries = append(s.discoveries, r)
		return true
	})
	if !free {
		_ = r.Reject(wire.RequestPrefixOverlap, "the prefix overlaps that of another request")
		return
	}
	serve(r.Request, h, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discoveries = slices.DeleteFunc(s.discoveries, func(d *DiscoveryRequest) bool { return d == r })
	s.notify()
}

func (r *DiscoveryRequest) overlaps(d *DiscoveryRequest) bool {
	return r.Tracks == d.Tracks && (r.Prefix.HasPrefix(d.Prefix) || d.Prefix.HasPrefix(r.Prefix))
}

// Accept answers REQUEST_OK, calls begin, which may announce from then on, and
// returns when the subscriber is no longer interested.
func (r *DiscoveryRequest) Accept(begin func(*Announcer)) error {
	if err := r.claim(); err != nil {
		return err
	}
	defer r.running.Done()
	if err := r.stream.send(&wire.RequestOK{}); err != nil {
		return err
	}
	begin(&Announcer{r.stream, len(r.Prefix)})
	return r.untilWithdrawn(func(p Parameters) *wire.RequestError {
		if p.NamespacePrefix == nil {
			return nil
		}
		return &wire.RequestError{Code: wire.RequestNotSupported, Reason: "the prefix cannot be changed; subscribe again"}
	})
}

// Announcer tells a namespace subscriber what comes and goes.
type Announcer struct {
	r      *requestStream
	prefix int
}

// Added announces a namespace under the prefix.
func (a *Announcer) Added(ns Namespace) error {
	return a.r.send(&wire.NamespaceAdded{Suffix: ns[a.prefix:]})
}

// Done takes back a namespace that was announced.
func (a *Announcer) Done(ns Namespace) error {
	return a.r.send(&wire.NamespaceDone{Suffix: ns[a.prefix:]})
}

// Blocked says that a track could not be published for want of streams: Publish
// failed with ErrRequestsBlocked.
func (a *Announcer) Blocked(track TrackName) error {
	return a.r.send(&wire.PublishBlocked{NamespaceSuffix: track.Namespace[a.prefix:], Name: track.Name})
}

// NamespaceEvent is a namespace that appeared (Added) or went away.
type NamespaceEvent struct {
	Namespace Namespace
	Added     bool
}

// maxNamespaces bounds what one SubscribeNamespace remembers of its peer.
const maxNamespaces = 1 << 14

// SubscribeNamespace follows the namespaces under prefix until ctx ends (§10.18).
// The channel is closed when the subscription is over; none of the namespaces is
// then known to be published any more.
func (s *Session) SubscribeNamespace(ctx context.Context, prefix Namespace, tokens ...wire.Token) (<-chan NamespaceEvent, error) {
	r, err := s.openAccepted(ctx, func(id uint64) wire.Message {
		return &wire.SubscribeNamespace{RequestID: id, Prefix: prefix, Parameters: Parameters{AuthorizationTokens: tokens}}
	})
	if err != nil {
		return nil, err
	}
	events := make(chan NamespaceEvent)
	go func() {
		defer close(events)
		active := map[string]bool{}
		s.follow(ctx, r, func(m wire.Message) bool {
			e, err := namespaceEvent(prefix, m, active)
			if err != nil {
				s.fail(err)
				return false
			}
			if len(active) > maxNamespaces {
				s.log.Warn("moqt namespace subscription cancelled: too many namespaces", "prefix", truncate(prefix.String()), "peer", s.RemoteAddr())
				return false
			}
			select {
			case events <- e:
				return true
			case <-ctx.Done():
			case <-s.ctx.Done():
			}
			return false
		})
	}()
	return events, nil
}

// follow hands the messages of an accepted request to f until the request ends,
// ctx does or f returns false.
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

// namespaceEvent is what a message says of a namespace; active holds those that
// are there.
func namespaceEvent(prefix Namespace, m wire.Message, active map[string]bool) (NamespaceEvent, error) {
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
		active[key] = true
	} else if !active[key] {
		return e, protocolViolation("NAMESPACE_DONE without its NAMESPACE")
	} else {
		delete(active, key)
	}
	return e, nil
}

// SubscribeTracks asks for a PUBLISH of every track under prefix, until ctx ends
// (§10.19). They come to the session's Handler.
func (s *Session) SubscribeTracks(ctx context.Context, prefix Namespace, tokens ...wire.Token) error {
	r, err := s.openAccepted(ctx, func(id uint64) wire.Message {
		return &wire.SubscribeTracks{RequestID: id, Prefix: prefix, Parameters: Parameters{AuthorizationTokens: tokens}}
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
		s.log.Warn("moqt track not published to us: too many requests are open", "track", truncate(name.String()), "peer", s.RemoteAddr())
		return true
	})
	return nil
}
