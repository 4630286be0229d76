package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"holocast/internal/moqt/wire"
)

// Board exchanges texts with other relays besides routes. The cluster signs and delivers the texts
// unread. Its functions must return soon.
type Board struct {
	Bulletin func() []byte                  // this relay's text for all others
	Receive  func(from string, text []byte) // another relay's bulletin, by its ID
	// Answer answers a question of another relay, or returns nil if another one may.
	Answer func(question []byte) []byte
}

const (
	// bulletinEvery is the interval between bulletins.
	bulletinEvery = 2 * time.Second
	// maxBulletin limits a bulletin, question or answer, in bytes.
	maxBulletin = 512 << 10
	nonceSize   = 16
)

// Kinds of notes, which are texts with their headers. A Message begins with another byte, its format.
const (
	noteBulletin byte = 0xb0 + iota
	noteQuestion
	noteAnswer
)

// note is a text of a Board. nonce pairs an answer with its question.
type note struct {
	kind  byte
	from  string
	nonce []byte
	text  []byte
}

func (n *note) marshal() []byte {
	b := appendText([]byte{n.kind}, n.from)
	b = append(wire.AppendVarint(b, uint64(len(n.nonce))), n.nonce...)
	return append(b, n.text...)
}

func parseNote(b []byte) (*note, error) {
	r := reader{b: b}
	n := &note{kind: r.byte(), from: r.text(), nonce: []byte(r.bytes(nonceSize)), text: r.b}
	switch {
	case r.err != nil:
		return nil, r.err
	case n.kind < noteBulletin || n.kind > noteAnswer:
		return nil, fmt.Errorf("note of unknown kind %#x", n.kind)
	case len(n.text) > maxBulletin:
		return nil, fmt.Errorf("note of %d bytes", len(n.text))
	}
	return n, nil
}

// boardSubject is the NATS subject of a cluster's notes.
func boardSubject(cluster string) string { return "holocast.board." + cluster }

// post sends the bulletin to all relays.
func (c *Cluster) post(b *bus) {
	if c.host.Board.Bulletin == nil {
		return
	}
	text := c.host.Board.Bulletin()
	if len(text) > maxBulletin {
		c.log.Debug("cluster: bulletin is too large", "bytes", len(text))
		return
	}
	n := &note{kind: noteBulletin, from: c.id, text: text}
	if err := b.conn.Publish(boardSubject(c.cfg.Name), c.secret.seal(n.marshal())); err != nil {
		c.log.Debug("cluster: bulletin not sent", "err", err)
		return
	}
	c.count(func(n *Counts) { n.Sent++ })
}

// read handles a note of another relay.
func (c *Cluster) read(b *bus, m *nats.Msg) {
	n, err := c.open(m.Data)
	if err != nil {
		c.log.Debug("cluster: note refused", "err", err)
		return
	}
	c.count(func(n *Counts) { n.Received++ })
	board := c.host.Board
	switch {
	case n.from == c.id:
	case n.kind == noteBulletin && board.Receive != nil:
		board.Receive(n.from, n.text)
	case n.kind == noteQuestion && board.Answer != nil && m.Reply != "":
		if text := board.Answer(n.text); text != nil {
			a := &note{kind: noteAnswer, from: c.id, nonce: n.nonce, text: text}
			_ = b.conn.Publish(m.Reply, c.secret.seal(a.marshal()))
		}
	}
}

// open verifies a note and counts refusals.
func (c *Cluster) open(b []byte) (*note, error) {
	text, err := c.secret.open(b)
	if err != nil {
		c.count(func(n *Counts) { n.Strangers++ })
		return nil, err
	}
	n, err := parseNote(text)
	if err != nil {
		c.count(func(n *Counts) { n.Malformed++ })
	}
	return n, err
}

// Announce sends the bulletin soon. It does nothing if c is nil.
func (c *Cluster) Announce() {
	if c == nil {
		return
	}
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// ErrNoAnswer means that no other relay answers a question.
var ErrNoAnswer = errors.New("no other relay answers")

// Ask asks the other relays and returns the first answer. A nil Cluster has no others.
func (c *Cluster) Ask(ctx context.Context, question []byte) ([]byte, error) {
	var b *bus
	if c != nil {
		b = c.bus.Load()
	}
	if b == nil {
		return nil, ErrNoAnswer
	}
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // never fails
	q := &note{kind: noteQuestion, from: c.id, nonce: nonce, text: question}
	m, err := b.conn.RequestWithContext(ctx, boardSubject(c.cfg.Name), c.secret.seal(q.marshal()))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoAnswer, err)
	}
	a, err := c.open(m.Data)
	switch {
	case err != nil:
		return nil, err
	case a.kind != noteAnswer || !slices.Equal(a.nonce, nonce):
		return nil, errors.New("an answer to another question")
	}
	return a.text, nil
}

// Knows reports whether a relay with that ID is a member. A nil Cluster has none.
func (c *Cluster) Knows(id string) (yes bool) {
	c.look(func(t *Table) { yes = t.members[id] != nil })
	return yes
}

// Routes lists the namespaces that other relays serve, in no order. It is empty if c is nil.
func (c *Cluster) Routes() (list []Route) {
	c.look(func(t *Table) { list = slices.Collect(maps.Values(t.routes)) })
	return list
}

// ForClients returns the URL of a relay of the cluster as Redirect does, given the URL without the fragment. It returns
// other URLs unchanged.
func (c *Cluster) ForClients(url string) string {
	to := url
	c.look(func(t *Table) {
		infos := []*Info{&t.info}
		for _, o := range t.members {
			infos = append(infos, &o.Info)
		}
		for _, i := range infos {
			if i.public() == url || i.URL == url {
				to = i.forClients()
				return
			}
		}
	})
	return to
}
