package cputime

import (
	"fmt"
	"os"
)

// LoadAverage returns the machine's load average over the last minute, or 0 if it is unknown.
func LoadAverage() (load float64) {
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(b), &load)
	}
	return load
}
