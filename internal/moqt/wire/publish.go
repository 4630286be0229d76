package wire

// StreamCountUnknown is the stream count of a publisher that did not count, in drafts 18 and 19
// (§10.11). Later drafts use 2^64-1.
const StreamCountUnknown = 1<<62 - 1

// Publish offers a track to a subscriber (§10.10).
type Publish struct {
	RequestID  uint64
	Track      TrackName
	TrackAlias uint64
	Parameters Parameters
	Properties Properties
}

// Type is TypePublish.
func (*Publish) Type() MessageType { return TypePublish }

func (m *Publish) append(b []byte, v Version) []byte {
	b = AppendVarint(m.Track.append(AppendVarint(b, m.RequestID)), m.TrackAlias)
	return append(m.Parameters.append(b, v), m.Properties...)
}

// PublishDone is the publisher's end of a subscription (§10.11).
type PublishDone struct {
	Code        DoneCode
	StreamCount uint64 // data streams opened, or StreamCountUnknown
	Reason      string
}

// Type is TypePublishDone.
func (*PublishDone) Type() MessageType { return TypePublishDone }

func (m *PublishDone) append(b []byte, _ Version) []byte {
	return appendReason(AppendVarint(AppendVarint(b, uint64(m.Code)), m.StreamCount), m.Reason)
}

// PublishStateNotify reports that the publisher changed the state of a subscription by itself. It
// has no response (draft-20 §10.10).
type PublishStateNotify struct{ Parameters Parameters }

// Type is TypePublishStateNotify.
func (*PublishStateNotify) Type() MessageType { return TypePublishStateNotify }

func (m *PublishStateNotify) append(b []byte, v Version) []byte { return m.Parameters.append(b, v) }

// PublishBlocked reports that a PUBLISH could not be sent because the request limit was reached
// (§10.20).
type PublishBlocked struct {
	NamespaceSuffix Namespace
	Name            string
}

// Type is TypePublishBlocked.
func (*PublishBlocked) Type() MessageType { return TypePublishBlocked }

func (m *PublishBlocked) append(b []byte, _ Version) []byte {
	return appendBytes(m.NamespaceSuffix.append(b), m.Name)
}
