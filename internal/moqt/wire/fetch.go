package wire

// FetchType selects the range of a FETCH in drafts 18 and 19 (§10.12).
type FetchType uint64

// Fetch types, §10.12.
const (
	FetchStandalone      FetchType = 0x1
	FetchRelativeJoining FetchType = 0x2
	FetchAbsoluteJoining FetchType = 0x3
)

// Fetch requests objects that were already published (§10.12). From draft-20 on, its type is always
// FetchStandalone and Parameters.Filter holds its range, with inclusive ends.
type Fetch struct {
	RequestID uint64
	FetchType FetchType

	// Standalone: End is exclusive; object 0 means all of End.Group. Start and End are unused from
	// draft-20 on.
	Track      TrackName
	Start, End Location

	// Joining: the SUBSCRIBE to join, and the number of groups before its joining location
	// (relative) or the first group (absolute).
	JoiningRequestID uint64
	JoiningStart     uint64

	Parameters Parameters
}

// Type is TypeFetch.
func (*Fetch) Type() MessageType { return TypeFetch }

func (m *Fetch) append(b []byte, v Version) []byte {
	b = AppendVarint(b, m.RequestID)
	if v >= Draft20 {
		return m.Parameters.append(m.Track.append(b), v)
	}
	b = AppendVarint(b, uint64(m.FetchType))
	if m.FetchType == FetchStandalone {
		b = m.End.append(m.Start.append(m.Track.append(b)))
	} else {
		b = AppendVarint(AppendVarint(b, m.JoiningRequestID), m.JoiningStart)
	}
	return m.Parameters.append(b, v)
}

func (c *cursor) fetch() *Fetch {
	m := &Fetch{RequestID: c.varint()}
	if c.v >= Draft20 {
		m.FetchType, m.Track, m.Parameters = FetchStandalone, c.trackName(), c.params(TypeFetch)
		return m
	}
	m.FetchType = FetchType(c.varint())
	switch m.FetchType {
	case FetchStandalone:
		m.Track, m.Start, m.End = c.trackName(), c.location(), c.location()
	case FetchRelativeJoining, FetchAbsoluteJoining:
		m.JoiningRequestID, m.JoiningStart = c.varint(), c.varint()
	default:
		if c.err == nil {
			c.fail(violation("unknown fetch type %#x", uint64(m.FetchType)))
		}
	}
	m.Parameters = c.params(TypeFetch)
	return m
}

// FetchOK accepts a FETCH once its end is known (§10.13).
type FetchOK struct {
	EndOfTrack bool
	End        Location // as in Fetch; inclusive from draft-20 on
	Parameters Parameters
	Properties Properties
}

// Type is TypeFetchOK.
func (*FetchOK) Type() MessageType { return TypeFetchOK }

func (m *FetchOK) append(b []byte, v Version) []byte {
	var end byte
	if m.EndOfTrack {
		end = 1
	}
	return append(m.Parameters.append(m.End.append(append(b, end)), v), m.Properties...)
}

func (c *cursor) fetchOK() *FetchOK {
	end := c.uint8()
	if end > 1 {
		c.fail(violation("invalid end of track %d", end))
	}
	return &FetchOK{end == 1, c.location(), c.params(TypeFetchOK), c.trackProperties()}
}
