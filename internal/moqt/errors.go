package moqt

import (
	"context"
	"errors"
	"fmt"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/webtransport-go"

	"holocast/internal/moqt/wire"
)

// SessionError is why a session ended. Its code is the draft's (§3.5); 0 is a
// regular close.
type SessionError struct {
	Code   wire.SessionCode
	Reason string
	Remote bool // closed by the peer
}

func (e *SessionError) Error() string {
	by := "closed"
	if e.Remote {
		by = "closed by peer"
	}
	if e.Reason == "" {
		return fmt.Sprintf("moqt: session %s: %s", by, e.Code)
	}
	return fmt.Sprintf("moqt: session %s: %s: %s", by, e.Code, e.Reason)
}

// RequestError is a refused request (§10.6), either way.
type RequestError struct {
	Code          wire.RequestCode
	Reason        string
	RetryInterval uint64 // see wire.RetryAfter; 0 = do not retry
	Redirect      *wire.Redirect
}

func (e *RequestError) Error() string {
	if e.Reason == "" {
		return "moqt: request refused: " + e.Code.String()
	}
	return fmt.Sprintf("moqt: request refused: %s: %s", e.Code, e.Reason)
}

// DoneError is the publisher's end of a subscription (§10.11).
type DoneError struct {
	Code        wire.DoneCode
	StreamCount uint64
	Reason      string
}

func (e *DoneError) Error() string {
	return fmt.Sprintf("moqt: subscription ended: %s: %s", e.Code, e.Reason)
}

// StreamError is a reset or refused stream (§3.3.3).
type StreamError struct {
	Code   wire.StreamCode
	Remote bool // reset or refused by the peer
}

func (e *StreamError) Error() string {
	by := "locally"
	if e.Remote {
		by = "by peer"
	}
	return fmt.Sprintf("moqt: stream reset %s: %s", by, e.Code)
}

// Errors that callers branch on.
var (
	// ErrStreamsBlocked says that the peer allows no further stream now.
	ErrStreamsBlocked = errors.New("moqt: the peer's limit of open streams is reached")
	// ErrRequestsBlocked says that the peer allowed no further request in time.
	ErrRequestsBlocked = errors.New("moqt: the peer's limit of open requests is reached")
	// ErrNotForwarding says that the subscription's forward state is 0.
	ErrNotForwarding = errors.New("moqt: the subscriber asked not to be sent objects")
	// ErrDeliveryTimeout says that an object could no longer arrive in time (§8).
	ErrDeliveryTimeout = errors.New("moqt: delivery timeout")
	// ErrDatagramTooLarge says that an object does not fit a datagram of the path.
	ErrDatagramTooLarge = errors.New("moqt: datagram exceeds the path's maximum size")
	// ErrQueueFull says that a bounded queue of the session is full.
	ErrQueueFull = errors.New("moqt: queue is full")
)

// sessionError translates what the transports return when a connection ends.
func sessionError(err error) error {
	var app *quic.ApplicationError
	var wt *webtransport.SessionError
	switch {
	case errors.As(err, &app):
		return &SessionError{wire.SessionCode(app.ErrorCode), app.ErrorMessage, app.Remote}
	case errors.As(err, &wt):
		return &SessionError{wire.SessionCode(wt.ErrorCode), wt.Message, wt.Remote}
	}
	return err
}

// streamError translates what the transports return when a stream is reset.
func streamError(err error) error {
	var q *quic.StreamError
	var wt *webtransport.StreamError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &q):
		return &StreamError{wire.StreamCode(q.ErrorCode), q.Remote}
	case errors.As(err, &wt):
		return &StreamError{wire.StreamCode(wt.ErrorCode), wt.Remote}
	}
	return sessionError(err)
}

// closeCode picks the code that a session is closed with because of err.
func closeCode(err error) (wire.SessionCode, string) {
	var w *wire.Error
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return wire.NoError, ""
	case errors.As(err, &w):
		return w.Code, w.Msg
	}
	return wire.InternalError, err.Error()
}

func protocolViolation(format string, args ...any) error {
	return &wire.Error{Code: wire.ProtocolViolation, Msg: fmt.Sprintf(format, args...)}
}
