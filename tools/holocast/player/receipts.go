package player

import (
	"context"
	"log/slog"
	"sync"

	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/qoe"
)

// receipts sends one datagram per displayed frame on the track receipts/<viewer> in the session's
// namespace. It offers the track to the relay with PUBLISH, so that peers following the session's
// tracks (SUBSCRIBE_TRACKS) receive it without knowing the viewer's name.
type receipts struct {
	mu   sync.Mutex
	pub  *moqt.Publication
	sent uint64 // next group; continues across connections
}

func (p *Player) receiptsTrack() moqt.TrackName {
	return moqt.TrackName{Namespace: p.cfg.Namespace, Name: connect.ReceiptsPrefix + p.cfg.Viewer}
}

func (r *receipts) open(ctx context.Context, s *moqt.Session, name moqt.TrackName, log *slog.Logger) {
	pub, err := s.Publish(ctx, name, moqt.TrackInfo{Largest: func() (moqt.Location, bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return moqt.Location{Group: r.sent - 1}, r.sent > 0
	}})
	if err != nil {
		if ctx.Err() == nil {
			log.Debug("sending no receipts: the relay refused the track", "track", name.String(), "err", err)
		}
		return
	}
	r.mu.Lock()
	r.pub = pub
	r.mu.Unlock()
}

// close stops sending receipts on a session.
func (r *receipts) close(s *moqt.Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pub != nil && r.pub.Session() == s {
		r.pub = nil
	}
}

// send sends one receipt if the relay forwards the track.
func (r *receipts) send(receipt qoe.Receipt, log *slog.Logger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pub == nil || !r.pub.Forwarding() {
		return
	}
	// The session counts the datagrams that the transport drops.
	if err := r.pub.SendDatagram(moqt.Datagram{Group: r.sent, Priority: 128, Payload: receipt.Append(nil)}); err != nil {
		log.Debug("could not send a receipt", "err", err)
	}
	r.sent++
}
