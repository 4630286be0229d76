//go:build linux && (amd64 || arm64)

package fastpath

import (
	"time"

	"holocast/internal/moqt"
)

// shape says how a track's objects arrive.
type shape int32

const (
	unknown shape = iota
	single        // one by one, as poses and receipts
	frames        // several of a group at once, as the parts of a camera's frames
)

const (
	// together is the maximum time between two objects of a frame. On a path without a queue, a
	// camera's parts arrive 0.1 ms apart.
	together = 2 * time.Millisecond

	// enoughSingle is the number of successive objects without a frame after which a track counts as
	// single.
	enoughSingle = 16
)

// objects derives a track's shape from its objects.
type objects struct {
	shape shape
	any   bool
	last  moqt.Location
	at    time.Duration // arrival of last
	alone int           // successive objects that did not follow another of their group at once
}

// newer reports whether an object is newer than all earlier ones. Others were passed on to a further
// viewer, repeated from the cache, or reordered.
func (o *objects) newer(l moqt.Location) bool { return !o.any || o.last.Less(l) }

// add adds an object that arrived at now and returns the track's shape. It ignores objects that are
// not newer.
func (o *objects) add(l moqt.Location, now time.Duration) shape {
	if !o.newer(l) {
		return o.shape
	}
	if o.any && l.Group == o.last.Group && now-o.at < together {
		o.shape, o.alone = frames, 0
	} else if o.alone++; o.alone >= enoughSingle {
		o.shape = single
	}
	o.any, o.last, o.at = true, l, now
	return o.shape
}
