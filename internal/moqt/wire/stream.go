package wire

// Unidirectional stream types, §3.4.
const (
	streamFetch   = 0x05
	streamSetup   = uint64(TypeSetup)
	streamPadding = 0x132b3e28
)

// SubgroupIDMode selects how a subgroup header encodes its Subgroup ID (§11.4.2).
type SubgroupIDMode uint8

// Subgroup ID modes, §11.4.2.
const (
	SubgroupIDZero        SubgroupIDMode = 0 // absent: 0
	SubgroupIDFirstObject SubgroupIDMode = 1 // absent: the first object's ID
	SubgroupIDExplicit    SubgroupIDMode = 2
)

// SubgroupHeader is the header of a subgroup stream (§11.4.2).
type SubgroupHeader struct {
	TrackAlias      uint64
	Group           uint64
	Subgroup        uint64 // unset in mode SubgroupIDFirstObject until the first object is read
	Mode            SubgroupIDMode
	Priority        uint8 // unset with DefaultPriority
	DefaultPriority bool  // the track's default publisher priority applies
	HasProperties   bool  // every object carries a properties field
	EndOfGroup      bool  // at FIN, the last object on the stream ends the group
	FirstObject     bool  // the stream starts with the subgroup's first object
}

// Append appends the header with its stream type.
func (h SubgroupHeader) Append(b []byte) []byte {
	t := uint64(0x10) | uint64(h.Mode)<<1
	if h.HasProperties {
		t |= 0x01
	}
	if h.EndOfGroup {
		t |= 0x08
	}
	if h.DefaultPriority {
		t |= 0x20
	}
	if h.FirstObject {
		t |= 0x40
	}
	b = AppendVarint(AppendVarint(AppendVarint(b, t), h.TrackAlias), h.Group)
	if h.Mode == SubgroupIDExplicit {
		b = AppendVarint(b, h.Subgroup)
	}
	if !h.DefaultPriority {
		b = append(b, h.Priority)
	}
	return b
}

// FetchHeader is the header of a fetch response stream (§11.4.4).
type FetchHeader struct{ RequestID uint64 }

// Append appends the header with its stream type.
func (h FetchHeader) Append(b []byte) []byte {
	return AppendVarint(AppendVarint(b, streamFetch), h.RequestID)
}

// Padding is the header of a stream whose bytes are discarded (§11.5.1).
type Padding struct{}

// Append appends the stream type.
func (Padding) Append(b []byte) []byte { return AppendVarint(b, streamPadding) }

// ReadStreamHeader reads the header of a unidirectional stream. It returns a SubgroupHeader, a
// FetchHeader, Padding, or a *Setup for the control stream.
func ReadStreamHeader(r ByteReader) (any, error) {
	t, err := ReadVarint(r)
	if err != nil {
		return nil, err
	}
	switch {
	case t == streamFetch:
		id, err := ReadVarint(r)
		return FetchHeader{id}, unexpected(err)
	case t == streamPadding:
		return Padding{}, nil
	case t == streamSetup:
		return readSetup(r)
	case t < 0x80 && t&0x10 != 0:
		return readSubgroupHeader(r, t)
	}
	return nil, violation("unknown stream type %#x", t)
}

func readSetup(r ByteReader) (*Setup, error) {
	payload, err := readPayload(r)
	if err != nil {
		return nil, err
	}
	m, err := ParseMessage(TypeSetup, payload)
	if err != nil {
		return nil, err
	}
	return m.(*Setup), nil
}

func readSubgroupHeader(r ByteReader, t uint64) (h SubgroupHeader, err error) {
	h = SubgroupHeader{
		Mode:            SubgroupIDMode(t >> 1 & 3),
		HasProperties:   t&0x01 != 0,
		EndOfGroup:      t&0x08 != 0,
		DefaultPriority: t&0x20 != 0,
		FirstObject:     t&0x40 != 0,
	}
	if h.Mode > SubgroupIDExplicit {
		return h, violation("reserved subgroup header type %#x", t)
	}
	if h.TrackAlias, err = ReadVarint(r); err != nil {
		return h, unexpected(err)
	}
	if h.Group, err = ReadVarint(r); err != nil {
		return h, unexpected(err)
	}
	if h.Mode == SubgroupIDExplicit {
		if h.Subgroup, err = ReadVarint(r); err != nil {
			return h, unexpected(err)
		}
	}
	if !h.DefaultPriority {
		if h.Priority, err = r.ReadByte(); err != nil {
			return h, unexpected(err)
		}
	}
	return h, nil
}
