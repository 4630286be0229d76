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

// FilterType selects the range of a subscription (§5.1.2), or from draft-20 on of a FETCH or fill.
// Its values are the Filter Types of drafts 18 and 19, and our own.
type FilterType uint64

// Location filters. The last three and FilterNone are new in draft-20.
const (
	FilterNone          FilterType = 0x0 // no filter; removes one in an update
	FilterNextGroup     FilterType = 0x1 // from the start of the next group
	FilterLargestObject FilterType = 0x2 // from the object after the largest
	FilterAbsoluteStart FilterType = 0x3 // from Start
	FilterAbsoluteRange FilterType = 0x4 // from Start to the end of EndGroup
	FilterRecentGroups  FilterType = 0x5 // from the start of the last Groups groups
	FilterObjectRange   FilterType = 0x6 // from Start to EndObject of EndGroup
)

// Filter restricts the objects of a subscription, FETCH or fill.
type Filter struct {
	Type      FilterType
	Start     Location // AbsoluteStart, AbsoluteRange, ObjectRange
	EndGroup  uint64   // AbsoluteRange, ObjectRange: last group, inclusive
	EndObject uint64   // ObjectRange: last object, inclusive
	Groups    uint64   // RecentGroups: 1 is the group of the largest object
}

// Location Filter Types of draft-22, §9.20.9. Up to four they are also the number of fields.
const (
	locationRelative   = 1
	locationStart      = 2
	locationGroupEnd   = 3
	locationRange      = 4
	locationNextObject = 5
)

func (f Filter) append(b []byte, v Version) []byte {
	if v < Draft20 {
		return appendBytes(b, f.append18(nil))
	}
	fields := []uint64{f.Start.Group, f.Start.Object, f.EndGroup - f.Start.Group, f.EndObject}
	var t uint64
	switch f.Type {
	case FilterNextGroup, FilterRecentGroups:
		t, fields[0] = locationRelative, 0
		if f.Type == FilterRecentGroups {
			fields[0] = f.Groups
		}
	case FilterAbsoluteStart:
		if t = locationStart; v < Draft22 && f.Start == (Location{}) {
			t = 0 // two zeros mean the next object
		}
	case FilterAbsoluteRange:
		t = locationGroupEnd
	case FilterObjectRange:
		t = locationRange
	case FilterLargestObject:
		if t = locationNextObject; v < Draft22 {
			t, fields[0], fields[1] = locationStart, 0, 0
		}
	}
	var value []byte
	if t <= locationRange {
		for _, field := range fields[:t] {
			value = AppendVarint(value, field)
		}
	}
	if v < Draft22 {
		return appendBytes(b, value)
	}
	return append(AppendVarint(b, t), value...)
}

// append18 appends the filter as in drafts 18 and 19, which have fewer types.
func (f Filter) append18(b []byte) []byte {
	b = AppendVarint(b, uint64(f.Type))
	if f.Type == FilterAbsoluteStart || f.Type == FilterAbsoluteRange {
		b = f.Start.append(b)
	}
	if f.Type == FilterAbsoluteRange {
		b = AppendVarint(b, f.EndGroup-f.Start.Group)
	}
	return b
}

// filter parses a location filter. Until draft-21 it has a length, from which draft-20 and -21 tell
// its form. Draft-22 has a type instead.
func (c *cursor) filter() (f Filter) {
	if c.v >= Draft22 {
		t := c.varint()
		switch {
		case c.err != nil:
		case t == locationNextObject:
			f.Type = FilterLargestObject
		case t > locationRange:
			c.fail(violation("unknown location filter %#x", t))
		default:
			f = c.locationFields(int(t))
		}
		return f
	}
	in := cursor{b: c.bytes(MaxMessageLength, "location filter"), v: c.v}
	switch {
	case c.err != nil:
		return f
	case c.v >= Draft20:
		f = in.filter20()
	default:
		f = in.filter18()
	}
	if in.err == nil && len(in.b) != 0 {
		in.fail(violation("%d bytes after the location filter", len(in.b)))
	}
	if in.err == errShort {
		in.err = violation("location filter ends inside a field")
	}
	if in.err != nil {
		c.fail(in.err)
	}
	return f
}

// filter20 parses a filter of draft-20 or -21, whose form is its number of fields.
func (c *cursor) filter20() Filter {
	n := 0
	for rest := c.b; len(rest) > 0 && n < locationRange; n++ {
		_, size, err := ParseVarint(rest)
		if err != nil {
			c.fail(errShort)
			return Filter{}
		}
		rest = rest[size:]
	}
	f := c.locationFields(n)
	if f.Type == FilterAbsoluteStart && f.Start == (Location{}) {
		f.Type = FilterLargestObject
	}
	return f
}

// locationFields parses the first n of a filter's fields: the start's group and object, the number
// of groups from there to the end, and the last object.
func (c *cursor) locationFields(n int) (f Filter) {
	switch n {
	case 0:
		return f
	case locationRelative:
		if f.Groups = c.varint(); f.Groups == 0 {
			f.Type = FilterNextGroup
		} else {
			f.Type = FilterRecentGroups
		}
		return f
	}
	f.Type, f.Start = FilterAbsoluteStart, c.location()
	if n >= locationGroupEnd {
		f.Type = FilterAbsoluteRange
		delta := c.varint()
		f.EndGroup = f.Start.Group + delta
		if f.EndGroup < delta {
			c.fail(violation("location filter's end group exceeds 2^64-1"))
		}
	}
	if n == locationRange {
		f.Type, f.EndObject = FilterObjectRange, c.varint()
	}
	return f
}

func (c *cursor) filter18() Filter {
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
	return f
}
