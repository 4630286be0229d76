// Package quiccc selects the congestion controller of QUIC connections. The published quic-go
// supports only NewReno. The copy patched by tools/quicpatch takes a [congestion.Flow] from the
// connection's context. The same code builds with the published quic-go, which ignores the
// context's value.
package quiccc

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/quic-go/quic-go"

	"holocast/internal/congestion"
)

// Default is the default controller, suited to media.
const Default = "bbr"

// key is the context key of the patched quic-go. Its type is repeated there, so neither side
// imports the other.
type key = struct{ CongestionControl struct{} }

// maker creates flows with the controller it names.
type maker string

// NewFlow is called by quic-go for each connection and path.
func (m maker) NewFlow(maxDatagramSize int64) any {
	f, err := congestion.NewFlow(string(m), maxDatagramSize)
	if err != nil {
		panic(err) // WithController checks the name
	}
	return f
}

// WithController returns a context that makes connections dialed with it use the named controller.
// "" means [Default].
func WithController(ctx context.Context, name string) (context.Context, error) {
	if name == "" {
		name = Default
	}
	if err := congestion.CheckName(name); err != nil {
		return nil, err
	}
	return context.WithValue(ctx, key{}, maker(name)), nil
}

// ConnContext returns a [quic.Transport]'s ConnContext that makes accepted connections use the
// named controller. "" means [Default].
func ConnContext(name string) (func(context.Context, *quic.ClientInfo) (context.Context, error), error) {
	if _, err := WithController(context.Background(), name); err != nil {
		return nil, err
	}
	return func(ctx context.Context, _ *quic.ClientInfo) (context.Context, error) {
		return WithController(ctx, name)
	}, nil
}

// controlled is implemented by connections of the patched quic-go.
type controlled interface{ CongestionController() any }

// Patched reports whether the program was built with the patched quic-go.
func Patched() bool {
	_, ok := any((*quic.Conn)(nil)).(controlled)
	return ok
}

// Controllers lists the available controllers. With the published quic-go this is only its own
// NewReno.
func Controllers() []string {
	if Patched() {
		return congestion.Names()
	}
	return []string{"newreno"}
}

// Build describes the available congestion control for --version.
func Build() string { return "congestion control: " + strings.Join(Controllers(), ", ") }

// Check returns an error if a configured controller is not available in this program. "" means
// [Default], or NewReno with the published quic-go.
func Check(name string) error {
	if name == "" {
		return nil
	}
	if err := congestion.CheckName(name); err != nil {
		return err
	}
	if in := Controllers(); !slices.Contains(in, name) {
		return fmt.Errorf(
			"congestion controller %q is not in this build, which has %s (make build has all)",
			name,
			strings.Join(in, ", "),
		)
	}
	return nil
}

// Estimates returns the congestion controller's estimates of the path. ok is false if the
// connection uses none of our controllers. It may be called from any goroutine.
func Estimates(conn *quic.Conn) (e congestion.Estimates, ok bool) {
	c, ok := any(conn).(controlled)
	if !ok {
		return congestion.Estimates{}, false
	}
	f, ok := c.CongestionController().(*congestion.Flow)
	if !ok {
		return congestion.Estimates{}, false
	}
	return f.Estimates(), true
}
