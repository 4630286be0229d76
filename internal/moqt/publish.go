package moqt

import (
	"context"

	"holocast/internal/moqt/wire"
)

// Publish offers a track to the peer and waits for its answer (§10.10).
func (s *Session) Publish(ctx context.Context, track TrackName, info TrackInfo, tokens ...wire.Token) (*Publication, error) {
	if err := track.Validate(); err != nil {
		return nil, err
	}
	claim := s.claimTrack(s.sending, track)
	if claim == nil { // from draft-19 on we might, and do not
		return nil, &RequestError{Code: wire.RequestDuplicateSubscription, Reason: "already publishing " + track.String()}
	}
	p := s.newPublication(track, nil, info)
	var id *uint64
	over := func(err error) {
		p.cancel(err)
		if id != nil {
			s.mu.Lock()
			delete(s.joinable, *id)
			s.mu.Unlock()
		}
		s.release(s.sending, claim)
	}
	params := info.parameters()
	params.AuthorizationTokens = tokens
	if s.version >= wire.Draft19 {
		p.assume(info.Defaults)
		params.GroupOrder = info.Defaults.GroupOrder
	}
	if info.Paused {
		p.forward, params.Forward = false, new(false)
	}
	r, err := s.openRequest(ctx, func(i uint64) wire.Message {
		id = &i
		s.mu.Lock()
		s.joinable[i] = nil // pending
		s.mu.Unlock()
		return &wire.Publish{RequestID: i, Track: track, TrackAlias: p.alias, Parameters: params, Properties: info.Properties}
	})
	if err != nil {
		over(err)
		return nil, err
	}
	p.r = r
	m, err := r.awaitResponse(ctx, 0)
	if err == nil {
		ok, isOK := m.(*wire.RequestOK)
		if !isOK {
			err = r.unexpectedMessage(m)
		} else if err = p.begin(accepted(ok.Parameters), params.LargestObject); err != nil {
			_ = p.Done(wire.DoneSubscriptionEnded, err.Error())
		}
	}
	if err != nil {
		over(err)
		s.closeRequest()
		return nil, err
	}
	s.mu.Lock()
	s.joinable[r.id] = p
	s.notify()
	s.mu.Unlock()
	go func() {
		p.run()
		over(nil)
		s.closeRequest()
	}()
	return p, nil
}

// accepted are the parameters of a PUBLISH_OK with what it means by saying nothing (§10.2.12).
func accepted(p Parameters) Parameters {
	if p.Forward == nil {
		p.Forward = new(true)
	}
	return p
}

// duplicate is the code for a PUBLISH of a track that is received already. Draft-19 has none
// of its own: it allows that, and we do not want it.
func (s *Session) duplicate() wire.RequestCode {
	if s.version >= wire.Draft19 {
		return wire.RequestUninterested
	}
	return wire.RequestDuplicateSubscription
}

// PublishRequest is an incoming PUBLISH (§10.10).
type PublishRequest struct {
	*Request
	Track      TrackName
	Largest    *Location
	Properties Properties
	alias      uint64
	role       *role
	pending    *role // our own SUBSCRIBE's, in place of role
}

func (s *Session) handlePublish(req *Request, m *wire.Publish) {
	claim, pending := s.claimOffered(m.Track)
	if claim == nil && pending == nil {
		_ = req.Reject(s.duplicate(), "already subscribed to "+m.Track.String())
		return
	}
	r := &PublishRequest{
		Request: req, Track: m.Track, Largest: m.Parameters.LargestObject,
		Properties: m.Properties, alias: m.TrackAlias, role: claim, pending: pending,
	}
	defer func() {
		if r.role != nil {
			s.release(s.receiving, r.role)
		}
	}()
	if t, found := m.Properties.UnknownMandatory(); found {
		_ = req.RejectWith(unknownMandatory(t))
		return
	}
	serve(req, s.handler.Publish, r)
}

// Accept answers PUBLISH_OK and returns the receiving end.
func (r *PublishRequest) Accept(o SubscribeOptions) (*Subscription, error) {
	s := r.stream.s
	if r.pending != nil {
		if r.role = s.takeOver(r.pending); r.role == nil {
			r.role = s.claimSoon(s.receiving, r.Track) // it may have been refused
		}
		if r.role == nil {
			err := &RequestError{Code: wire.RequestDuplicateSubscription, Reason: "already subscribed to " + r.Track.String()}
			_ = r.RejectWith(err)
			return nil, err
		}
		r.pending = nil
	}
	sub := s.newSubscription(r.Track, o)
	sub.r, sub.role = r.stream, r.role
	sub.establish(r.alias, r.Parameters, r.Properties)
	if err := r.claim(); err != nil {
		return nil, err
	}
	if err := s.register(sub); err != nil {
		r.running.Done()
		s.fail(err)
		return nil, err
	}
	s.mu.Lock()
	s.openRequests++ // the request's own ends with its handler, this with the subscription
	s.mu.Unlock()
	p := o.parameters()
	p.AuthorizationTokens, p.RendezvousTimeout = nil, nil
	if err := r.stream.send(&wire.RequestOK{Parameters: p}); err != nil {
		sub.end(err)
		r.running.Done()
		return nil, err
	}
	go func() {
		defer r.running.Done()
		sub.run()
	}()
	return sub, nil
}
