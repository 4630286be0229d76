// Package leaktest fails tests that leak goroutines.
package leaktest

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// maxAttempts is the number of goleak checks, about one second each. A QUIC connection ends a few
// round trips after it was closed, which takes longer on a busy machine.
const maxAttempts = 30

// Main implements TestMain.
func Main(m *testing.M) { os.Exit(Code(m.Run())) }

// Code returns the exit code for tests that ended with code: 1 if they passed but leaked
// goroutines.
func Code(code int) int {
	if code != 0 {
		return code
	}
	var err error
	for range maxAttempts {
		if err = goleak.Find(); err == nil {
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}
