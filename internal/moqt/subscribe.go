package moqt

import (
	"holocast/internal/moqt/wire"
)

// SubscribeRequest is an incoming SUBSCRIBE (§10.7).
type SubscribeRequest struct {
	*Request
	Track TrackName
	role  *role
	// additional means that the peer is already subscribed to the track. This subscription then
	// gets its own alias.
	additional bool
}

func (s *Session) handleSubscribe(req *Request, m *wire.Subscribe) {
	role, sole := s.acquirePublisherRole(m.Track)
	if role == nil {
		_ = req.Reject(wire.RequestDuplicateSubscription, "already subscribed to "+m.Track.String())
		return
	}
	defer s.releaseRole(s.sending, role)
	serve(req, s.handler.Subscribe, &SubscribeRequest{Request: req, Track: m.Track, role: role, additional: !sole})
}

// Accept sends SUBSCRIBE_OK and returns the sending end. If the filter's range was already
// published, it rejects the request and returns an error.
func (r *SubscribeRequest) Accept(info TrackInfo) (*Publication, error) {
	s := r.stream.s
	if r.additional {
		info.Alias = nil
	}
	p := s.newPublication(r.Track, r.stream, info)
	p.tokens = r.Tokens
	params := info.parameters()
	if err := p.begin(r.Parameters, params.LargestObject); err != nil {
		p.cancel(err)
		_ = r.RejectWith(err)
		return nil, err
	}
	if err := r.startResponse(); err != nil {
		p.cancel(err)
		return nil, err
	}
	ok := &wire.SubscribeOK{TrackAlias: p.alias, Parameters: params, Properties: r.included(info.Properties)}
	if err := r.stream.send(ok); err != nil {
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
		s.releaseRole(s.sending, r.role)
	}()
	p.startFill(r.stream.id, r.Parameters, params.LargestObject)
	if g := r.Parameters.NewGroupRequest; g != nil && info.NewGroup != nil {
		info.NewGroup(*g)
	}
	return p, nil
}
