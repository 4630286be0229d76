package wire

import (
	"fmt"
	"io"
	"unicode/utf8"
)

// MessageType identifies a control message (§10).
type MessageType uint64

// Control message types, §10.
const (
	TypeRequestUpdate      MessageType = 0x2
	TypeSubscribe          MessageType = 0x3
	TypeSubscribeOK        MessageType = 0x4
	TypeRequestError       MessageType = 0x5
	TypePublishNamespace   MessageType = 0x6
	TypeRequestOK          MessageType = 0x7
	TypeNamespace          MessageType = 0x8
	TypePublishDone        MessageType = 0xb
	TypeTrackStatus        MessageType = 0xd
	TypeNamespaceDone      MessageType = 0xe
	TypePublishBlocked     MessageType = 0xf
	TypeGoaway             MessageType = 0x10
	TypeFetch              MessageType = 0x16
	TypeFetchOK            MessageType = 0x18
	TypePublish            MessageType = 0x1d
	TypePublishStateNotify MessageType = 0x22 // draft-20
	TypeSubscribeNamespace MessageType = 0x50
	TypeSubscribeTracks    MessageType = 0x51
	TypeSetup              MessageType = 0x2f00

	// The draft's table still lists PUBLISH_OK, but its text and change log replaced it with
	// REQUEST_OK. We parse it as REQUEST_OK and never send it.
	typePublishOK MessageType = 0x1e

	// typeFill is the scope of the parameters in FILL_PARAMETERS, and no message.
	typeFill MessageType = 1<<64 - 1
)

func (t MessageType) String() string { return codeName(t, messageTypeNames) }

var messageTypeNames = map[MessageType]string{
	TypeRequestUpdate:      "REQUEST_UPDATE",
	TypeSubscribe:          "SUBSCRIBE",
	TypeSubscribeOK:        "SUBSCRIBE_OK",
	TypeRequestError:       "REQUEST_ERROR",
	TypePublishNamespace:   "PUBLISH_NAMESPACE",
	TypeRequestOK:          "REQUEST_OK",
	TypeNamespace:          "NAMESPACE",
	TypePublishDone:        "PUBLISH_DONE",
	TypeTrackStatus:        "TRACK_STATUS",
	TypeNamespaceDone:      "NAMESPACE_DONE",
	TypePublishBlocked:     "PUBLISH_BLOCKED",
	TypeGoaway:             "GOAWAY",
	TypeFetch:              "FETCH",
	TypeFetchOK:            "FETCH_OK",
	TypePublish:            "PUBLISH",
	typePublishOK:          "PUBLISH_OK",
	TypePublishStateNotify: "PUBLISH_STATE_NOTIFY",
	typeFill:               "FILL_PARAMETERS",
	TypeSubscribeNamespace: "SUBSCRIBE_NAMESPACE",
	TypeSubscribeTracks:    "SUBSCRIBE_TRACKS",
	TypeSetup:              "SETUP",
}

// Message is a control message.
type Message interface {
	Type() MessageType
	append(b []byte, v Version) []byte
}

// AppendMessage calls Draft18.AppendMessage.
func AppendMessage(b []byte, m Message) ([]byte, error) { return Draft18.AppendMessage(b, m) }

// ReadMessage calls Draft18.ReadMessage.
func ReadMessage(r ByteReader) (Message, error) { return Draft18.ReadMessage(r) }

// ParseMessage calls Draft18.ParseMessage.
func ParseMessage(t MessageType, payload []byte) (Message, error) {
	return Draft18.ParseMessage(t, payload)
}

// AppendMessage appends m with its type and length. It returns an error if the payload exceeds the
// 16-bit length, or if the peer would close the session because of it: a name that is too long or a
// misplaced parameter.
func (v Version) AppendMessage(b []byte, m Message) ([]byte, error) {
	if f, ok := m.(*Fetch); ok && v >= Draft20 && f.FetchType != FetchStandalone {
		return nil, fmt.Errorf("moqt: %s has no joining fetches", v)
	}
	b = AppendVarint(b, uint64(m.Type()))
	at := len(b)
	b = m.append(append(b, 0, 0), v)
	n := len(b) - at - 2
	if n > MaxMessageLength {
		return nil, fmt.Errorf("moqt: %s of %d bytes exceeds %d", m.Type(), n, MaxMessageLength)
	}
	b[at], b[at+1] = byte(n>>8), byte(n)
	if _, err := v.ParseMessage(m.Type(), b[at+2:]); err != nil {
		// Do not wrap a local mistake: a wrapped *Error would end the session.
		return nil, fmt.Errorf("moqt: cannot send %s: %v", m.Type(), err) //nolint:errorlint
	}
	return b, nil
}

// ReadMessage reads one control message. It returns io.EOF if the stream ends before a message, and
// an *Error for violations of the draft.
func (v Version) ReadMessage(r ByteReader) (Message, error) {
	t, err := ReadVarint(r)
	if err != nil {
		return nil, err
	}
	if !v.knows(MessageType(t)) {
		return nil, violation("unknown message type %#x", t) // do not wait for its payload
	}
	payload, err := readPayload(r)
	if err != nil {
		return nil, err
	}
	return v.ParseMessage(MessageType(t), payload)
}

// readPayload reads a control message's length and payload.
func readPayload(r ByteReader) ([]byte, error) {
	hi, err := r.ReadByte()
	if err != nil {
		return nil, unexpected(err)
	}
	lo, err := r.ReadByte()
	if err != nil {
		return nil, unexpected(err)
	}
	payload := make([]byte, int(hi)<<8|int(lo))
	if _, err := io.ReadFull(r, payload); err != nil {
		return nil, unexpected(err)
	}
	return payload, nil
}

// ParseMessage parses the complete payload of a control message of type t.
func (v Version) ParseMessage(t MessageType, payload []byte) (Message, error) {
	if !v.knows(t) {
		return nil, violation("unknown message type %#x", uint64(t))
	}
	c := cursor{b: payload, v: v}
	var m Message
	switch t {
	case TypeSetup:
		m = c.setup()
	case TypeGoaway:
		m = c.goaway()
	case TypeRequestOK, typePublishOK: // typePublishOK in Draft18 only
		m = c.requestOK()
	case TypeRequestError:
		m = c.requestError()
	case TypeRequestUpdate:
		m = &RequestUpdate{c.varint(), c.params(t)}
	case TypeSubscribe:
		m = &Subscribe{c.varint(), c.trackName(), c.params(t)}
	case TypeTrackStatus:
		m = &TrackStatus{c.varint(), c.trackName(), c.params(t)}
	case TypeSubscribeOK:
		m = &SubscribeOK{c.varint(), c.params(t), c.trackProperties()}
	case TypePublish:
		m = &Publish{c.varint(), c.trackName(), c.varint(), c.params(t), c.trackProperties()}
	case TypePublishDone:
		m = &PublishDone{DoneCode(c.varint()), c.varint(), c.reason()}
	case TypePublishStateNotify:
		m = &PublishStateNotify{c.params(t)}
	case TypePublishBlocked:
		name := c.trackName()
		m = &PublishBlocked{name.Namespace, name.Name}
	case TypeFetch:
		m = c.fetch()
	case TypeFetchOK:
		m = c.fetchOK()
	case TypePublishNamespace:
		m = &PublishNamespace{c.varint(), c.namespace(), c.params(t)}
	case TypeSubscribeNamespace:
		m = &SubscribeNamespace{c.varint(), c.namespace(), c.params(t)}
	case TypeSubscribeTracks:
		m = &SubscribeTracks{c.varint(), c.namespace(), c.params(t)}
	case TypeNamespace:
		m = &NamespaceAdded{c.namespace()}
	case TypeNamespaceDone:
		m = &NamespaceDone{c.namespace()}
	default:
		return nil, violation("unknown message type %#x", uint64(t))
	}
	if c.err == errShort {
		return nil, violation("%s ends inside a field", t)
	}
	if c.err != nil {
		return nil, c.err
	}
	if len(c.b) != 0 {
		return nil, violation("%d bytes after the last field of %s", len(c.b), t)
	}
	return m, nil
}

func (c *cursor) reason() string { return string(c.bytes(MaxReasonLength, "reason phrase")) }

// appendReason truncates long reasons between runes.
func appendReason(b []byte, s string) []byte {
	if len(s) > MaxReasonLength {
		n := MaxReasonLength
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n]
	}
	return appendBytes(b, s)
}

func (c *cursor) trackProperties() Properties {
	p := Properties(c.rest())
	if c.err != nil {
		return nil
	}
	if err := p.validateTrack(); err != nil {
		c.fail(err)
		return nil
	}
	return p
}
