package wire

import (
	"iter"
	"slices"
)

// KeyValue is one Key-Value-Pair (§1.4.3): an integer if Type is even, bytes if it is odd.
type KeyValue struct {
	Type  uint64
	Int   uint64 // even types
	Bytes []byte // odd types, at most 65535 bytes
}

// AppendKeyValues appends the pairs in ascending order of Type, delta-encoded.
func AppendKeyValues(b []byte, kvs ...KeyValue) []byte {
	kvs = slices.Clone(kvs)
	slices.SortStableFunc(kvs, func(x, y KeyValue) int {
		switch {
		case x.Type < y.Type:
			return -1
		case x.Type > y.Type:
			return 1
		}
		return 0
	})
	var prev uint64
	for _, kv := range kvs {
		b = AppendVarint(b, kv.Type-prev)
		prev = kv.Type
		if kv.Type%2 == 0 {
			b = AppendVarint(b, kv.Int)
		} else {
			b = appendBytes(b, kv.Bytes)
		}
	}
	return b
}

// ParseKeyValues parses a complete sequence of pairs. The pairs' bytes alias b.
func ParseKeyValues(b []byte) ([]KeyValue, error) {
	var kvs []KeyValue
	p := newPairs(b)
	for kv, ok := p.next(); ok; kv, ok = p.next() {
		kvs = append(kvs, kv)
	}
	if p.err != nil {
		return nil, p.err
	}
	return kvs, nil
}

// pairs iterates over a sequence of pairs without allocating.
type pairs struct {
	cursor
	prev uint64
}

func newPairs(b []byte) pairs { return pairs{cursor: cursor{b: b}} }

// next returns the next pair. It returns false at the end and on an error, which it stores in err.
func (p *pairs) next() (kv KeyValue, ok bool) {
	if len(p.b) == 0 {
		return kv, false
	}
	delta := p.varint()
	kv.Type = p.prev + delta
	if kv.Type < delta {
		p.fail(violation("key-value type exceeds 2^64-1"))
		return kv, false
	}
	p.prev = kv.Type
	if kv.Type%2 == 0 {
		kv.Int = p.varint()
	} else {
		kv.Bytes = p.bytes(MaxKeyValueLength, "key-value")
	}
	if p.err == errShort {
		p.err = &Error{KeyValueFormattingError, "key-value pair is cut off"}
	}
	return kv, p.err == nil
}

// Properties are the serialised properties (§2.5) of a track or object. They stay serialised
// because a relay must forward unknown properties unchanged.
type Properties []byte

// Property types, §15.8.
const (
	PropertyObjectDeliveryTimeout   = 0x02 // track, milliseconds
	PropertyMaxCacheDuration        = 0x04 // track, milliseconds
	PropertySubgroupDeliveryTimeout = 0x06 // track, milliseconds
	PropertyImmutable               = 0x0b // track, object
	PropertyPublisherPriority       = 0x0e // track, 0 to 255
	PropertyPublisherGroupOrder     = 0x22 // track, GroupOrder
	PropertyDynamicGroups           = 0x30 // track, 0 or 1
	PropertyPriorGroupIDGap         = 0x3c // object
	PropertyPriorObjectIDGap        = 0x3e // object
)

// All iterates over the properties, including those in Immutable Properties (§12.7). It stops at
// the first malformed pair.
func (p Properties) All() iter.Seq[KeyValue] {
	return func(yield func(KeyValue) bool) {
		outer := newPairs(p)
		for kv, ok := outer.next(); ok; kv, ok = outer.next() {
			if !yield(kv) {
				return
			}
			if kv.Type != PropertyImmutable {
				continue
			}
			inner := newPairs(kv.Bytes)
			for kv, ok := inner.next(); ok; kv, ok = inner.next() {
				if !yield(kv) {
					return
				}
			}
			if inner.err != nil {
				return
			}
		}
	}
}

// Immutable returns the content of Immutable Properties, or nil.
func (p Properties) Immutable() Properties {
	outer := newPairs(p)
	for kv, ok := outer.next(); ok; kv, ok = outer.next() {
		if kv.Type == PropertyImmutable {
			return kv.Bytes
		}
	}
	return nil
}

// MutableInt is Int without the properties in Immutable Properties.
func (p Properties) MutableInt(t uint64) (v uint64, ok bool) {
	outer := newPairs(p)
	for kv, ok := outer.next(); ok; kv, ok = outer.next() {
		if kv.Type == t {
			return kv.Int, true
		}
	}
	return 0, false
}

// Int returns the value of the first property of the even type t.
func (p Properties) Int(t uint64) (v uint64, ok bool) {
	for kv := range p.All() {
		if kv.Type == t {
			return kv.Int, true
		}
	}
	return 0, false
}

// validateTrack checks the known track properties, including those in Immutable Properties.
func (p Properties) validateTrack() error {
	outer := newPairs(p)
	for kv, ok := outer.next(); ok; kv, ok = outer.next() {
		if err := validateTrackProperty(kv); err != nil {
			return err
		}
		if kv.Type != PropertyImmutable {
			continue
		}
		inner := newPairs(kv.Bytes)
		for kv, ok := inner.next(); ok; kv, ok = inner.next() {
			if err := validateTrackProperty(kv); err != nil {
				return err
			}
		}
		if inner.err != nil {
			return inner.err
		}
	}
	return outer.err
}

func validateTrackProperty(kv KeyValue) error {
	switch kv.Type {
	case PropertyPublisherPriority: // §12.4
		if kv.Int > 255 {
			return violation("default publisher priority %d exceeds 255", kv.Int)
		}
	case PropertyPublisherGroupOrder: // §12.5
		if kv.Int != uint64(Ascending) && kv.Int != uint64(Descending) {
			return violation("invalid default publisher group order %d", kv.Int)
		}
	case PropertyDynamicGroups: // §12.6
		if kv.Int > 1 {
			return violation("invalid dynamic groups %d", kv.Int)
		}
	}
	return nil
}

// mandatory reports whether t is in the range of Mandatory Track Properties
// (§2.5.1).
func mandatory(t uint64) bool { return t >= 0x4000 && t <= 0x7fff }

// UnknownMandatory returns the first Mandatory Track Property (§2.5.1). This implementation knows
// none.
func (p Properties) UnknownMandatory() (t uint64, found bool) {
	for kv := range p.All() {
		if mandatory(kv.Type) {
			return kv.Type, true
		}
	}
	return 0, false
}
