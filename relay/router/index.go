package router

import (
	"encoding/binary"
	"hash/maphash"
	"iter"

	"holocast/internal/moqt"
)

// prefixIndex finds values by prefixes of their namespaces. It stores a value under each prefix of
// its namespace, so the cost of a lookup does not depend on the size of the index.
type prefixIndex[V comparable] struct {
	seed maphash.Seed
	all  map[uint64]map[V]moqt.Namespace // by hash of the prefix
}

func newPrefixIndex[V comparable]() prefixIndex[V] {
	return prefixIndex[V]{maphash.MakeSeed(), map[uint64]map[V]moqt.Namespace{}}
}

// prefixes yields the hashes of all prefixes of ns, from the empty one to ns itself.
func (x *prefixIndex[V]) prefixes(ns moqt.Namespace) iter.Seq[uint64] {
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

// hash returns the hash of the whole namespace.
func (x *prefixIndex[V]) hash(ns moqt.Namespace) (hash uint64) {
	for hash = range x.prefixes(ns) {
	}
	return hash
}

func (x *prefixIndex[V]) add(ns moqt.Namespace, v V) {
	for h := range x.prefixes(ns) {
		if x.all[h] == nil {
			x.all[h] = map[V]moqt.Namespace{}
		}
		x.all[h][v] = ns
	}
}

func (x *prefixIndex[V]) remove(ns moqt.Namespace, v V) {
	for h := range x.prefixes(ns) {
		if delete(x.all[h], v); len(x.all[h]) == 0 {
			delete(x.all, h)
		}
	}
}

// under yields the values whose namespaces begin with prefix.
func (x *prefixIndex[V]) under(prefix moqt.Namespace) iter.Seq[V] {
	return func(yield func(V) bool) {
		for v, ns := range x.all[x.hash(prefix)] {
			if ns.HasPrefix(prefix) && !yield(v) { // false for a hash collision
				return
			}
		}
	}
}

// exactIndex finds values by their complete namespaces.
type exactIndex[V comparable] struct {
	prefixIndex[V]
}

func newExactIndex[V comparable]() exactIndex[V] { return exactIndex[V]{newPrefixIndex[V]()} }

func (x *exactIndex[V]) add(ns moqt.Namespace, v V) {
	h := x.hash(ns)
	if x.all[h] == nil {
		x.all[h] = map[V]moqt.Namespace{}
	}
	x.all[h][v] = ns
}

func (x *exactIndex[V]) remove(ns moqt.Namespace, v V) {
	h := x.hash(ns)
	if delete(x.all[h], v); len(x.all[h]) == 0 {
		delete(x.all, h)
	}
}

// get yields the values of a namespace.
func (x *exactIndex[V]) get(ns moqt.Namespace) iter.Seq[V] {
	return func(yield func(V) bool) {
		for v, own := range x.all[x.hash(ns)] {
			if own.Equal(ns) && !yield(v) {
				return
			}
		}
	}
}

// above yields the values whose namespaces are prefixes of ns.
func (x *exactIndex[V]) above(ns moqt.Namespace) iter.Seq[V] {
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
