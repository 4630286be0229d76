//go:build !linux

package doctor

import (
	"context"
	"runtime"
)

// system is empty, since there are no checks for this operating system.
type system struct{}

func thisSystem() system { return system{} }

func (m *machine) systemChecks() []Check {
	return []Check{{"operating system", func(context.Context) Finding {
		return warn(
			"use Linux for the duplication pair, the relay's fast path and cameras",
			"%s: sessions work in user space only", runtime.GOOS,
		)
	}}}
}
