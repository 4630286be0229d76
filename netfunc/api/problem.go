package api

import (
	"errors"
	"fmt"
	"net/http"
)

// ProblemType is the media type of errors (RFC 9457).
const ProblemType = "application/problem+json"

// Problem is an error as the controller answers it: problem details of RFC 9457.
type Problem struct {
	Type   string `json:"type"`  // "about:blank", or one of the Type constants
	Title  string `json:"title"` // of the status or the type
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"` // one sentence
}

// Types of problems that a caller branches on.
const (
	TypeStale       = "urn:holocast:stale-generation"
	TypeUnknownEdge = "urn:holocast:unknown-edge"
	TypeUnknownFlow = "urn:holocast:unknown-flow"
	TypeUnconfirmed = "urn:holocast:unconfirmed"
)

// Errors that errors.Is finds in what the client returns.
var (
	// ErrStale: the elimination is about a path set that is no longer in force.
	ErrStale = errors.New("the generation is no longer in force")
	// ErrUnknownEdge: the controller does not know the edge, which must say hello.
	ErrUnknownEdge = errors.New("the controller does not know this edge")
	// ErrUnknownFlow: the controller has no such flow.
	ErrUnknownFlow = errors.New("the controller does not know this flow")
	// ErrUnconfirmed: a sender has not reported that it stopped to duplicate.
	ErrUnconfirmed = errors.New("a sender has not reported that it stopped to duplicate")
	// ErrUnauthorized: the token or the client certificate is missing or wrong.
	ErrUnauthorized = errors.New("the token or client certificate is missing or wrong")
)

// Error implements error.
func (p *Problem) Error() string {
	if p.Detail != "" {
		return fmt.Sprintf("%s (%d)", p.Detail, p.Status)
	}
	return fmt.Sprintf("%s (%d)", p.Title, p.Status)
}

// Is makes errors.Is find the errors above.
func (p *Problem) Is(target error) bool {
	switch target {
	case ErrStale:
		return p.Type == TypeStale
	case ErrUnknownEdge:
		return p.Type == TypeUnknownEdge
	case ErrUnknownFlow:
		return p.Type == TypeUnknownFlow
	case ErrUnconfirmed:
		return p.Type == TypeUnconfirmed
	case ErrUnauthorized:
		return p.Status == http.StatusUnauthorized
	}
	return false
}

// Temporary reports whether the same call may succeed later.
func (p *Problem) Temporary() bool {
	return p.Status >= 500 || p.Status == http.StatusTooManyRequests
}
