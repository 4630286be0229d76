package router

import (
	"errors"
	"maps"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/relay/limits"
)

// What a session may take of the relay.

// allowance is a session's; nil, which bounds nothing, for those that the relay dialled.
func allowance(s *moqt.Session) *limits.Peer {
	p, _ := s.Admission().(*limits.Peer)
	return p
}

// request is any request of a peer.
type request interface {
	RejectWith(err error) error
}

// reject refuses a request and counts why.
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

// admit takes what a request needs until release, or refuses the request. A request waits
// until answered is called, or release.
func (c *client) admit(req request, needs ...limits.Kind) (answered, release func(), ok bool) {
	p := allowance(c.s)
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

// receipt takes what a track takes of its publisher until release: the track's place, and its
// properties.
func receipt(s *moqt.Session, props moqt.Properties) (release func(), err error) {
	p, bytes := allowance(s), int64(len(props))
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

// ingress paces what comes from a publisher: what it has not sent yet waits there.
type ingress struct {
	p   *limits.Peer
	sub *moqt.Subscription
}

// spend counts objects and their bytes and waits until more may come.
func (i ingress) spend(objects, bytes int) {
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

// take counts a datagram; false when it is too many.
func (i ingress) take(bytes int) bool {
	return i.p.Take(limits.Objects, 1) == nil && i.p.Take(limits.Bytes, int64(bytes)) == nil
}

// RefusedRequests returns how many requests were refused, by code.
func (r *Router) RefusedRequests() map[wire.RequestCode]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.refused)
}
