package admin

import (
	"cmp"
	"slices"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Block is a namespace that the operator has blocked, or a block that has ended. The newest one of a
// namespace is valid at all relays of a cluster.
type Block struct {
	Namespace string    `json:"namespace"` // moqt.Namespace.String
	Since     time.Time `json:"since"`
	Ended     bool      `json:"ended,omitempty"`
}

const (
	// maxBlocks limits the blocks, ended ones included.
	maxBlocks = 1024
	// maxBlockID limits the ID of a blocked session, in bytes.
	maxBlockID = 256
	// forgetAfter is the time after which ended blocks are forgotten. Relays that were away longer bring a
	// block back.
	forgetAfter = 24 * time.Hour
)

// Blocks returns all blocks by namespace, including recently ended ones.
func (a *API) Blocks() []Block {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := make([]Block, 0, len(a.blocks))
	for _, b := range a.blocks {
		list = append(list, b)
	}
	slices.SortFunc(list, func(a, b Block) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return list
}

// merge adds blocks and ends of blocks that are newer than the known ones, and applies them. It ignores
// malformed ones and any beyond maxBlocks.
func (a *API) merge(list []Block) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, changed := time.Now(), false
	for key, b := range a.blocks {
		if b.Ended && now.Sub(b.Since) > forgetAfter {
			delete(a.blocks, key)
		}
	}
	for _, b := range list {
		before, known := a.blocks[b.Namespace]
		ns, err := wire.ParseNamespace(b.Namespace)
		switch {
		case err != nil, len(ns) == 0, len(b.Namespace) > maxBlockID, known && !b.Since.After(before.Since),
			!known && len(a.blocks) >= maxBlocks, b.Ended && now.Sub(b.Since) > forgetAfter:
			continue
		}
		changed = changed || b.Ended != before.Ended || !known
		a.blocks[b.Namespace] = b
	}
	if !changed {
		return
	}
	var namespaces []moqt.Namespace
	for key, b := range a.blocks {
		if ns, err := wire.ParseNamespace(key); err == nil && !b.Ended {
			namespaces = append(namespaces, ns)
		}
	}
	a.Router.Block(namespaces)
}

// block blocks a namespace or ends its block, at all relays of the cluster. It returns false if there are
// too many blocks.
func (a *API) block(ns moqt.Namespace, ended bool) bool {
	key, now := ns.String(), time.Now().UTC()
	a.mu.Lock()
	before, known := a.blocks[key]
	full := !known && len(a.blocks) >= maxBlocks
	a.mu.Unlock()
	switch {
	case full:
		return false
	case known && before.Ended == ended, !known && ended:
		return true
	}
	if !now.After(before.Since) { // set by a relay whose clock is ahead
		now = before.Since.Add(time.Microsecond)
	}
	a.merge([]Block{{Namespace: key, Since: now, Ended: ended}})
	a.Cluster.Announce()
	return true
}

// blockOf returns the block of a namespace, if it is blocked.
func (a *API) blockOf(key string) (b Block, blocked bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	b, blocked = a.blocks[key]
	return b, blocked && !b.Ended
}
