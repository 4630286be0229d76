package wire

// PublishNamespace announces tracks in a namespace (§10.15).
type PublishNamespace struct {
	RequestID  uint64
	Namespace  Namespace
	Parameters Parameters
}

// Type is TypePublishNamespace.
func (*PublishNamespace) Type() MessageType { return TypePublishNamespace }

func (m *PublishNamespace) append(b []byte, v Version) []byte {
	return m.Parameters.append(m.Namespace.append(AppendVarint(b, m.RequestID)), v)
}

// SubscribeNamespace requests the current and future namespaces under a prefix (§10.18).
type SubscribeNamespace struct {
	RequestID  uint64
	Prefix     Namespace
	Parameters Parameters
}

// Type is TypeSubscribeNamespace.
func (*SubscribeNamespace) Type() MessageType { return TypeSubscribeNamespace }

func (m *SubscribeNamespace) append(b []byte, v Version) []byte {
	return m.Parameters.append(m.Prefix.append(AppendVarint(b, m.RequestID)), v)
}

// SubscribeTracks requests a PUBLISH of every track under a prefix (§10.19).
type SubscribeTracks struct {
	RequestID  uint64
	Prefix     Namespace
	Parameters Parameters
}

// Type is TypeSubscribeTracks.
func (*SubscribeTracks) Type() MessageType { return TypeSubscribeTracks }

func (m *SubscribeTracks) append(b []byte, v Version) []byte {
	return m.Parameters.append(m.Prefix.append(AppendVarint(b, m.RequestID)), v)
}

// NamespaceAdded is the NAMESPACE message, which announces a namespace under the prefix (§10.16).
type NamespaceAdded struct{ Suffix Namespace }

// Type is TypeNamespace.
func (*NamespaceAdded) Type() MessageType { return TypeNamespace }

func (m *NamespaceAdded) append(b []byte, _ Version) []byte { return m.Suffix.append(b) }

// NamespaceDone withdraws a namespace under the prefix (§10.17).
type NamespaceDone struct{ Suffix Namespace }

// Type is TypeNamespaceDone.
func (*NamespaceDone) Type() MessageType { return TypeNamespaceDone }

func (m *NamespaceDone) append(b []byte, _ Version) []byte { return m.Suffix.append(b) }
