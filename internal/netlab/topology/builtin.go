package topology

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed lan.yaml table1.yaml wifi.yaml wifi-study.yaml
var builtin embed.FS

// varying is the suffix of built-in topologies whose delays vary as in Table I.
const varying = "-varying"

// Builtins returns the names that Builtin accepts.
func Builtins() []string {
	return []string{
		"lan",
		"path1", "path1" + varying, "path2", "path2" + varying, "path3", "path3" + varying,
		"path4", "path4" + varying, "path5", "path5" + varying,
		"table1", "table1" + varying, "wifi",
	}
}

// Builtin returns a built-in topology: lan, wifi (lan with a wireless client), table1 with the five
// paths of Table I of the packet-duplication paper, or path1 to path5 with one of them.
func Builtin(name string) (*Topology, error) {
	if !slices.Contains(Builtins(), name) {
		return nil, fmt.Errorf("unknown topology %q: want one of %s", name, strings.Join(Builtins(), ", "))
	}
	if name == "wifi" {
		return lanOverWifi()
	}
	base, varies := strings.CutSuffix(name, varying)
	from := "table1"
	if base == "lan" {
		from = "lan"
	}
	data, err := builtin.ReadFile(from + ".yaml")
	if err != nil {
		return nil, err
	}
	t, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	f := t.source
	f.Name = name
	if base != from {
		f.Paths = slices.DeleteFunc(slices.Clone(f.Paths), func(p filePath) bool { return p.Name != base })
	}
	if t, err = f.topology(); err != nil {
		return nil, err
	}
	if !varies {
		t = t.WithoutVariation()
	}
	return t, nil
}

// lanOverWifi returns lan, whose host b is on a Wi-Fi channel.
func lanOverWifi() (*Topology, error) {
	t, err := Builtin("lan")
	if err != nil {
		return nil, err
	}
	t.source.Name = "wifi"
	m, err := LoadWifi("home")
	if err != nil {
		return nil, err
	}
	return t.OverWifi("", m)
}

// OnePath returns a topology in which one path named path1 joins hosts a and b behind edges ea and
// eb. conditions is the path's YAML, such as "rate: 20Mbit, delay: 5ms".
func OnePath(name, conditions string) (*Topology, error) {
	return Parse([]byte(`
name: ` + name + `
hosts: [a, b]
edges: [ea, eb]
links:
  - between: [a, ea]
  - between: [eb, b]
paths:
  - {name: path1, between: [ea, eb], ` + conditions + `}
`))
}
