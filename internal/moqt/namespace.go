package moqt

import (
	"context"
	"io"
	"sync"

	"holocast/internal/moqt/wire"
)

// NamespaceRequest is an incoming PUBLISH_NAMESPACE (§10.16).
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
	defer r.stream.finish()
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

// PublishNamespace tells the peer that we have tracks under ns (§10.16). The peer
// then sends its requests for them to the session's Handler.
func (s *Session) PublishNamespace(ctx context.Context, ns Namespace, tokens ...wire.Token) (*PublishedNamespace, error) {
	if err := (TrackName{Namespace: ns}).Validate(); err != nil {
		return nil, err
	}
	r, err := s.openRequest(ctx, func(id uint64) wire.Message {
		return &wire.PublishNamespace{RequestID: id, Namespace: ns, Parameters: Parameters{AuthorizationTokens: tokens}}
	})
	if err != nil {
		return nil, err
	}
	m, err := r.awaitResponse(ctx, 0)
	if err != nil {
		s.closeRequest()
		return nil, err
	}
	if _, ok := m.(*wire.RequestOK); !ok {
		s.closeRequest()
		return nil, r.unexpectedMessage(m)
	}
	p := &PublishedNamespace{r: r, done: make(chan struct{})}
	go func() {
		_, err := r.read()
		p.end(err)
	}()
	return p, nil
}

func (p *PublishedNamespace) end(err error) {
	p.once.Do(func() {
		p.err = err
		close(p.done)
		p.r.s.closeRequest()
	})
}

// Done is closed when the peer revoked its acceptance or the session ended.
func (p *PublishedNamespace) Done() <-chan struct{} { return p.done }

// Withdraw stops offering the namespace; subscriptions go on.
func (p *PublishedNamespace) Withdraw() {
	p.r.abort(wire.StreamCancelled)
	p.end(&StreamError{Code: wire.StreamCancelled})
}

// DiscoveryRequest is an incoming SUBSCRIBE_NAMESPACE, or with Tracks a
// SUBSCRIBE_TRACKS (§10.18, §10.19).
type DiscoveryRequest struct {
	*Request
	Prefix Namespace
	Tracks bool
}

// Accept answers REQUEST_OK, calls begin, which may announce from then on, and
// returns when the subscriber is no longer interested.
func (r *DiscoveryRequest) Accept(begin func(*Announcer)) error {
	if err := r.claim(); err != nil {
		return err
	}
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

// Blocked says that a track could not be published for want of streams.
func (a *Announcer) Blocked(track TrackName) error {
	return a.r.send(&wire.PublishBlocked{NamespaceSuffix: track.Namespace[a.prefix:], Name: track.Name})
}

// NamespaceEvent is a namespace that appeared (Added) or went away.
type NamespaceEvent struct {
	Namespace Namespace
	Added     bool
}

// SubscribeNamespace follows the namespaces under prefix until ctx ends (§10.18).
// The channel is closed when the subscription is over.
func (s *Session) SubscribeNamespace(ctx context.Context, prefix Namespace, tokens ...wire.Token) (<-chan NamespaceEvent, error) {
	r, err := s.openRequest(ctx, func(id uint64) wire.Message {
		return &wire.SubscribeNamespace{RequestID: id, Prefix: prefix, Parameters: Parameters{AuthorizationTokens: tokens}}
	})
	if err != nil {
		return nil, err
	}
	m, err := r.awaitResponse(ctx, 0)
	if err != nil {
		s.closeRequest()
		return nil, err
	}
	if _, ok := m.(*wire.RequestOK); !ok {
		s.closeRequest()
		return nil, r.unexpectedMessage(m)
	}
	events := make(chan NamespaceEvent)
	stop := context.AfterFunc(ctx, func() { r.abort(wire.StreamCancelled) })
	go func() {
		defer stop()
		defer s.closeRequest()
		defer close(events)
		active := map[string]bool{}
		for {
			m, err := r.read()
			if err != nil {
				return
			}
			var e NamespaceEvent
			switch m := m.(type) {
			case *wire.NamespaceAdded:
				e = NamespaceEvent{append(prefix[:len(prefix):len(prefix)], m.Suffix...), true}
				active[e.Namespace.String()] = true
			case *wire.NamespaceDone:
				e = NamespaceEvent{append(prefix[:len(prefix):len(prefix)], m.Suffix...), false}
				if !active[e.Namespace.String()] {
					s.fail(protocolViolation("NAMESPACE_DONE without its NAMESPACE"))
					return
				}
				delete(active, e.Namespace.String())
			default:
				_ = r.unexpectedMessage(m)
				return
			}
			select {
			case events <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return events, nil
}

// SubscribeTracks asks for a PUBLISH of every track under prefix, until ctx ends
// (§10.19). They come to the session's Handler.
func (s *Session) SubscribeTracks(ctx context.Context, prefix Namespace, tokens ...wire.Token) error {
	r, err := s.openRequest(ctx, func(id uint64) wire.Message {
		return &wire.SubscribeTracks{RequestID: id, Prefix: prefix, Parameters: Parameters{AuthorizationTokens: tokens}}
	})
	if err != nil {
		return err
	}
	m, err := r.awaitResponse(ctx, 0)
	if err != nil {
		s.closeRequest()
		return err
	}
	if _, ok := m.(*wire.RequestOK); !ok {
		s.closeRequest()
		return r.unexpectedMessage(m)
	}
	stop := context.AfterFunc(ctx, func() { r.abort(wire.StreamCancelled) })
	go func() {
		defer stop()
		defer s.closeRequest()
		for {
			m, err := r.read()
			if err != nil {
				return
			}
			if _, ok := m.(*wire.PublishBlocked); !ok {
				_ = r.unexpectedMessage(m)
				return
			}
		}
	}()
	return nil
}
