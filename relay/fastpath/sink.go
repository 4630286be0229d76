//go:build linux && (amd64 || arm64)

package fastpath

import (
	"holocast/internal/moqt"
	"holocast/internal/origin"
)

// sink skips the objects that the kernel forwarded.
type sink struct {
	origin.Publication
	c *conn
	k *track
}

// SendDatagram sends an object unless the kernel has sent it.
func (s *sink) SendDatagram(d moqt.Datagram) error {
	if source := s.k.source.Load(); source != nil {
		source.received()
	}
	p := location{s.k.id, d.Group, d.Object}
	if s.c.forwarded(p) {
		return nil
	}
	defer s.c.passedOn(p)
	return s.Publication.SendDatagram(d)
}
