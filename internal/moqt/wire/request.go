package wire

import "time"

// RequestOK accepts a PUBLISH, REQUEST_UPDATE, TRACK_STATUS, SUBSCRIBE_NAMESPACE,
// SUBSCRIBE_TRACKS or PUBLISH_NAMESPACE (§10.5).
type RequestOK struct {
	Parameters Parameters
	Properties Properties // TRACK_STATUS only
}

// Type is TypeRequestOK.
func (*RequestOK) Type() MessageType { return TypeRequestOK }

func (m *RequestOK) append(b []byte, v Version) []byte {
	return append(m.Parameters.append(b, v), m.Properties...)
}

func (c *cursor) requestOK() *RequestOK {
	return &RequestOK{c.params(TypeRequestOK), c.trackProperties()}
}

// CheckResponse checks a response against the type of its request. REQUEST_OK answers six requests:
// only one allows properties, and most allow few parameters (§10.2, §10.5). A redirected namespace
// has no track name (§10.6.1). CheckResponse does not check whether the type of the response fits
// the request.
func (v Version) CheckResponse(request MessageType, response Message) error {
	switch m := response.(type) {
	case *RequestOK:
		return m.check(v, request)
	case *RequestError:
		namespace := request == TypePublishNamespace || request == TypeSubscribeNamespace ||
			v >= Draft19 && request == TypeSubscribeTracks
		if namespace && m.Redirect != nil && m.Redirect.Track.Name != "" {
			return violation("redirect of %s has a track name", request)
		}
	}
	return nil
}

// CheckResponse calls Draft18.CheckResponse.
func CheckResponse(request MessageType, response Message) error {
	return Draft18.CheckResponse(request, response)
}

func (m *RequestOK) check(v Version, request MessageType) error {
	if len(m.Properties) > 0 && request != TypeTrackStatus {
		return violation("track properties in the response to %s", request)
	}
	misplaced := m.Parameters // the allowed parameters are cleared below
	switch request {
	case TypePublish:
		if v >= Draft20 {
			misplaced.Expires = nil
			break
		}
		misplaced.ObjectDeliveryTimeout, misplaced.SubgroupDeliveryTimeout = nil, nil
		misplaced.Expires, misplaced.Forward, misplaced.SubscriberPriority = nil, nil, nil
		misplaced.Filter, misplaced.GroupOrder, misplaced.NewGroupRequest = nil, nil, nil
	case TypeRequestUpdate, TypeTrackStatus:
		misplaced.Expires, misplaced.LargestObject = nil, nil
	case TypeSubscribeNamespace, TypeSubscribeTracks, TypePublishNamespace:
		if v >= Draft19 { // §10.2.10
			misplaced.Expires = nil
		}
	}
	// The number of parameters and the type of the first each fit one byte.
	if b := misplaced.append(nil, v); b[0] > 0 {
		return violation("parameter %#x is not allowed in the response to %s", b[1], request)
	}
	return nil
}

// RequestError refuses a request (§10.6).
type RequestError struct {
	Code          RequestCode
	RetryInterval uint64 // encoded by RetryAfter; 0 = do not retry
	Reason        string
	Redirect      *Redirect // with RequestRedirect only
}

// RetryAfter encodes a Retry Interval (§10.6): one more than the wait in milliseconds.
func RetryAfter(d time.Duration) uint64 { return 1 + uint64(max(0, d.Milliseconds())) }

// Redirect names where to retry a request (§10.6.1). Empty fields mean the session's URI and the
// request's names.
type Redirect struct {
	ConnectURI string
	Track      TrackName
}

// Type is TypeRequestError.
func (*RequestError) Type() MessageType { return TypeRequestError }

func (m *RequestError) append(b []byte, _ Version) []byte {
	b = AppendVarint(AppendVarint(b, uint64(m.Code)), m.RetryInterval)
	b = appendReason(b, m.Reason)
	if m.Code == RequestRedirect {
		r := m.Redirect
		if r == nil {
			r = &Redirect{}
		}
		b = r.Track.append(appendBytes(b, r.ConnectURI))
	}
	return b
}

func (c *cursor) requestError() *RequestError {
	m := &RequestError{Code: RequestCode(c.varint()), RetryInterval: c.varint(), Reason: c.reason()}
	if c.err == nil && m.Code == RequestRedirect {
		m.Redirect = &Redirect{string(c.bytes(MaxSessionURILength, "connect URI")), c.trackName()}
	}
	return m
}

// RequestUpdate changes the parameters of the request on its stream (§10.9).
type RequestUpdate struct {
	RequestID  uint64
	Parameters Parameters
}

// Type is TypeRequestUpdate.
func (*RequestUpdate) Type() MessageType { return TypeRequestUpdate }

func (m *RequestUpdate) append(b []byte, v Version) []byte {
	return m.Parameters.append(AppendVarint(b, m.RequestID), v)
}
