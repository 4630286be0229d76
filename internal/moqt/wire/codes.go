package wire

import "fmt"

// SessionCode is the reason a session was closed (§3.5).
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
	TooManyRequestUpdates   SessionCode = 0x1b // draft-19
)

func (c SessionCode) String() string { return codeName(c, sessionCodeNames) }

var sessionCodeNames = map[SessionCode]string{
	NoError:                 "NO_ERROR",
	InternalError:           "INTERNAL_ERROR",
	Unauthorized:            "UNAUTHORIZED",
	ProtocolViolation:       "PROTOCOL_VIOLATION",
	InvalidRequestID:        "INVALID_REQUEST_ID",
	DuplicateTrackAlias:     "DUPLICATE_TRACK_ALIAS",
	KeyValueFormattingError: "KEY_VALUE_FORMATTING_ERROR",
	InvalidPath:             "INVALID_PATH",
	MalformedPath:           "MALFORMED_PATH",
	GoawayTimeout:           "GOAWAY_TIMEOUT",
	ControlMessageTimeout:   "CONTROL_MESSAGE_TIMEOUT",
	DataStreamTimeout:       "DATA_STREAM_TIMEOUT",
	AuthTokenCacheOverflow:  "AUTH_TOKEN_CACHE_OVERFLOW",
	DuplicateAuthTokenAlias: "DUPLICATE_AUTH_TOKEN_ALIAS",
	VersionNegotiation:      "VERSION_NEGOTIATION_FAILED",
	MalformedAuthToken:      "MALFORMED_AUTH_TOKEN",
	UnknownAuthTokenAlias:   "UNKNOWN_AUTH_TOKEN_ALIAS",
	ExpiredAuthToken:        "EXPIRED_AUTH_TOKEN",
	InvalidAuthority:        "INVALID_AUTHORITY",
	MalformedAuthority:      "MALFORMED_AUTHORITY",
	TooManyRequestUpdates:   "TOO_MANY_REQUEST_UPDATES",
}

// RequestCode is the reason a request was refused (§10.6).
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
	RequestDuplicateSubscription   RequestCode = 0x19 // draft-18
	RequestUninterested            RequestCode = 0x20
	RequestPrefixOverlap           RequestCode = 0x30
	RequestNamespaceTooLarge       RequestCode = 0x31
	RequestInvalidJoiningRequestID RequestCode = 0x32
	RequestUnsupportedExtension    RequestCode = 0x33
	RequestRedirect                RequestCode = 0x34
	RequestConflictingFilters      RequestCode = 0x35 // draft-19
	RequestInvalidFilter           RequestCode = 0x36 // draft-19
)

func (c RequestCode) String() string { return codeName(c, requestCodeNames) }

var requestCodeNames = map[RequestCode]string{
	RequestInternalError:           "INTERNAL_ERROR",
	RequestUnauthorized:            "UNAUTHORIZED",
	RequestTimeout:                 "TIMEOUT",
	RequestNotSupported:            "NOT_SUPPORTED",
	RequestMalformedAuthToken:      "MALFORMED_AUTH_TOKEN",
	RequestExpiredAuthToken:        "EXPIRED_AUTH_TOKEN",
	RequestGoingAway:               "GOING_AWAY",
	RequestExcessiveLoad:           "EXCESSIVE_LOAD",
	RequestDoesNotExist:            "DOES_NOT_EXIST",
	RequestInvalidRange:            "INVALID_RANGE",
	RequestMalformedTrack:          "MALFORMED_TRACK",
	RequestDuplicateSubscription:   "DUPLICATE_SUBSCRIPTION",
	RequestUninterested:            "UNINTERESTED",
	RequestPrefixOverlap:           "PREFIX_OVERLAP",
	RequestNamespaceTooLarge:       "NAMESPACE_TOO_LARGE",
	RequestInvalidJoiningRequestID: "INVALID_JOINING_REQUEST_ID",
	RequestUnsupportedExtension:    "UNSUPPORTED_EXTENSION",
	RequestRedirect:                "REDIRECT",
	RequestConflictingFilters:      "CONFLICTING_FILTERS",
	RequestInvalidFilter:           "INVALID_FILTER",
}

// DoneCode is the reason a publisher ended a subscription (§10.11).
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

func (c DoneCode) String() string { return codeName(c, doneCodeNames) }

var doneCodeNames = map[DoneCode]string{
	DoneInternalError:     "INTERNAL_ERROR",
	DoneUnauthorized:      "UNAUTHORIZED",
	DoneTrackEnded:        "TRACK_ENDED",
	DoneSubscriptionEnded: "SUBSCRIPTION_ENDED",
	DoneGoingAway:         "GOING_AWAY",
	DoneTooFarBehind:      "TOO_FAR_BEHIND",
	DoneExpired:           "EXPIRED",
	DoneUpdateFailed:      "UPDATE_FAILED",
	DoneExcessiveLoad:     "EXCESSIVE_LOAD",
	DoneMalformedTrack:    "MALFORMED_TRACK",
}

// StreamCode is the reason a stream was reset or refused (§3.3.3).
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

func (c StreamCode) String() string { return codeName(c, streamCodeNames) }

var streamCodeNames = map[StreamCode]string{
	StreamInternalError:       "INTERNAL_ERROR",
	StreamCancelled:           "CANCELLED",
	StreamDeliveryTimeout:     "DELIVERY_TIMEOUT",
	StreamSessionClosed:       "SESSION_CLOSED",
	StreamGoingAway:           "GOING_AWAY",
	StreamTooFarBehind:        "TOO_FAR_BEHIND",
	StreamUnknownObjectStatus: "UNKNOWN_OBJECT_STATUS",
	StreamExpiredAuthToken:    "EXPIRED_AUTH_TOKEN",
	StreamExcessiveLoad:       "EXCESSIVE_LOAD",
	StreamMalformedTrack:      "MALFORMED_TRACK",
}

// codeName names a code. Unknown codes may be grease or later additions (§14).
func codeName[C ~uint64](code C, names map[C]string) string {
	if n, ok := names[code]; ok {
		return n
	}
	return fmt.Sprintf("code %#x", uint64(code))
}
