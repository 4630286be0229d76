package service

import (
	"runtime/debug"
	"strings"
)

// version is set by builds outside the repository: -ldflags "-X
// holocast/internal/service.version=v1.2.3".
var version string

// Version returns the output of --version: the build's version and, in parentheses, further parts
// such as the protocol version.
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
