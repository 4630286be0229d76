// Package namespacetest makes network namespaces for tests.
package namespacetest

import (
	"testing"

	"holocast/internal/netlab/namespace"
)

// NewGroup returns a group of namespaces that is closed at the end of the test.
func NewGroup(t testing.TB) *namespace.Group {
	t.Helper()
	g, err := namespace.NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}
