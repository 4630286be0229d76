package service

import (
	"runtime/debug"
	"strings"
)

// version is set by builds that do not see the repository:
// -ldflags "-X holocast/internal/service.version=v1.2.3".
var version string

// Version is what --version prints: the version of the build and, in parentheses, its parts,
// such as the protocol it speaks.
func Version(parts ...string) string {
	version := version
	if version == "" {
		version = "development"
		if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
			version = info.Main.Version
		}
	}
	if len(parts) == 0 {
		return version
	}
	return version + " (" + strings.Join(parts, "; ") + ")"
}
