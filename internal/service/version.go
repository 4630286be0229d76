package service

import (
	"runtime/debug"
	"strings"
)

// Version is what --version prints: the version of the build and, in parentheses, its parts,
// such as the protocol it speaks.
func Version(parts ...string) string {
	version := "development"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	if len(parts) == 0 {
		return version
	}
	return version + " (" + strings.Join(parts, "; ") + ")"
}
