package wire

// Subscribe requests the future objects of a track (§10.7).
type Subscribe struct {
	RequestID  uint64
	Track      TrackName
	Parameters Parameters
}

// Type is TypeSubscribe.
func (*Subscribe) Type() MessageType { return TypeSubscribe }

func (m *Subscribe) append(b []byte, v Version) []byte {
	return m.Parameters.append(m.Track.append(AppendVarint(b, m.RequestID)), v)
}

// SubscribeOK accepts a SUBSCRIBE (§10.8).
type SubscribeOK struct {
	TrackAlias uint64
	Parameters Parameters
	Properties Properties
}

// Type is TypeSubscribeOK.
func (*SubscribeOK) Type() MessageType { return TypeSubscribeOK }

func (m *SubscribeOK) append(b []byte, v Version) []byte {
	return append(m.Parameters.append(AppendVarint(b, m.TrackAlias), v), m.Properties...)
}

// TrackStatus asks for a track's state without subscribing (§10.14).
type TrackStatus struct {
	RequestID  uint64
	Track      TrackName
	Parameters Parameters
}

// Type is TypeTrackStatus.
func (*TrackStatus) Type() MessageType { return TypeTrackStatus }

func (m *TrackStatus) append(b []byte, v Version) []byte {
	return m.Parameters.append(m.Track.append(AppendVarint(b, m.RequestID)), v)
}
