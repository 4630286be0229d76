package moqt

import (
	"holocast/internal/moqt/wire"
)

// SubscribeRequest is an incoming SUBSCRIBE (§10.7).
type SubscribeRequest struct {
	*Request
	Track TrackName
	role  *role
	// further says that the peer is subscribed to the track already: it gets an alias of its own.
	further bool
}

func (s *Session) handleSubscribe(req *Request, m *wire.Subscribe) {
	claim, alone := s.claimPublishing(m.Track)
	if claim == nil {
		_ = req.Reject(wire.RequestDuplicateSubscription, "already subscribed to "+m.Track.String())
		return
	}
	defer s.release(s.sending, claim)
	serve(req, s.handler.Subscribe, &SubscribeRequest{Request: req, Track: m.Track, role: claim, further: !alone})
}

// Accept answers SUBSCRIBE_OK and returns the sending end. It fails when the
// filter lies wholly in the past, having rejected the request.
func (r *SubscribeRequest) Accept(info TrackInfo) (*Publication, error) {
	s := r.stream.s
	if r.further {
		info.Alias = nil
	}
	p := s.newPublication(r.Track, r.stream, info)
	params := info.parameters()
	if err := p.begin(r.Parameters, params.LargestObject); err != nil {
		p.cancel(err)
		_ = r.RejectWith(err)
		return nil, err
	}
	if err := r.claim(); err != nil {
		p.cancel(err)
		return nil, err
	}
	if err := r.stream.send(&wire.SubscribeOK{TrackAlias: p.alias, Parameters: params, Properties: info.Properties}); err != nil {
		p.end(err)
		r.running.Done()
		return nil, err
	}
	s.mu.Lock()
	s.joinable[r.stream.id] = p
	s.notify()
	s.mu.Unlock()
	go func() {
		defer r.running.Done()
		p.run()
		s.release(s.sending, r.role)
	}()
	if g := r.Parameters.NewGroupRequest; g != nil && info.NewGroup != nil {
		info.NewGroup(*g)
	}
	return p, nil
}
