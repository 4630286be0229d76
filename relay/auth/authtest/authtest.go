// Package authtest writes key files for tests.
package authtest

import (
	"os"
	"path/filepath"
	"testing"

	"holocast/relay/auth"
)

// SecretFile writes a shared secret, such as a cluster's, to a file.
func SecretFile(t testing.TB) (file string) {
	t.Helper()
	key, err := auth.NewKey("HS256")
	if err != nil {
		t.Fatal(err)
	}
	b, err := auth.MarshalKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "secret.key")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
