package multipath

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"

	"holocast/internal/congestion"
	"holocast/internal/fbdt"
	"holocast/internal/quiccc"
)

// Intervals and limits for monitoring paths.
const (
	tick       = 20 * time.Millisecond  // while data flows
	idleTick   = 250 * time.Millisecond // otherwise
	activeFor  = time.Second            // after the last segment
	silence    = 200 * time.Millisecond // of an unused path before a PING, while data flows
	probeEvery = 100 * time.Millisecond // PINGs on a path that is down
	leastDown  = 100 * time.Millisecond // silence that makes a path count as down
	renewAfter = time.Second            // of a path that is down; QUIC's probes become rare
	ackDelay   = 5 * time.Millisecond   // of a single segment's acknowledgement
	lingerTime = 5 * time.Second        // of a bundle without a path
)

// workers is the number of segments that a path sends at a time, so that one is always queued
// behind the other.
const workers = 2

// path is a connection of a bundle.
type path struct {
	c      *Conn
	qc     *quic.Conn
	number int
	name   string
	since  time.Time

	kick    chan struct{} // the scheduler may have a segment
	slots   chan struct{}
	replies chan []byte // acknowledgement, newest only
	pings   chan []byte
	packets chan outgoing
	grants  chan token // to send to the client

	// Guarded by c.mu.
	removed   bool
	down      bool
	downSince time.Time
	fell      chan struct{} // closed when the path goes down or is removed
	heard     time.Time
	asked     time.Time // when we began to wait for a sign of life; zero = we do not
	pinged    time.Time
	count     uint64 // packets received
	underWay  int    // segments
	sent      uint64 // bytes of segments
	acked     uint64
	copied    uint64
	repeated  uint64
	rtt       time.Duration // smoothed
	estimate  fbdt.Estimate
}

// outgoing is an application datagram to be sent.
type outgoing struct {
	b    []byte
	done chan error
}

// add adds a connection to the bundle as a path.
func (c *Conn) add(qc *quic.Conn, name string) (*path, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return nil, context.Cause(c.ctx)
	}
	for _, old := range c.paths {
		if old.down && old.name == name {
			go old.leave("replaced")
		}
	}
	if len(c.paths) >= maxPaths {
		return nil, errTooMany
	}
	now := time.Now()
	p := &path{
		c: c, qc: qc, number: c.nextPath, name: name, since: now,
		kick: make(chan struct{}, 1), slots: make(chan struct{}, workers), replies: make(chan []byte, 1),
		pings: make(chan []byte, 1), packets: make(chan outgoing), grants: make(chan token, maxTokens),
		fell: make(chan struct{}), heard: now,
	}
	c.nextPath++
	c.paths = append(slices.Clip(c.paths), p)
	if c.linger != nil {
		c.linger.Stop()
		c.linger = nil
	}
	p.measure()
	return p, nil
}

// start starts the path's goroutines.
func (p *path) start() {
	for _, run := range []func(){p.feed, p.receive, p.sendDatagrams, p.receiveDatagrams} {
		go run()
	}
	context.AfterFunc(p.qc.Context(), p.ended)
	p.c.mu.Lock()
	p.c.kick()
	p.c.mu.Unlock()
}

// leave closes the path's connection but not the bundle.
func (p *path) leave(why string) { _ = p.qc.CloseWithError(codeLeft, why) }

// ended removes the path after its connection has ended. If the connection was closed with a code
// that concerns the whole bundle, it also closes the bundle.
func (p *path) ended() {
	c, err := p.c, context.Cause(p.qc.Context())
	var app *quic.ApplicationError
	if errors.As(err, &app) && !ofPath(app.ErrorCode) {
		c.close(err, app.ErrorCode, app.ErrorMessage)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.removed = true
	c.paths = slices.DeleteFunc(slices.Clone(c.paths), func(q *path) bool { return q == p })
	c.lastPath = p
	former := c.former[p.name].with(p)
	former.Rate, former.Down = 0, true
	c.remember(former)
	c.gone.add(p.qc.ConnectionStats())
	c.segments = slices.DeleteFunc(c.segments, func(s *segment) bool { return s.path == p })
	if !p.down {
		close(p.fell)
	}
	if c.ctx.Err() != nil {
		return
	}
	c.log.Debug("path left", "path", p.name, "peer", p.qc.RemoteAddr().String(), "reason", err)
	c.sched.RemovePath(p.number)
	c.kick()
	if len(c.paths) == 0 {
		c.linger = time.AfterFunc(lingerTime, func() { c.close(err, codeSilent, "no path is left") })
	}
}

// feed sends segments.
func (p *path) feed() {
	var sending sync.WaitGroup
	defer sending.Wait()
	over := p.qc.Context().Done()
	for {
		select {
		case p.slots <- struct{}{}:
		case <-over:
			return
		}
		for {
			seg, again, wait := p.c.next(p)
			if seg != nil {
				sending.Go(func() {
					p.send(seg)
					<-p.slots
				})
				break
			}
			if !wait {
				return
			}
			var timer <-chan time.Time
			if again > 0 {
				timer = time.After(again)
			}
			select {
			case <-p.kick:
			case <-timer:
			case <-over:
				return
			}
		}
	}
}

// send sends a segment on a QUIC stream of its own.
func (p *path) send(seg *segment) {
	c := p.c
	str, err := p.qc.OpenUniStreamSync(p.qc.Context())
	if err != nil {
		return // the end of the connection frees the segment
	}
	str.SetPriority(max(0, seg.urgency), false)
	if o, ok := any(str).(interface{ SetOrder(uint64) }); ok { // patched quic-go
		o.SetOrder(seg.Number)
	}
	c.mu.Lock()
	if seg.stale {
		c.mu.Unlock()
		str.CancelWrite(0)
		return
	}
	seg.stream = str
	h := header{seg.Number, min(c.least(), seg.Number), seg.Stream, uint64(seg.Offset), seg.last}
	c.mu.Unlock()
	_, err = str.Write(h.append(make([]byte, 0, maxHeader)))
	for _, b := range seg.data {
		if err == nil {
			_, err = str.Write(b)
		}
	}
	if err == nil {
		err = str.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var reset *quic.StreamError
	switch {
	case err == nil:
		p.sent += uint64(seg.Length)
		c.sched.Sent(seg.Number, time.Since(c.began))
	case errors.As(err, &reset) && reset.Remote && !seg.stale:
		str.CancelWrite(0)
		if i, ok := c.segment(seg.Number); ok {
			c.segments = slices.Delete(c.segments, i, i+1)
			p.underWay--
			c.sched.Lost(seg.Number)
			c.kick()
		}
	}
}

// receive reads segments.
func (p *path) receive() {
	var reading sync.WaitGroup
	defer reading.Wait()
	for {
		str, err := p.qc.AcceptUniStream(p.qc.Context())
		if err != nil {
			return
		}
		reading.Go(func() {
			repeated, err := p.c.readSegment(str)
			if err != nil {
				p.c.fail(err)
			}
			p.c.mu.Lock()
			p.repeated += repeated
			p.c.mu.Unlock()
		})
	}
}

// buffers are for reading segments.
var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// readSegment reads a segment and returns how many of its bytes were redundant. An error means that the peer
// violated the protocol.
func (c *Conn) readSegment(r io.Reader) (repeated uint64, err error) {
	buffer := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buffer)
	var h header
	var begun bool
	var end uint64
	held := 0 // bytes of an incomplete header
	for {
		n, err := r.Read(buffer[held:])
		b := buffer[:held+n]
		if !begun {
			var size int
			var bad error
			if h, size, bad = parseHeader(b); bad != nil {
				return repeated, violation("malformed segment")
			}
			begun = size > 0
			if held = len(b); begun {
				held, end = 0, h.offset
			}
			b = b[size:]
		}
		if begun {
			known, bad := c.receive(h, end, b)
			if bad != nil {
				return repeated, bad
			}
			repeated += known
			end += uint64(len(b))
		}
		switch {
		case err == io.EOF && begun:
			return repeated, c.arrived(h, end)
		case err == io.EOF || !begun && held > maxHeader:
			return repeated, violation("malformed segment")
		case err != nil:
			return repeated, nil // reset, because another copy arrived
		}
	}
}

// Datagrams.

// sendDatagrams sends acknowledgements, PINGs and application datagrams. It may block on the path's
// congestion control.
func (p *path) sendDatagrams() {
	for {
		select {
		case b := <-p.replies:
			_ = p.qc.SendDatagram(b)
		case b := <-p.pings:
			_ = p.qc.SendDatagram(b)
		case d := <-p.packets:
			d.done <- p.qc.SendDatagram(d.b)
		case <-p.qc.Context().Done():
			return
		}
	}
}

func (p *path) receiveDatagrams() {
	for {
		b, err := p.qc.ReceiveDatagram(p.qc.Context())
		if err != nil {
			return
		}
		if err := p.c.datagram(p, b); err != nil {
			p.c.fail(err)
			return
		}
	}
}

// datagram handles a datagram from the peer.
func (c *Conn) datagram(p *path, b []byte) error {
	if len(b) == 0 {
		return violation("empty datagram")
	}
	switch b[0] {
	case datagramData:
		c.deliver(b[1:])
	case datagramAck:
		numbers, err := parseAck(b[1:])
		if err != nil {
			return violation("malformed acknowledgement")
		}
		return c.acked(numbers)
	case datagramPing:
		floor, _, err := quicvarint.Parse(b[1:])
		if err != nil {
			return violation("malformed PING")
		}
		c.mu.Lock()
		if floor > c.floor {
			c.floor = floor
			c.numbers.cut(floor)
		}
		replace(p.replies, acknowledgement(c.numbers))
		c.mu.Unlock()
	default:
		c.deliver(b)
	}
	return nil
}

// deliver queues an application datagram, or drops it if the queue is full.
func (c *Conn) deliver(b []byte) {
	select {
	case c.datagrams <- b:
	default:
	}
}

// replace puts b into a channel of capacity one, replacing an older element.
func replace(to chan []byte, b []byte) {
	select {
	case <-to:
	default:
	}
	select {
	case to <- b:
	default:
	}
}

// SendDatagram sends a datagram over the path with the lowest RTT. It may wait while the path's
// queue is full. If b does not fit, the error is a *quic.DatagramTooLargeError.
func (c *Conn) SendDatagram(b []byte) error {
	escape := 0
	if len(b) == 0 || b[0] >= datagramData {
		b, escape = append([]byte{datagramData}, b...), 1
	}
	d := outgoing{b, make(chan error, 1)}
	for {
		p, fell := c.fastest()
		if p == nil {
			if c.ctx.Err() != nil {
				return context.Cause(c.ctx)
			}
			return nil // lost, as datagrams may be
		}
		select {
		case p.packets <- d:
		case <-fell:
			continue
		}
		select {
		case err := <-d.done:
			var large *quic.DatagramTooLargeError
			if errors.As(err, &large) {
				return &quic.DatagramTooLargeError{MaxDatagramPayloadSize: large.MaxDatagramPayloadSize - int64(escape)}
			}
			return nil // the end of the path loses it
		case <-fell:
			d.done = make(chan error, 1)
		}
	}
}

// fastest returns the path with the lowest RTT and a channel that is closed when that path goes
// down.
func (c *Conn) fastest() (*path, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var best *path
	for _, p := range c.paths {
		if !p.down && (best == nil || p.rtt < best.rtt) {
			best = p
		}
	}
	if best == nil || c.ctx.Err() != nil {
		return nil, nil
	}
	return best, best.fell
}

// ReceiveDatagram returns the next datagram.
func (c *Conn) ReceiveDatagram(ctx context.Context) ([]byte, error) {
	select {
	case b := <-c.datagrams:
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx)
	}
}

// sendAcks acknowledges segments over all paths, once two have arrived or ackDelay after the first.
func (c *Conn) sendAcks() {
	delay := time.NewTimer(0)
	<-delay.C
	for {
		select {
		case <-c.ackDue:
		case <-c.ctx.Done():
			return
		}
		c.mu.Lock()
		few := c.unacked < 2
		c.mu.Unlock()
		if few {
			delay.Reset(ackDelay)
			select {
			case <-c.ackDue:
				delay.Stop()
			case <-delay.C:
			case <-c.ctx.Done():
				return
			}
		}
		c.mu.Lock()
		c.unacked = 0
		b := acknowledgement(c.numbers)
		for _, p := range c.paths {
			replace(p.replies, b)
		}
		c.mu.Unlock()
	}
}

// The watch over paths.

// watch monitors the paths until the bundle ends.
func (c *Conn) watch() {
	t := time.NewTimer(idleTick)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-c.ctx.Done():
			return
		}
		t.Reset(c.look())
	}
}

// look checks all paths and returns the time until the next check.
func (c *Conn) look() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	flowing := len(c.segments) > 0 || c.ready > 0 || now.Sub(c.active) < activeFor
	down := false
	for _, p := range c.paths {
		p.look(now, flowing)
		down = down || p.down
	}
	if c.server != nil {
		c.server.refresh(c, now)
	}
	if flowing || down {
		return tick
	}
	return idleTick
}

// startup is BBR's first phase.
const startup = "startup"

// rate returns the rate in bytes/s that a path could carry, and whether it is a guess. On a new path the congestion
// window is a better guide than the bandwidth estimate: samples from the handshake are so low that the path would stay
// unused, and the window, which grows by every byte delivered, is a round trip ahead. Once the window stops growing, at
// about twice the path's bandwidth-delay product, the bandwidth estimate counts.
func rate(cc congestion.Estimates, rtt time.Duration) (rate float64, guess bool) {
	grown := cc.Delivered > cc.Window+cc.Window/4 && float64(cc.Window) < 3*cc.Bandwidth*cc.MinRTT.Seconds()
	if cc.Phase != startup || rtt <= 0 || grown {
		return cc.Bandwidth, false
	}
	return max(cc.Bandwidth, float64(cc.Window)/rtt.Seconds()), true
}

// measure updates the scheduler's estimate of the path.
func (p *path) measure() {
	st := p.qc.ConnectionStats()
	p.rtt = st.SmoothedRTT
	e := fbdt.Estimate{RTT: st.MinRTT, Var: st.MeanDeviation, Down: p.down}
	if cc, ok := quiccc.Estimates(p.qc); ok && cc.Bandwidth > 0 {
		e.Rate, e.Guess = rate(cc, st.SmoothedRTT)
		e.Limited = cc.AppLimited || cc.Phase == startup
	} else if !ok && st.SmoothedRTT > 0 {
		e.Rate, e.Guess = float64(st.CongestionWindow)/st.SmoothedRTT.Seconds(), true
	}
	if e != p.estimate {
		p.estimate = e
		p.c.sched.SetPath(p.number, e)
	}
}

func (p *path) look(now time.Time, flowing bool) {
	st := p.qc.ConnectionStats()
	if st.PacketsReceived != p.count {
		p.count = st.PacketsReceived
		p.heard, p.asked = now, time.Time{}
	}
	// Two probe timeouts (RFC 9002 §6.2.1) with QUIC's default max_ack_delay of 25 ms.
	limit := max(2*(st.SmoothedRTT+max(4*st.MeanDeviation, time.Millisecond)+25*time.Millisecond), leastDown)
	if p.asked.IsZero() && (p.underWay > 0 || p.pinged.After(p.heard)) {
		p.asked = now
	}
	fell := !p.down && !p.asked.IsZero() && now.Sub(p.asked) > limit
	rose := p.down && p.asked.IsZero()
	switch {
	case fell:
		p.down, p.downSince = true, now
		close(p.fell)
		p.c.log.Info("path is down", "path", p.name, "peer", p.qc.RemoteAddr().String())
	case rose:
		p.down, p.fell = false, make(chan struct{})
		p.c.log.Info("path is up", "path", p.name, "peer", p.qc.RemoteAddr().String(),
			"rtt", st.SmoothedRTT.Round(time.Millisecond))
	}
	p.measure()
	if fell || rose {
		p.c.kick()
	}
	if p.c.client && p.down && now.Sub(p.downSince) > max(renewAfter, 4*st.SmoothedRTT) {
		go p.leave("silent") // keep dials it again
		return
	}
	every := silence
	switch {
	case p.down:
		every = probeEvery
	case p.underWay > 0:
		every = limit / 3
	case !flowing:
		return
	}
	if now.Sub(p.heard) >= every && now.Sub(p.pinged) >= every {
		p.pinged = now
		replace(p.pings, quicvarint.Append([]byte{datagramPing}, p.c.least()))
	}
}

// Totals holds sums over all paths, including former ones.
type Totals struct {
	BytesSent, BytesReceived, PacketsLost uint64  // as in quic.ConnectionStats
	CongestionWindow                      uint64  // bytes, of live paths
	Rate                                  float64 // bytes/s, of paths that are up
}

func (t *Totals) add(st quic.ConnectionStats) {
	t.BytesSent += st.BytesSent
	t.BytesReceived += st.BytesReceived
	t.PacketsLost += st.PacketsLost
}

// Totals returns the sums over all paths.
func (c *Conn) Totals() Totals {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.gone
	for _, p := range c.paths {
		st := p.qc.ConnectionStats()
		t.add(st)
		if !p.down {
			t.CongestionWindow += st.CongestionWindow
			t.Rate += p.estimate.Rate
		}
	}
	return t
}

// QUIC returns the connection of the first path that is up. If all are down, it returns the first
// path's; if no path is left, it returns that of the path removed last.
func (c *Conn) QUIC() *quic.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.paths {
		if !p.down {
			return p.qc
		}
	}
	if len(c.paths) > 0 {
		return c.paths[0].qc
	}
	return c.lastPath.qc
}
