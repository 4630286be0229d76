package cluster

import (
	"maps"
	"slices"
	"time"
)

// Limits and times of revocations.
const (
	// MaxRevoked limits the revocations of one relay, and maxAllRevoked all other relays' together.
	MaxRevoked    = 1 << 14
	maxAllRevoked = 1 << 16
	// repeatRevoked is the interval between a relay's messages about its revocations, since one may be lost.
	repeatRevoked = 2 * time.Second
)

// revocations are the revoked token IDs, subjects and client names of a cluster. Each relay announces all
// revocations of its own configuration. They stay in force when the relay is gone, until one with the same URL
// announces others, since the failure of a relay must not make tokens valid again.
type revocations struct {
	own     []string
	version uint64 // 0 = never announced
	sent    time.Time
	others  map[string]*revoked // by the relay's URL
	total   int                 // of others
	changed bool
}

// revoked are the revocations of another relay.
type revoked struct {
	from    string // ID of the relay
	version uint64
	list    []string
	parts   []string // of an incomplete announcement
	part    uint64   // the next one
	partsOf uint64   // its version
}

// SetRevoked changes the revocations of this relay's configuration. It does not announce texts of more than 512
// bytes or revocations beyond MaxRevoked.
func (t *Table) SetRevoked(now time.Time, list []string) []*Message {
	list = slices.DeleteFunc(slices.Clone(list), func(text string) bool { return text == "" || len(text) > maxText })
	list = list[:min(len(list), MaxRevoked)]
	r := &t.revoked
	if len(list) == 0 && r.version == 0 || slices.Equal(list, r.own) {
		return nil
	}
	r.own, r.version = list, max(r.version+1, uint64(now.UnixMicro()))
	return t.announceRevoked(now)
}

// announceRevoked returns the messages about this relay's revocations.
func (t *Table) announceRevoked(now time.Time) (send []*Message) {
	r := &t.revoked
	if r.version == 0 {
		return nil
	}
	r.sent = now
	var parts [][]string
	for list, size := r.own, 0; ; list, size = list[len(parts[len(parts)-1]):], 0 {
		n := 0
		for n < len(list) && size < maxPart {
			size += len(list[n]) + 2
			n++
		}
		if parts = append(parts, list[:n]); n == len(list) {
			break
		}
	}
	for i, part := range parts {
		send = append(send, &Message{
			Kind: Revoke, From: t.id, Version: r.version, Part: uint64(i), Parts: uint64(len(parts)), Revoked: part,
		})
	}
	return send
}

// receiveRevoked collects the parts of another relay's revocations, which arrive in order, and applies them.
func (t *Table) receiveRevoked(o *member, m *Message) {
	r := &t.revoked
	x := r.others[o.URL]
	if x == nil || x.from != m.From {
		if x == nil && len(r.others) >= MaxMembers {
			return
		}
		var list []string
		if x != nil {
			list = x.list
		}
		x = &revoked{from: m.From, list: list}
		if r.others == nil {
			r.others = map[string]*revoked{}
		}
		r.others[o.URL] = x
	}
	if m.Version <= x.version {
		return
	}
	if m.Part == 0 {
		x.parts, x.part, x.partsOf = nil, 0, m.Version
	}
	if m.Part != x.part || m.Version != x.partsOf || len(x.parts)+len(m.Revoked) > MaxRevoked {
		return
	}
	x.parts = append(x.parts, m.Revoked...)
	if x.part++; x.part < m.Parts {
		return
	}
	if r.total+len(x.parts)-len(x.list) > maxAllRevoked {
		return
	}
	r.total += len(x.parts) - len(x.list)
	x.list, x.version, x.parts = x.parts, m.Version, nil
	r.changed = true
}

// Revoked returns the revocations of the other relays. changed reports whether they have changed since the last
// call.
func (t *Table) Revoked() (list []string, changed bool) {
	changed = t.revoked.changed
	t.revoked.changed = false
	if !changed {
		return nil, false
	}
	all := map[string]bool{}
	for _, x := range t.revoked.others {
		for _, text := range x.list {
			all[text] = true
		}
	}
	return slices.Sorted(maps.Keys(all)), true
}

// revoke announces this relay's revocations if they have changed, and applies other relays' revocations. The
// caller holds c.mu.
func (c *Cluster) revoke(now time.Time) (send []*Message) {
	if c.host.Authority == nil {
		return nil
	}
	if list, version := c.host.Authority.Revoked(c.revoked); version != c.revoked {
		c.revoked = version
		send = c.table.SetRevoked(now, list)
	}
	if list, changed := c.table.Revoked(); changed {
		c.log.Info("cluster: revocations of other relays", "count", len(list))
		c.host.Authority.RevokeToo(list)
	}
	return send
}
