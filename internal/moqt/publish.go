package moqt

import (
	"context"
	"reflect"

	"holocast/internal/moqt/wire"
)

// Publish offers a track to the peer and waits for the response (§10.10). It is not sent as early data.
func (s *Session) Publish(
	ctx context.Context,
	track TrackName,
	info TrackInfo,
	tokens ...wire.Token,
) (*Publication, error) {
	if err := track.Validate(); err != nil {
		return nil, err
	}
	if err := s.established(ctx); err != nil {
		return nil, err
	}
	role := s.acquireRole(s.sending, track)
	if role == nil { // draft-19 would allow a second publication; this package does not
		return nil, &RequestError{
			Code:   wire.RequestDuplicateSubscription,
			Reason: "already publishing " + track.String(),
		}
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
		s.releaseRole(s.sending, role)
	}
	params := info.parameters()
	params.AuthorizationTokens = tokens
	if s.version >= wire.Draft19 {
		p.applyDefaults(info.Defaults)
		params.GroupOrder = info.Defaults.GroupOrder
	}
	properties := info.Properties
	if s.version >= wire.Draft20 {
		d := info.Defaults
		params.SubscriberPriority, params.Filter = d.SubscriberPriority, d.Filter
		params.ObjectDeliveryTimeout, params.SubgroupDeliveryTimeout = d.ObjectDeliveryTimeout, d.SubgroupDeliveryTimeout
		if d.IncludeProperties != nil && !*d.IncludeProperties {
			properties = nil
		}
	}
	if info.Paused {
		p.forward, params.Forward = false, new(false)
	}
	r, err := s.openRequest(ctx, func(i uint64) wire.Message {
		id = &i
		s.mu.Lock()
		s.joinable[i] = nil // pending
		s.mu.Unlock()
		return &wire.Publish{
			RequestID:  i,
			Track:      track,
			TrackAlias: p.alias,
			Parameters: params,
			Properties: properties,
		}
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
		} else if err = p.begin(s.accepted(ok.Parameters), params.LargestObject); err != nil {
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
	p.startFill(r.id, info.Defaults, params.LargestObject)
	go func() {
		p.run()
		over(nil)
		s.closeRequest()
	}()
	return p, nil
}

// accepted returns the parameters of a PUBLISH_OK with the default forward state (§10.2.12). From
// draft-20 on, PUBLISH_OK does not change the state.
func (s *Session) accepted(p Parameters) Parameters {
	if p.Forward == nil && s.version < wire.Draft20 {
		p.Forward = new(true)
	}
	return p
}

// duplicateCode is the code that rejects a PUBLISH of a track that is already received. Draft-19
// allows such a PUBLISH and therefore has no code of its own for it.
func (s *Session) duplicateCode() wire.RequestCode {
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
	pending    *role // role of our unanswered SUBSCRIBE; role is then nil
}

func (s *Session) handlePublish(req *Request, m *wire.Publish) {
	role, pending := s.acquireSubscriberRole(m.Track)
	if role == nil && pending == nil {
		_ = req.Reject(s.duplicateCode(), "already subscribed to "+m.Track.String())
		return
	}
	r := &PublishRequest{
		Request: req, Track: m.Track, Largest: m.Parameters.LargestObject,
		Properties: m.Properties, alias: m.TrackAlias, role: role, pending: pending,
	}
	defer func() {
		if r.role != nil {
			s.releaseRole(s.receiving, r.role)
		}
	}()
	if t, found := m.Properties.UnknownMandatory(); found {
		_ = req.RejectWith(unknownMandatory(t))
		return
	}
	serve(req, s.handler.Publish, r)
}

// Accept sends PUBLISH_OK and returns the receiving end.
func (r *PublishRequest) Accept(o SubscribeOptions) (*Subscription, error) {
	s := r.stream.s
	if r.pending != nil {
		if r.role = s.takeOver(r.pending); r.role == nil {
			r.role = s.waitForRole(s.receiving, r.Track) // the SUBSCRIBE may have been rejected
		}
		if r.role == nil {
			err := &RequestError{
				Code:   wire.RequestDuplicateSubscription,
				Reason: "already subscribed to " + r.Track.String(),
			}
			_ = r.RejectWith(err)
			return nil, err
		}
		r.pending = nil
	}
	sub := s.newSubscription(r.Track, o)
	sub.r, sub.role = r.stream, r.role
	sub.establish(r.alias, r.Parameters, r.Properties)
	if err := r.startResponse(); err != nil {
		return nil, err
	}
	if err := s.register(sub); err != nil {
		r.running.Done()
		s.fail(err)
		return nil, err
	}
	s.mu.Lock()
	s.openRequests++ // in addition to the handler's count, which ends with the handler
	s.mu.Unlock()
	if err := r.answer(sub, o); err != nil {
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

// answer sends PUBLISH_OK with the subscription's parameters. From draft-20 on, those that differ from
// the PUBLISH follow in a REQUEST_UPDATE, whose refusal ends the subscription.
func (r *PublishRequest) answer(sub *Subscription, o SubscribeOptions) error {
	p := o.parameters()
	p.AuthorizationTokens, p.RendezvousTimeout = nil, nil
	if r.stream.s.version < wire.Draft20 {
		return r.stream.send(&wire.RequestOK{Parameters: p})
	}
	if err := r.stream.send(&wire.RequestOK{}); err != nil {
		return err
	}
	p.GroupOrder = nil // cannot be changed
	if f := r.Parameters.Forward; f != nil && !*f && p.Forward == nil {
		p.Forward = new(true)
	}
	if reflect.ValueOf(p).IsZero() {
		return nil
	}
	sub.updates = append(sub.updates, make(chan updateReply, 1))
	return r.stream.send(&wire.RequestUpdate{RequestID: r.stream.s.takeRequestID(), Parameters: p})
}
