//go:build !linux || !amd64

package cluster

import (
	"errors"
	"time"
)

// clockSteps reports whether stepClock works on this machine.
const clockSteps = false

func stepClock(int, time.Duration) error {
	return errors.New("the step of a clock needs Linux on x86-64")
}
