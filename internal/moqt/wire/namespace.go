package wire

// PublishNamespace says that the sender has tracks in a namespace (§10.15).
type PublishNamespace struct {
	RequestID  uint64
	Namespace  Namespace
	Parameters Parameters
}

// Type is TypePublishNamespace.
func (*PublishNamespace) Type() MessageType { return TypePublishNamespace }

func (m *PublishNamespace) append(b []byte) []byte {
	return m.Parameters.append(m.Namespace.append(AppendVarint(b, m.RequestID)))
}

// SubscribeNamespace asks for the namespaces under a prefix, now and later
// (§10.18).
type SubscribeNamespace struct {
	RequestID  uint64
	Prefix     Namespace
	Parameters Parameters
}

// Type is TypeSubscribeNamespace.
func (*SubscribeNamespace) Type() MessageType { return TypeSubscribeNamespace }

func (m *SubscribeNamespace) append(b []byte) []byte {
	return m.Parameters.append(m.Prefix.append(AppendVarint(b, m.RequestID)))
}

// SubscribeTracks asks for a PUBLISH of every track under a prefix (§10.19).
type SubscribeTracks struct {
	RequestID  uint64
	Prefix     Namespace
	Parameters Parameters
}

// Type is TypeSubscribeTracks.
func (*SubscribeTracks) Type() MessageType { return TypeSubscribeTracks }

func (m *SubscribeTracks) append(b []byte) []byte {
	return m.Parameters.append(m.Prefix.append(AppendVarint(b, m.RequestID)))
}

// NamespaceAdded is the NAMESPACE message: a namespace under the prefix appeared
// (§10.16).
type NamespaceAdded struct{ Suffix Namespace }

// Type is TypeNamespace.
func (*NamespaceAdded) Type() MessageType { return TypeNamespace }

func (m *NamespaceAdded) append(b []byte) []byte { return m.Suffix.append(b) }

// NamespaceDone says that a namespace under the prefix went away (§10.17).
type NamespaceDone struct{ Suffix Namespace }

// Type is TypeNamespaceDone.
func (*NamespaceDone) Type() MessageType { return TypeNamespaceDone }

func (m *NamespaceDone) append(b []byte) []byte { return m.Suffix.append(b) }
