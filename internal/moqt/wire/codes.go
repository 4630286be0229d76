package wire

import "fmt"

// SessionCode says why a session was closed (§3.5).
type SessionCode uint64

// Session termination codes, §15.10.1.
const (
	NoError                 SessionCode = 0x0
	InternalError           SessionCode = 0x1
	Unauthorized            SessionCode = 0x2
	ProtocolViolation       SessionCode = 0x3
	InvalidRequestID        SessionCode = 0x4
	DuplicateTrackAlias     SessionCode = 0x5
	KeyValueFormattingError SessionCode = 0x6
	InvalidPath             SessionCode = 0x8
	MalformedPath           SessionCode = 0x9
	GoawayTimeout           SessionCode = 0x10
	ControlMessageTimeout   SessionCode = 0x11
	DataStreamTimeout       SessionCode = 0x12
	AuthTokenCacheOverflow  SessionCode = 0x13
	DuplicateAuthTokenAlias SessionCode = 0x14
	VersionNegotiation      SessionCode = 0x15
	MalformedAuthToken      SessionCode = 0x16
	UnknownAuthTokenAlias   SessionCode = 0x17
	ExpiredAuthToken        SessionCode = 0x18
	InvalidAuthority        SessionCode = 0x19
	MalformedAuthority      SessionCode = 0x1a
)

func (c SessionCode) String() string {
	return codeName(uint64(c), map[uint64]string{
		0x0: "NO_ERROR", 0x1: "INTERNAL_ERROR", 0x2: "UNAUTHORIZED", 0x3: "PROTOCOL_VIOLATION",
		0x4: "INVALID_REQUEST_ID", 0x5: "DUPLICATE_TRACK_ALIAS", 0x6: "KEY_VALUE_FORMATTING_ERROR",
		0x8: "INVALID_PATH", 0x9: "MALFORMED_PATH", 0x10: "GOAWAY_TIMEOUT",
		0x11: "CONTROL_MESSAGE_TIMEOUT", 0x12: "DATA_STREAM_TIMEOUT",
		0x13: "AUTH_TOKEN_CACHE_OVERFLOW", 0x14: "DUPLICATE_AUTH_TOKEN_ALIAS",
		0x15: "VERSION_NEGOTIATION_FAILED", 0x16: "MALFORMED_AUTH_TOKEN",
		0x17: "UNKNOWN_AUTH_TOKEN_ALIAS", 0x18: "EXPIRED_AUTH_TOKEN",
		0x19: "INVALID_AUTHORITY", 0x1a: "MALFORMED_AUTHORITY",
	})
}

// RequestCode says why a request was refused (§10.6).
type RequestCode uint64

// REQUEST_ERROR codes, §15.10.2.
const (
	RequestInternalError           RequestCode = 0x0
	RequestUnauthorized            RequestCode = 0x1
	RequestTimeout                 RequestCode = 0x2
	RequestNotSupported            RequestCode = 0x3
	RequestMalformedAuthToken      RequestCode = 0x4
	RequestExpiredAuthToken        RequestCode = 0x5
	RequestGoingAway               RequestCode = 0x6
	RequestExcessiveLoad           RequestCode = 0x9
	RequestDoesNotExist            RequestCode = 0x10
	RequestInvalidRange            RequestCode = 0x11
	RequestMalformedTrack          RequestCode = 0x12
	RequestDuplicateSubscription   RequestCode = 0x19
	RequestUninterested            RequestCode = 0x20
	RequestPrefixOverlap           RequestCode = 0x30
	RequestNamespaceTooLarge       RequestCode = 0x31
	RequestInvalidJoiningRequestID RequestCode = 0x32
	RequestUnsupportedExtension    RequestCode = 0x33
	RequestRedirect                RequestCode = 0x34
)

func (c RequestCode) String() string {
	return codeName(uint64(c), map[uint64]string{
		0x0: "INTERNAL_ERROR", 0x1: "UNAUTHORIZED", 0x2: "TIMEOUT", 0x3: "NOT_SUPPORTED",
		0x4: "MALFORMED_AUTH_TOKEN", 0x5: "EXPIRED_AUTH_TOKEN", 0x6: "GOING_AWAY",
		0x9: "EXCESSIVE_LOAD", 0x10: "DOES_NOT_EXIST", 0x11: "INVALID_RANGE",
		0x12: "MALFORMED_TRACK", 0x19: "DUPLICATE_SUBSCRIPTION", 0x20: "UNINTERESTED",
		0x30: "PREFIX_OVERLAP", 0x31: "NAMESPACE_TOO_LARGE", 0x32: "INVALID_JOINING_REQUEST_ID",
		0x33: "UNSUPPORTED_EXTENSION", 0x34: "REDIRECT",
	})
}

// DoneCode says why a publisher ended a subscription (§10.11).
type DoneCode uint64

// PUBLISH_DONE codes, §15.10.3.
const (
	DoneInternalError     DoneCode = 0x0
	DoneUnauthorized      DoneCode = 0x1
	DoneTrackEnded        DoneCode = 0x2
	DoneSubscriptionEnded DoneCode = 0x3
	DoneGoingAway         DoneCode = 0x4
	DoneTooFarBehind      DoneCode = 0x5
	DoneExpired           DoneCode = 0x6
	DoneUpdateFailed      DoneCode = 0x8
	DoneExcessiveLoad     DoneCode = 0x9
	DoneMalformedTrack    DoneCode = 0x12
)

func (c DoneCode) String() string {
	return codeName(uint64(c), map[uint64]string{
		0x0: "INTERNAL_ERROR", 0x1: "UNAUTHORIZED", 0x2: "TRACK_ENDED", 0x3: "SUBSCRIPTION_ENDED",
		0x4: "GOING_AWAY", 0x5: "TOO_FAR_BEHIND", 0x6: "EXPIRED", 0x8: "UPDATE_FAILED",
		0x9: "EXCESSIVE_LOAD", 0x12: "MALFORMED_TRACK",
	})
}

// StreamCode says why a stream was reset or refused (§3.3.3).
type StreamCode uint64

// Stream reset codes, §15.10.4.
const (
	StreamInternalError       StreamCode = 0x0
	StreamCancelled           StreamCode = 0x1
	StreamDeliveryTimeout     StreamCode = 0x2
	StreamSessionClosed       StreamCode = 0x3
	StreamGoingAway           StreamCode = 0x4
	StreamTooFarBehind        StreamCode = 0x5
	StreamUnknownObjectStatus StreamCode = 0x6
	StreamExpiredAuthToken    StreamCode = 0x7
	StreamExcessiveLoad       StreamCode = 0x9
	StreamMalformedTrack      StreamCode = 0x12
)

func (c StreamCode) String() string {
	return codeName(uint64(c), map[uint64]string{
		0x0: "INTERNAL_ERROR", 0x1: "CANCELLED", 0x2: "DELIVERY_TIMEOUT", 0x3: "SESSION_CLOSED",
		0x4: "GOING_AWAY", 0x5: "TOO_FAR_BEHIND", 0x6: "UNKNOWN_OBJECT_STATUS",
		0x7: "EXPIRED_AUTH_TOKEN", 0x9: "EXCESSIVE_LOAD", 0x12: "MALFORMED_TRACK",
	})
}

func codeName(code uint64, names map[uint64]string) string {
	if n, ok := names[code]; ok {
		return n
	}
	return fmt.Sprintf("code %#x", code)
}
