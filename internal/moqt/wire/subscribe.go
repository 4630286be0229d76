package wire

// Subscribe asks for the objects of a track from now on (§10.7).
type Subscribe struct {
	RequestID  uint64
	Track      TrackName
	Parameters Parameters
}

// Type is TypeSubscribe.
func (*Subscribe) Type() MessageType { return TypeSubscribe }

func (m *Subscribe) append(b []byte) []byte {
	return m.Parameters.append(m.Track.append(AppendVarint(b, m.RequestID)))
}

// SubscribeOK accepts a SUBSCRIBE (§10.8).
type SubscribeOK struct {
	TrackAlias uint64
	Parameters Parameters
	Properties Properties
}

// Type is TypeSubscribeOK.
func (*SubscribeOK) Type() MessageType { return TypeSubscribeOK }

func (m *SubscribeOK) append(b []byte) []byte {
	return append(m.Parameters.append(AppendVarint(b, m.TrackAlias)), m.Properties...)
}

// TrackStatus asks what a SUBSCRIBE would be answered, without subscribing
// (§10.14).
type TrackStatus struct {
	RequestID  uint64
	Track      TrackName
	Parameters Parameters
}

// Type is TypeTrackStatus.
func (*TrackStatus) Type() MessageType { return TypeTrackStatus }

func (m *TrackStatus) append(b []byte) []byte {
	return m.Parameters.append(m.Track.append(AppendVarint(b, m.RequestID)))
}
