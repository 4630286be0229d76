package wire

import "cmp"

// Location is the position of an object in its track (§1.4.2).
type Location struct{ Group, Object uint64 }

// Compare orders locations by group, then object.
func (l Location) Compare(o Location) int {
	return cmp.Or(cmp.Compare(l.Group, o.Group), cmp.Compare(l.Object, o.Object))
}

// Less reports whether l comes before o.
func (l Location) Less(o Location) bool { return l.Compare(o) < 0 }

func (l Location) append(b []byte) []byte {
	return AppendVarint(AppendVarint(b, l.Group), l.Object)
}

func (c *cursor) location() Location {
	g := c.varint()
	return Location{g, c.varint()}
}

// FilterType selects where a subscription starts (§5.1.2).
type FilterType uint64

// Subscription filters, §5.1.2.
const (
	FilterNextGroup     FilterType = 0x1 // from the start of the next group
	FilterLargestObject FilterType = 0x2 // from the object after the largest
	FilterAbsoluteStart FilterType = 0x3 // from Start
	FilterAbsoluteRange FilterType = 0x4 // from Start to the end of EndGroup
)

// Filter restricts the objects of a subscription.
type Filter struct {
	Type     FilterType
	Start    Location // AbsoluteStart, AbsoluteRange
	EndGroup uint64   // AbsoluteRange: last group, inclusive
}

func (f Filter) append(b []byte) []byte {
	b = AppendVarint(b, uint64(f.Type))
	if f.Type == FilterAbsoluteStart || f.Type == FilterAbsoluteRange {
		b = f.Start.append(b)
	}
	if f.Type == FilterAbsoluteRange {
		b = AppendVarint(b, f.EndGroup-f.Start.Group)
	}
	return b
}

func parseFilter(b []byte) (Filter, error) {
	c := cursor{b: b}
	f := Filter{Type: FilterType(c.varint())}
	switch f.Type {
	case FilterNextGroup, FilterLargestObject:
	case FilterAbsoluteStart:
		f.Start = c.location()
	case FilterAbsoluteRange:
		f.Start = c.location()
		delta := c.varint()
		f.EndGroup = f.Start.Group + delta
		if f.EndGroup < delta {
			c.fail(violation("subscription filter's end group exceeds 2^64-1"))
		}
	default:
		c.fail(violation("unknown subscription filter %#x", uint64(f.Type)))
	}
	if c.err == nil && len(c.b) != 0 {
		c.fail(violation("%d bytes after the subscription filter", len(c.b)))
	}
	return f, c.err
}
