package router

import (
	"encoding/binary"
	"hash/maphash"
	"iter"

	"holocast/internal/moqt"
)

// index finds values by prefixes of their namespaces. A namespace has few fields, so a
// value is found under each of its prefixes; what else is in the index costs nothing.
type index[V comparable] struct {
	seed maphash.Seed
	all  map[uint64]map[V]moqt.Namespace // by the hash of a prefix
}

func newIndex[V comparable]() index[V] {
	return index[V]{maphash.MakeSeed(), map[uint64]map[V]moqt.Namespace{}}
}

// prefixes are the hashes of the prefixes of ns, from the empty one to ns itself.
func (x *index[V]) prefixes(ns moqt.Namespace) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		var h maphash.Hash
		h.SetSeed(x.seed)
		if !yield(h.Sum64()) {
			return
		}
		for _, field := range ns {
			var length [4]byte
			binary.LittleEndian.PutUint32(length[:], uint32(len(field)))
			_, _ = h.Write(length[:])
			_, _ = h.WriteString(field)
			if !yield(h.Sum64()) {
				return
			}
		}
	}
}

// hash is that of the whole namespace.
func (x *index[V]) hash(ns moqt.Namespace) (hash uint64) {
	for hash = range x.prefixes(ns) {
	}
	return hash
}

func (x *index[V]) add(ns moqt.Namespace, v V) {
	for h := range x.prefixes(ns) {
		if x.all[h] == nil {
			x.all[h] = map[V]moqt.Namespace{}
		}
		x.all[h][v] = ns
	}
}

func (x *index[V]) remove(ns moqt.Namespace, v V) {
	for h := range x.prefixes(ns) {
		if delete(x.all[h], v); len(x.all[h]) == 0 {
			delete(x.all, h)
		}
	}
}

// under are the values whose namespaces begin with prefix.
func (x *index[V]) under(prefix moqt.Namespace) iter.Seq[V] {
	return func(yield func(V) bool) {
		for v, ns := range x.all[x.hash(prefix)] {
			if ns.HasPrefix(prefix) && !yield(v) { // else two hashes are the same
				return
			}
		}
	}
}

// exact finds values by their whole namespaces.
type exact[V comparable] struct {
	index[V]
}

func newExact[V comparable]() exact[V] { return exact[V]{newIndex[V]()} }

func (x *exact[V]) add(ns moqt.Namespace, v V) {
	h := x.hash(ns)
	if x.all[h] == nil {
		x.all[h] = map[V]moqt.Namespace{}
	}
	x.all[h][v] = ns
}

func (x *exact[V]) remove(ns moqt.Namespace, v V) {
	h := x.hash(ns)
	if delete(x.all[h], v); len(x.all[h]) == 0 {
		delete(x.all, h)
	}
}

// at are the values of a namespace.
func (x *exact[V]) at(ns moqt.Namespace) iter.Seq[V] {
	return func(yield func(V) bool) {
		for v, own := range x.all[x.hash(ns)] {
			if own.Equal(ns) && !yield(v) {
				return
			}
		}
	}
}

// above are the values whose namespaces ns begins with.
func (x *exact[V]) above(ns moqt.Namespace) iter.Seq[V] {
	return func(yield func(V) bool) {
		depth := 0
		for hash := range x.prefixes(ns) {
			for v, own := range x.all[hash] {
				if len(own) == depth && ns.HasPrefix(own) && !yield(v) {
					return
				}
			}
			depth++
		}
	}
}
