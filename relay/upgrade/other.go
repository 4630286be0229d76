//go:build !linux

package upgrade

import (
	"context"
	"errors"
	"net"
	"os"
	"time"
)

// File is an open file by what it is for.
type File struct {
	Name string
	*os.File
}

// Signal asks a process to upgrade; there is none.
var Signal os.Signal

var errSystem = errors.New("upgrades are for Linux")

// Successor is a new process, seen by the old one.
type Successor struct{ PID int }

// Start fails.
func Start(context.Context, any, []File) (*Successor, error) { return nil, errSystem }

// Wait returns at once.
func (s *Successor) Wait() (asked bool, err error) { return false, nil }

// Predecessor is the old process, seen by the new one. There is none.
type Predecessor struct{}

// Inherit returns none.
func Inherit() (*Predecessor, error) { return nil, nil }

// State fails.
func (p *Predecessor) State(any) error { return errSystem }

// Files are none.
func (p *Predecessor) Files(string) []*os.File { return nil }

// Listener is none.
func (p *Predecessor) Listener(string) (net.Listener, error) { return nil, nil }

// Ready does nothing.
func (p *Predecessor) Ready() error { return nil }

// Replaced does nothing.
func (p *Predecessor) Replaced() {}

// Stopping does nothing.
func (p *Predecessor) Stopping() {}

// Control is where a running process is asked to upgrade.
type Control struct{}

// Listen fails.
func Listen(string) (*Control, error) { return nil, errSystem }

// Inherited is none.
func Inherited(net.Listener) *Control { return &Control{} }

// File is none.
func (c *Control) File() (*os.File, error) { return nil, errSystem }

// Close does nothing.
func (c *Control) Close() {}

// Serve returns at once.
func (c *Control) Serve(func() (int, error)) {}

// Ask fails.
func Ask(string, time.Duration) (int, error) { return 0, errSystem }
