package api

import (
	"errors"
	"fmt"
	"net/http"
)

// ProblemType is the media type of errors (RFC 9457).
const ProblemType = "application/problem+json"

// Problem is an error response of the controller, in the problem details format of RFC 9457.
type Problem struct {
	Type   string `json:"type"`  // "about:blank" or one of the Type constants
	Title  string `json:"title"` // names the status or the type
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"` // one sentence
}

// Problem types that callers distinguish.
const (
	TypeStale       = "urn:holocast:stale-generation"
	TypeUnknownEdge = "urn:holocast:unknown-edge"
	TypeUnknownFlow = "urn:holocast:unknown-flow"
	TypeUnconfirmed = "urn:holocast:unconfirmed"
)

// Errors returned by the client, for use with errors.Is.
var (
	// ErrStale is returned for an elimination of a path set that is no longer in force.
	ErrStale = errors.New("the generation is no longer in force")
	// ErrUnknownEdge is returned for an edge that is not registered. It must call Hello.
	ErrUnknownEdge = errors.New("edge is not registered with the controller")
	// ErrUnknownFlow is returned if the controller has no such flow.
	ErrUnknownFlow = errors.New("unknown flow")
	// ErrUnconfirmed is returned if a sender has not confirmed that it stopped duplicating.
	ErrUnconfirmed = errors.New("a sender has not confirmed that it stopped duplicating")
	// ErrUnauthorized is returned if the token or the client certificate is missing or wrong.
	ErrUnauthorized = errors.New("the token or client certificate is missing or wrong")
)

// Error implements error.
func (p *Problem) Error() string {
	if p.Detail != "" {
		return fmt.Sprintf("%s (%d)", p.Detail, p.Status)
	}
	return fmt.Sprintf("%s (%d)", p.Title, p.Status)
}

// Is makes errors.Is match the errors above.
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
