//go:build linux && (amd64 || arm64)

package fastpath

import (
	"holocast/internal/moqt"
	"holocast/internal/origin"
)

// sink skips the objects that the kernel forwarded.
type sink struct {
	origin.Publication
	s *subscriber
	k *track
}

// SendDatagram sends an object unless the kernel has sent it.
func (s *sink) SendDatagram(d moqt.Datagram) error {
	c := s.s.c
	c.m.observe(s.k, moqt.Location{Group: d.Group, Object: d.Object})
	inKernel := s.s.inKernel.Load()
	if !inKernel && !s.s.lingers(c.m) {
		return s.Publication.SendDatagram(d)
	}
	if source := s.k.source.Load(); source != nil && inKernel {
		source.received()
	}
	p := location{s.k.id, d.Group, d.Object}
	if c.forwarded(p, inKernel) {
		return nil
	}
	defer c.passedOn(p)
	return s.Publication.SendDatagram(d)
}
