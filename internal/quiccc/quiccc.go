// Package quiccc chooses a QUIC connection's congestion control. quic-go has
// NewReno and no way to choose; tools/quicpatch makes a copy of it that asks the
// connection's context for a [congestion.Flow]. Where quic-go is the published one
// the context's value has no effect, and NewReno it is: the same code builds with
// both.
package quiccc

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/quic-go/quic-go"

	"holocast/internal/congestion"
)

// Default is the controller for media.
const Default = "bbr"

// key is under which the patched quic-go looks for a maker of flows. Its type is
// spelled out there too, so that neither side imports the other.
type key = struct{ CongestionControl struct{} }

// maker makes flows of the controller it names.
type maker string

// NewFlow is called by quic-go for each connection and path.
func (m maker) NewFlow(maxDatagramSize int64) any {
	f, err := congestion.NewFlow(string(m), maxDatagramSize)
	if err != nil {
		panic(err) // WithController checks the name
	}
	return f
}

// WithController returns a context that makes a connection dialed with it use the
// named controller; "" is [Default].
func WithController(ctx context.Context, name string) (context.Context, error) {
	if name == "" {
		name = Default
	}
	if err := congestion.CheckName(name); err != nil {
		return nil, err
	}
	return context.WithValue(ctx, key{}, maker(name)), nil
}

// ConnContext is a [quic.Transport]'s ConnContext that makes all connections it
// accepts use the named controller; "" is [Default].
func ConnContext(name string) (func(context.Context, *quic.ClientInfo) (context.Context, error), error) {
	if _, err := WithController(context.Background(), name); err != nil {
		return nil, err
	}
	return func(ctx context.Context, _ *quic.ClientInfo) (context.Context, error) {
		return WithController(ctx, name)
	}, nil
}

// controlled is what the patched quic-go's connections have.
type controlled interface{ CongestionController() any }

// Patched tells whether this program was built with the patched quic-go.
func Patched() bool {
	_, ok := any((*quic.Conn)(nil)).(controlled)
	return ok
}

// Controllers lists the controllers that are in this program; the published
// quic-go has its own NewReno alone, whatever is asked for.
func Controllers() []string {
	if Patched() {
		return congestion.Names()
	}
	return []string{"newreno"}
}

// Build says for --version what congestion control this program has.
func Build() string { return "congestion control: " + strings.Join(Controllers(), ", ") }

// Check tells what is wrong with a configured controller name in this program; "" is
// the best there is: [Default], or NewReno with the published quic-go.
func Check(name string) error {
	if name == "" {
		return nil
	}
	if err := congestion.CheckName(name); err != nil {
		return err
	}
	if in := Controllers(); !slices.Contains(in, name) {
		return fmt.Errorf("congestion controller %q is not in this build, which has %s (make build has all)", name, strings.Join(in, ", "))
	}
	return nil
}

// Estimates is what the connection's congestion control knows of its path; ok is
// false for a connection without one of ours. It may be called from any goroutine.
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
