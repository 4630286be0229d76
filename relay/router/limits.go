package router

import (
	"errors"
	"maps"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/relay/limits"
)

// peerLimits returns the limits of a session. They are nil, which means unlimited, for sessions that
// the relay dialled.
func peerLimits(s *moqt.Session) *limits.Peer {
	p, _ := s.Admission().(*limits.Peer)
	return p
}

// request is any request of a peer.
type request interface {
	RejectWith(err error) error
}

// reject refuses a request and counts the reason.
func (r *Router) reject(req request, err error) {
	code := wire.RequestInternalError
	if e := (*moqt.RequestError)(nil); errors.As(err, &e) {
		code = e.Code
	}
	r.mu.Lock()
	r.refused[code]++
	r.mu.Unlock()
	_ = req.RejectWith(err)
}

// admit charges a request to the session's limits until release is called, or refuses it. The
// request counts as unanswered until answered or release is called.
func (c *client) admit(req request, needs ...limits.Kind) (answered, release func(), ok bool) {
	p := peerLimits(c.s)
	if c.relay { // its requests are those of all its viewers
		p = nil
	}
	var held func()
	answered, err := p.Hold(limits.Waiting)
	if err == nil {
		if held, err = p.Hold(needs...); err != nil {
			answered()
		}
	}
	if err != nil {
		c.r.log.Debug("request refused", "peer", c.s.RemoteAddr().String(), "reason", err.Error())
		c.r.reject(req, err)
		return nil, nil, false
	}
	return answered, func() { answered(); held() }, true
}

// chargeTrack charges a track and its properties to its publisher until release is called.
func chargeTrack(s *moqt.Session, props moqt.Properties) (release func(), err error) {
	p, bytes := peerLimits(s), int64(len(props))
	held, err := p.Hold(limits.Tracks)
	if err != nil {
		return nil, err
	}
	if err := p.Acquire(limits.Properties, bytes); err != nil {
		held()
		return nil, err
	}
	return func() { held(); p.Release(limits.Properties, bytes) }, nil
}

// ingress limits a publisher's rate. Above the rate, objects on streams wait at the publisher, and
// datagrams are dropped.
type ingress struct {
	p   *limits.Peer
	sub *moqt.Subscription
}

// charge counts objects and bytes and waits until the rate allows more.
func (i ingress) charge(objects, bytes int) {
	wait := max(i.p.Spend(limits.Objects, int64(objects)), i.p.Spend(limits.Bytes, int64(bytes)))
	if wait <= 0 {
		return
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-i.sub.Done():
	case <-i.sub.Session().Context().Done():
	}
}

// tryCharge counts a datagram. It returns false if the datagram exceeds the rate.
func (i ingress) tryCharge(bytes int) bool {
	return i.p.Take(limits.Objects, 1) == nil && i.p.Take(limits.Bytes, int64(bytes)) == nil
}

// RefusedRequests returns the number of refused requests by code.
func (r *Router) RefusedRequests() map[wire.RequestCode]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.refused)
}
