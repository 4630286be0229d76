// Package leaktest fails tests that leave goroutines behind.
package leaktest

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// patience is how often goleak looks, for about a second each time: a QUIC connection ends a
// few round trips after it was closed, which a busy machine makes long.
const patience = 30

// Main is a TestMain.
func Main(m *testing.M) { os.Exit(Code(m.Run())) }

// Code is the exit code of tests that ended with code: 1 where they passed but goroutines go on.
func Code(code int) int {
	if code != 0 {
		return code
	}
	var err error
	for range patience {
		if err = goleak.Find(); err == nil {
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}
