package connect

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"

	"holocast/internal/moqt"
	"holocast/internal/multipath"
)

// PathUsage is the help text of path flags.
const PathUsage = "network path to the relay, [NAME=]ADDRESS or [NAME=]INTERFACE of this machine; " +
	"repeat it to use several at once (moqt:// only)"

// ParsePath parses a path: [NAME=]ADDRESS or [NAME=]INTERFACE. The name defaults to the address or
// interface.
func ParsePath(text string) (p moqt.Path, err error) {
	name, where, named := strings.Cut(text, "=")
	if !named {
		where = name
	}
	if name == "" || where == "" || len(name) > multipath.MaxName || !utf8.ValidString(name) {
		return p, fmt.Errorf("path %q: want [NAME=]ADDRESS or [NAME=]INTERFACE, with a UTF-8 name of at most %d bytes",
			text, multipath.MaxName)
	}
	p.Name = name
	if p.Local, err = netip.ParseAddr(where); err != nil {
		p.Device = where
	}
	return p, nil
}
