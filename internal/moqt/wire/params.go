package wire

import "slices"

// GroupOrder is the delivery order of groups (§7).
type GroupOrder uint8

// Group orders, §10.2.8.
const (
	Ascending  GroupOrder = 1
	Descending GroupOrder = 2
)

// DefaultPriority applies if neither side sets a priority (§7, §12.4).
const DefaultPriority uint8 = 128

// Parameters are the message parameters of a request or response (§10.2). A nil field is absent;
// the meaning of its absence depends on the message. Durations are milliseconds.
type Parameters struct {
	ObjectDeliveryTimeout   *uint64     // 0x02
	AuthorizationTokens     []Token     // 0x03
	RendezvousTimeout       *uint64     // 0x04
	SubgroupDeliveryTimeout *uint64     // 0x06
	Expires                 *uint64     // 0x08
	LargestObject           *Location   // 0x09
	FillTimeout             *uint64     // 0x0a
	Forward                 *bool       // 0x10
	SubscriberPriority      *uint8      // 0x20
	Filter                  *Filter     // 0x21
	GroupOrder              *GroupOrder // 0x22
	Fill                    *Parameters // 0x23, draft-20
	NewGroupRequest         *uint64     // 0x32
	NamespacePrefix         *Namespace  // 0x34
	IncludeProperties       *bool       // 0x35, draft-20
	// RangeFilters reports that range filters are present (draft-19 §5.1.3). They are not parsed,
	// and the request is refused: a peer must not send them unless we offer MAX_FILTER_RANGES.
	RangeFilters bool
}

// Parameter types, §15.7.
const (
	paramObjectDeliveryTimeout   = 0x02
	paramAuthorizationToken      = 0x03
	paramRendezvousTimeout       = 0x04
	paramSubgroupDeliveryTimeout = 0x06
	paramExpires                 = 0x08
	paramLargestObject           = 0x09
	paramFillTimeout             = 0x0a
	paramForward                 = 0x10
	paramSubscriberPriority      = 0x20
	paramFilter                  = 0x21
	paramGroupOrder              = 0x22
	paramFill                    = 0x23
	paramNewGroupRequest         = 0x32
	paramNamespacePrefix         = 0x34
	paramIncludeProperties       = 0x35
)

// paramScope lists the messages in which draft-18 allows each parameter. REQUEST_OK stands for the
// responses to all requests; CheckResponse distinguishes them.
var paramScope = map[uint64][]MessageType{
	paramObjectDeliveryTimeout: {TypeRequestOK, TypeSubscribe, TypeRequestUpdate},
	paramAuthorizationToken: {
		TypePublish,
		TypeSubscribe,
		TypeRequestUpdate,
		TypeSubscribeNamespace,
		TypeSubscribeTracks,
		TypePublishNamespace,
		TypeTrackStatus,
		TypeFetch,
	},
	paramRendezvousTimeout:       {TypeSubscribe},
	paramSubgroupDeliveryTimeout: {TypeRequestOK, TypeSubscribe, TypeRequestUpdate},
	paramExpires:                 {TypeSubscribeOK, TypePublish, TypeRequestOK},
	paramLargestObject:           {TypeSubscribeOK, TypePublish, TypeRequestOK},
	paramFillTimeout:             {TypeFetch},
	paramForward:                 {TypeSubscribe, TypeRequestUpdate, TypePublish, TypeRequestOK, TypeSubscribeTracks},
	paramSubscriberPriority:      {TypeSubscribe, TypeFetch, TypeRequestUpdate, TypeRequestOK},
	paramFilter:                  {TypeSubscribe, TypeRequestOK, TypeRequestUpdate},
	paramGroupOrder:              {TypeSubscribe, TypeRequestOK, TypeFetch},
	paramNewGroupRequest:         {TypeRequestOK, TypeSubscribe, TypeRequestUpdate},
	paramNamespacePrefix:         {TypeRequestUpdate},
}

// append appends the number of parameters and the parameters in ascending order of type.
func (p *Parameters) append(b []byte, v Version) []byte {
	var out []byte
	var count, prev uint64
	add := func(t uint64) {
		out = AppendVarint(out, t-prev)
		prev = t
		count++
	}
	varint := func(t uint64, i *uint64) {
		if i != nil {
			add(t)
			out = AppendVarint(out, *i)
		}
	}
	boolean := func(t uint64, set *bool) {
		if set == nil {
			return
		}
		add(t)
		if *set {
			out = append(out, 1)
		} else {
			out = append(out, 0)
		}
	}
	varint(paramObjectDeliveryTimeout, p.ObjectDeliveryTimeout)
	for _, t := range p.AuthorizationTokens {
		add(paramAuthorizationToken)
		out = appendBytes(out, t.append(nil))
	}
	varint(paramRendezvousTimeout, p.RendezvousTimeout)
	varint(paramSubgroupDeliveryTimeout, p.SubgroupDeliveryTimeout)
	varint(paramExpires, p.Expires)
	if p.LargestObject != nil {
		add(paramLargestObject)
		out = p.LargestObject.append(out)
	}
	varint(paramFillTimeout, p.FillTimeout)
	boolean(paramForward, p.Forward)
	if p.SubscriberPriority != nil {
		add(paramSubscriberPriority)
		out = append(out, *p.SubscriberPriority)
	}
	if p.Filter != nil {
		add(paramFilter)
		out = p.Filter.append(out, v)
	}
	if p.GroupOrder != nil {
		add(paramGroupOrder)
		out = append(out, byte(*p.GroupOrder))
	}
	if p.Fill != nil {
		add(paramFill)
		out = appendBytes(out, p.Fill.append(nil, v))
	}
	varint(paramNewGroupRequest, p.NewGroupRequest)
	if p.NamespacePrefix != nil {
		add(paramNamespacePrefix)
		out = p.NamespacePrefix.append(out)
	}
	boolean(paramIncludeProperties, p.IncludeProperties)
	return append(AppendVarint(b, count), out...)
}

// params parses the parameters of a message of type m. Unknown, repeated and misplaced parameters
// are violations (§10.2), because they cannot be skipped.
func (c *cursor) params(m MessageType) (p Parameters) {
	count := c.varint()
	var prev uint64
	for i := uint64(0); i < count && c.err == nil; i++ {
		delta := c.varint()
		t := prev + delta
		if t < prev {
			c.fail(violation("parameter type exceeds 2^64-1"))
			return p
		}
		if i > 0 && delta == 0 && !c.v.repeats(t) {
			c.fail(violation("parameter %#x is repeated in %s", t, m))
			return p
		}
		prev = t
		known, allowed := c.v.allows(t, m)
		if c.err == nil && !known {
			c.fail(violation("unknown parameter %#x in %s", t, m))
		} else if c.err == nil && !allowed {
			c.fail(violation("parameter %#x is not allowed in %s", t, m))
		}
		if c.err != nil {
			return p
		}
		switch t {
		case paramObjectDeliveryTimeout:
			p.ObjectDeliveryTimeout = new(c.varint())
		case paramAuthorizationToken:
			if len(p.AuthorizationTokens) == MaxTokens {
				c.fail(violation("more than %d authorization tokens in %s", MaxTokens, m))
				return p
			}
			tok, err := ParseToken(c.bytes(MaxMessageLength, "authorization token"))
			if err != nil {
				c.fail(err)
				return p
			}
			p.AuthorizationTokens = append(p.AuthorizationTokens, tok)
		case paramRendezvousTimeout:
			p.RendezvousTimeout = new(c.varint())
		case paramSubgroupDeliveryTimeout:
			p.SubgroupDeliveryTimeout = new(c.varint())
		case paramExpires:
			p.Expires = new(c.varint())
		case paramLargestObject:
			p.LargestObject = new(c.location())
		case paramFillTimeout:
			p.FillTimeout = new(c.varint())
		case paramForward:
			p.Forward = c.boolean("forward parameter")
		case paramSubscriberPriority:
			p.SubscriberPriority = new(c.uint8())
		case paramFilter:
			p.Filter = new(c.filter())
		case paramGroupOrder:
			v := GroupOrder(c.uint8())
			if v != Ascending && v != Descending && c.err == nil {
				c.fail(violation("invalid group order %d", v))
			}
			p.GroupOrder = &v
		case paramFill:
			p.Fill = c.fill()
		case paramIncludeProperties:
			p.IncludeProperties = c.boolean("properties parameter")
		case paramNewGroupRequest:
			p.NewGroupRequest = new(c.varint())
		case paramNamespacePrefix:
			p.NamespacePrefix = new(c.namespace())
		case paramSubgroupFilter,
			paramObjectIDFilter,
			paramPriorityFilter,
			paramObjectPropertyFilter,
			paramTrackPropertyFilter:
			if b := c.bytes(MaxMessageLength, "range filter"); len(b) > 0 {
				p.RangeFilters = true
			}
		}
	}
	return p
}

// fill parses the value of FILL_PARAMETERS: parameters as in a message of their own (draft-22
// §9.20.15).
func (c *cursor) fill() *Parameters {
	f := cursor{b: c.bytes(MaxMessageLength, "fill parameters"), v: c.v}
	p := f.params(typeFill)
	switch {
	case c.err != nil:
	case f.err == errShort:
		c.fail(violation("%s ends inside a field", typeFill))
	case f.err != nil:
		c.fail(f.err)
	case len(f.b) > 0:
		c.fail(violation("%d bytes after the last field of %s", len(f.b), typeFill))
	}
	return &p
}

// boolean parses a byte that is 0 or 1.
func (c *cursor) boolean(what string) *bool {
	v := c.uint8()
	if v > 1 {
		c.fail(violation("invalid %s %d", what, v))
	}
	return new(v == 1)
}

// TokenAliasType selects how an authorization token is carried (§10.2.2).
type TokenAliasType uint64

// Token alias types, §15.5.
const (
	TokenDelete   TokenAliasType = 0x0
	TokenRegister TokenAliasType = 0x1
	TokenUseAlias TokenAliasType = 0x2
	TokenUseValue TokenAliasType = 0x3
)

// Token is an authorization token or a reference to one (§10.2.2).
type Token struct {
	AliasType TokenAliasType
	Alias     uint64 // Delete, Register, UseAlias
	Type      uint64 // Register, UseValue; 0 = agreed out of band
	Value     []byte // Register, UseValue
}

func (t Token) append(b []byte) []byte {
	b = AppendVarint(b, uint64(t.AliasType))
	if t.AliasType != TokenUseValue {
		b = AppendVarint(b, t.Alias)
	}
	if t.AliasType == TokenRegister || t.AliasType == TokenUseValue {
		b = append(AppendVarint(b, t.Type), t.Value...)
	}
	return b
}

// ParseToken parses a complete Token structure and copies its value.
func ParseToken(b []byte) (Token, error) {
	c := cursor{b: b}
	t := Token{AliasType: TokenAliasType(c.varint())}
	switch t.AliasType {
	case TokenDelete, TokenUseAlias:
		t.Alias = c.varint()
	case TokenRegister:
		t.Alias = c.varint()
		t.Type = c.varint()
		t.Value = slices.Clone(c.rest())
	case TokenUseValue:
		t.Type = c.varint()
		t.Value = slices.Clone(c.rest())
	default:
		return t, &Error{KeyValueFormattingError, "unknown authorization token alias type"}
	}
	if c.err != nil || len(c.b) != 0 {
		return t, &Error{KeyValueFormattingError, "authorization token cannot be decoded"}
	}
	return t, nil
}
