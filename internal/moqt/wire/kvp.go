package wire

import (
	"iter"
	"slices"
)

// KeyValue is one Key-Value-Pair (§1.4.3): an integer where Type is even, bytes
// where it is odd.
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

// ParseKeyValues reads a whole sequence of pairs. The pairs' bytes alias b.
func ParseKeyValues(b []byte) ([]KeyValue, error) {
	var kvs []KeyValue
	c := cursor{b: b}
	var prev uint64
	for len(c.b) > 0 {
		delta := c.varint()
		t := prev + delta
		if t < prev {
			return nil, violation("key-value type exceeds 2^64-1")
		}
		prev = t
		kv := KeyValue{Type: t}
		if t%2 == 0 {
			kv.Int = c.varint()
		} else {
			kv.Bytes = c.bytes(MaxKeyValueLength, "key-value")
		}
		if c.err != nil {
			if c.err == errShort {
				return nil, &Error{KeyValueFormattingError, "key-value pair is cut off"}
			}
			return nil, c.err
		}
		kvs = append(kvs, kv)
	}
	return kvs, nil
}

// Properties are a track's or an object's properties (§2.5) as they were
// serialised: a relay must forward what it does not know, unchanged.
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

// All iterates over the properties, those inside Immutable Properties included
// (§12.7). It stops at the first pair that cannot be parsed.
func (p Properties) All() iter.Seq[KeyValue] {
	return func(yield func(KeyValue) bool) {
		kvs, err := ParseKeyValues(p)
		if err != nil {
			return
		}
		for _, kv := range kvs {
			if !yield(kv) {
				return
			}
			if kv.Type != PropertyImmutable {
				continue
			}
			inner, err := ParseKeyValues(kv.Bytes)
			if err != nil {
				return
			}
			for _, kv := range inner {
				if !yield(kv) {
					return
				}
			}
		}
	}
}

// Int returns the value of the first property of an even type.
func (p Properties) Int(t uint64) (v uint64, ok bool) {
	for kv := range p.All() {
		if kv.Type == t {
			return kv.Int, true
		}
	}
	return 0, false
}

// validateTrack checks the track properties this draft defines.
func (p Properties) validateTrack() error {
	kvs, err := ParseKeyValues(p)
	if err != nil {
		return err
	}
	for _, kv := range kvs {
		switch kv.Type {
		case PropertyPublisherPriority:
			if kv.Int > 255 {
				return violation("default publisher priority %d exceeds 255", kv.Int)
			}
		case PropertyPublisherGroupOrder:
			if kv.Int != uint64(Ascending) && kv.Int != uint64(Descending) {
				return violation("default publisher group order %d", kv.Int)
			}
		case PropertyDynamicGroups:
			if kv.Int > 1 {
				return violation("dynamic groups %d", kv.Int)
			}
		}
	}
	return nil
}

// UnknownMandatory returns the first property of the Mandatory Track Property
// range (§2.5.1), none of which this implementation knows.
func (p Properties) UnknownMandatory() (t uint64, found bool) {
	for kv := range p.All() {
		if kv.Type >= 0x4000 && kv.Type <= 0x7fff {
			return kv.Type, true
		}
	}
	return 0, false
}
