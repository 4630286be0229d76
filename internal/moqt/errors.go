package moqt

import (
	"context"
	"errors"
	"fmt"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/webtransport-go"

	"holocast/internal/moqt/wire"
)

// SessionError reports the end of a session, with the draft's code (§3.5). Code 0 is a regular
// close.
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

// RequestError refuses a request, in either direction (§10.6).
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

// DoneError reports the end of a subscription by its publisher (§10.11).
type DoneError struct {
	Code        wire.DoneCode
	StreamCount uint64
	Reason      string
}

func (e *DoneError) Error() string {
	return fmt.Sprintf("moqt: subscription ended: %s: %s", e.Code, e.Reason)
}

// StreamError reports a stream that was reset or refused (§3.3.3).
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
	// ErrStreamsBlocked is returned while the peer allows no further stream.
	ErrStreamsBlocked = errors.New("moqt: the peer's limit on open streams is reached")
	// ErrRequestsBlocked is returned if the peer allows no further request in time.
	ErrRequestsBlocked = errors.New("moqt: the peer's limit on open requests is reached")
	// ErrNotForwarding is returned while the subscription's forward state is 0.
	ErrNotForwarding = errors.New("moqt: the subscriber has paused the subscription")
	// ErrDeliveryTimeout is returned for an object that missed its deadline (§8).
	ErrDeliveryTimeout = errors.New("moqt: delivery timeout")
	// ErrDatagramTooLarge is returned for an object that exceeds the path's datagram size.
	ErrDatagramTooLarge = errors.New("moqt: datagram exceeds the path's maximum size")
	// ErrQueueFull is returned when a bounded queue of the session is full.
	ErrQueueFull = errors.New("moqt: queue is full")
)

// sessionError converts a transport error that ended a connection.
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

// streamError converts a transport error on a stream.
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

// closeCode returns the code and reason with which err closes a session.
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
