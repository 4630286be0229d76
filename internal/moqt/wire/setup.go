package wire

import "unicode/utf8"

// Setup is the first message on each control stream (§10.3). Empty fields are absent. Unknown
// options are ignored, as the draft requires.
type Setup struct {
	Path                  string // client over raw QUIC only
	Authority             string // client over raw QUIC only
	HasPath, HasAuthority bool
	MaxAuthTokenCacheSize uint64 // bytes
	AuthorizationTokens   []Token
	Implementation        string
	// MaxRequestUpdates bounds the unanswered REQUEST_UPDATEs per request that the sender accepts.
	// 0 means unlimited (draft-19 §10.3.1.7).
	MaxRequestUpdates uint64
}

// Setup option types, §15.4.
const (
	optionPath                  = 0x01
	optionAuthorizationToken    = 0x03
	optionMaxAuthTokenCacheSize = 0x04
	optionAuthority             = 0x05
	optionImplementation        = 0x07
	optionMaxRequestUpdates     = 0x08 // draft-19 only
)

// Type is TypeSetup.
func (*Setup) Type() MessageType { return TypeSetup }

func (m *Setup) append(b []byte, _ Version) []byte {
	var kvs []KeyValue
	if m.HasPath {
		kvs = append(kvs, KeyValue{Type: optionPath, Bytes: []byte(m.Path)})
	}
	for _, t := range m.AuthorizationTokens {
		kvs = append(kvs, KeyValue{Type: optionAuthorizationToken, Bytes: t.append(nil)})
	}
	if m.MaxAuthTokenCacheSize > 0 {
		kvs = append(kvs, KeyValue{Type: optionMaxAuthTokenCacheSize, Int: m.MaxAuthTokenCacheSize})
	}
	if m.HasAuthority {
		kvs = append(kvs, KeyValue{Type: optionAuthority, Bytes: []byte(m.Authority)})
	}
	if m.Implementation != "" {
		kvs = append(kvs, KeyValue{Type: optionImplementation, Bytes: []byte(m.Implementation)})
	}
	if m.MaxRequestUpdates > 0 {
		kvs = append(kvs, KeyValue{Type: optionMaxRequestUpdates, Int: m.MaxRequestUpdates})
	}
	return AppendKeyValues(b, kvs...)
}

func (c *cursor) setup() *Setup {
	m := &Setup{}
	kvs, err := ParseKeyValues(c.rest())
	if err != nil {
		c.fail(err)
		return nil
	}
	seen := map[uint64]bool{}
	for _, kv := range kvs {
		switch kv.Type {
		case optionPath, optionMaxAuthTokenCacheSize, optionAuthority, optionImplementation:
			if seen[kv.Type] {
				c.fail(violation("setup option %#x is repeated", kv.Type))
				return nil
			}
			seen[kv.Type] = true
		}
		switch kv.Type {
		case optionPath:
			m.Path, m.HasPath = string(kv.Bytes), true
		case optionAuthorizationToken:
			t, err := ParseToken(kv.Bytes)
			if err == nil && (t.AliasType == TokenDelete || t.AliasType == TokenUseAlias) {
				err = violation("invalid authorization token alias type %d in SETUP", t.AliasType)
			}
			if err == nil && len(m.AuthorizationTokens) == MaxTokens {
				err = violation("more than %d authorization tokens in SETUP", MaxTokens)
			}
			if err != nil {
				c.fail(err)
				return nil
			}
			m.AuthorizationTokens = append(m.AuthorizationTokens, t)
		case optionMaxAuthTokenCacheSize:
			m.MaxAuthTokenCacheSize = kv.Int
		case optionMaxRequestUpdates:
			m.MaxRequestUpdates = kv.Int
		case optionAuthority:
			m.Authority, m.HasAuthority = string(kv.Bytes), true
		case optionImplementation:
			// Only diagnostic, so ignore invalid text.
			if utf8.Valid(kv.Bytes) {
				m.Implementation = string(kv.Bytes)
			}
		}
	}
	return m
}

// Goaway asks the peer to move its session, or one request, elsewhere (§10.4).
type Goaway struct {
	NewSessionURI string
	Timeout       uint64  // milliseconds; 0 = as quickly as possible
	RequestID     *uint64 // only on the control stream and in draft-18
}

// Type is TypeGoaway.
func (*Goaway) Type() MessageType { return TypeGoaway }

func (m *Goaway) append(b []byte, _ Version) []byte {
	b = AppendVarint(appendBytes(b, m.NewSessionURI), m.Timeout)
	if m.RequestID != nil {
		b = AppendVarint(b, *m.RequestID)
	}
	return b
}

func (c *cursor) goaway() *Goaway {
	m := &Goaway{NewSessionURI: string(c.bytes(MaxSessionURILength, "new session URI")), Timeout: c.varint()}
	if len(c.b) > 0 && c.v < Draft19 {
		m.RequestID = new(c.varint())
	}
	return m
}
