//go:build !linux

package upgrade

import (
	"context"
	"errors"
	"net"
	"os"
	"time"
)

// File is a named open file.
type File struct {
	Name string
	*os.File
}

// Signal is nil, since no signal requests an upgrade on this system.
var Signal os.Signal

var errSystem = errors.New("upgrades need Linux")

// Successor is the new process, as seen by the old one.
type Successor struct{ PID int }

// Start fails.
func Start(context.Context, any, []File) (*Successor, error) { return nil, errSystem }

// Wait returns immediately.
func (s *Successor) Wait() (asked bool, err error) { return false, nil }

// Predecessor is the old process, as seen by the new one. It does not exist on this system.
type Predecessor struct{}

// Inherit returns nil.
func Inherit() (*Predecessor, error) { return nil, nil }

// State fails.
func (p *Predecessor) State(any) error { return errSystem }

// Files returns nil.
func (p *Predecessor) Files(string) []*os.File { return nil }

// Listener returns nil.
func (p *Predecessor) Listener(string) (net.Listener, error) { return nil, nil }

// Ready does nothing.
func (p *Predecessor) Ready() error { return nil }

// Replaced does nothing.
func (p *Predecessor) Replaced() {}

// Stopping does nothing.
func (p *Predecessor) Stopping() {}

// Control accepts no requests.
type Control struct{}

// Listen fails.
func Listen(string) (*Control, error) { return nil, errSystem }

// Inherited returns a Control that does nothing.
func Inherited(net.Listener) *Control { return &Control{} }

// File fails.
func (c *Control) File() (*os.File, error) { return nil, errSystem }

// Close does nothing.
func (c *Control) Close() {}

// Serve returns immediately.
func (c *Control) Serve(func(string) (string, error), func(net.Conn, string)) {}

// Ask fails.
func Ask(string, string, time.Duration) (string, error) { return "", errSystem }

// Dial fails.
func Dial(string) (net.Conn, error) { return nil, errSystem }
