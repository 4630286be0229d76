//go:build !linux || !(amd64 || arm64)

package fastpath

import (
	"errors"
	"log/slog"

	"holocast/internal/moqt"
	"holocast/internal/origin"
)

// Config configures a Manager.
type Config struct {
	Port   uint16
	Mode   Mode
	Clsact bool
	Log    *slog.Logger
}

// Manager is the fast path, which is always off on this platform.
type Manager struct{}

// Possible returns an error, since the fast path cannot run on this platform.
func Possible() error { return errors.New("it needs Linux on x86-64 or arm64") }

// Try returns the same error as Possible.
func Try() error { return Possible() }

// Start fails.
func Start(Config) (*Manager, error) { return nil, Possible() }

// Close does nothing.
func (m *Manager) Close() error { return nil }

// Publisher does nothing.
func (m *Manager) Publisher(*origin.Track, *moqt.Subscription) {}

// Viewer returns the subscription's sink.
func (m *Manager) Viewer(_ *origin.Track, pub *moqt.Publication) origin.Sink {
	return origin.Publication{Publication: pub}
}

// Stats returns zeros.
func (m *Manager) Stats() Stats { return Stats{} }
