// Package config reads a program's YAML configuration. The file is loaded first and its values
// become the defaults of the flags, which therefore override it. Errors name the file, the line and
// the setting.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Flag names the flag for the configuration file.
const Flag = "config"

// Load reads the file named by --config in args into the program's configuration. into points to it
// and holds the defaults. Load returns the file's name, or "" without the flag.
func Load(args []string, into any) (file string, err error) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	path := fs.String(Flag, "", "")
	fs.BoolP("help", "h", false, "") // otherwise pflag would handle it here
	_ = fs.Parse(args)               // the program's own flag set reports errors
	if *path == "" {
		return "", nil
	}
	return *path, Read(*path, into)
}

// Read reads a file into the configuration that into points to.
func Read(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return Decode(path, b, into)
}

// Decode reads YAML into the struct that into points to. Settings missing in the YAML keep their
// values; unknown settings are an error.
func Decode(file string, b []byte, into any) error {
	b = renameOldKeys(file, b, into)
	decoder := yaml.NewDecoder(bytes.NewReader(b))
	decoder.KnownFields(true)
	err := decoder.Decode(into)
	if errors.Is(err, io.EOF) { // only comments
		return nil
	}
	if wrong := (*yaml.TypeError)(nil); errors.As(err, &wrong) {
		all := entries(b)
		var lines []string
		for _, line := range wrong.Errors {
			lines = append(lines, userError(file, line, all))
		}
		return errors.New(strings.Join(lines, "; "))
	}
	if err != nil {
		if m := syntaxError.FindStringSubmatch(err.Error()); m != nil {
			return fmt.Errorf("%s:%s: %s", file, m[1], m[2])
		}
		if s, ok := rejectedSetting(b, into, err); ok {
			return fmt.Errorf("%s:%d: %s: %q is not %s", file, s.line, s.path, s.value, kindOf(err))
		}
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// rejectedSetting finds the setting whose value cannot be converted to its type, because yaml's error
// does not name it. It removes settings with that value, one after another, until the error changes.
func rejectedSetting(b []byte, into any, refused error) (entry, bool) {
	var root yaml.Node
	if yaml.Unmarshal(b, &root) != nil {
		return entry{}, false
	}
	for _, s := range nodes(&root) {
		if s.node == nil || !strings.Contains(refused.Error(), strconv.Quote(s.value)) {
			continue
		}
		s.node.Tag, s.node.Value = "!!null", ""
		if err := root.Decode(reflect.New(reflect.TypeOf(into).Elem()).Interface()); err == nil ||
			err.Error() != refused.Error() {
			return s, true
		}
	}
	return entry{}, false
}

// kindOf describes the values that the setting accepts, judging by the error.
func kindOf(refused error) string {
	switch text := refused.Error(); {
	case strings.HasPrefix(text, "ParseAddr("):
		return "an IP address"
	case strings.HasPrefix(text, "netip.ParsePrefix("):
		return "a prefix such as 10.9.0.0/24"
	}
	return "valid: " + refused.Error()
}

var (
	// Formats of yaml's errors.
	syntaxError  = regexp.MustCompile(`^yaml: line (\d+): (.*)`)
	typeError    = regexp.MustCompile(`^line (\d+): (.*)`)
	unknownField = regexp.MustCompile(`^field (\S+) (?:not found in|already set in) type .*`)
	wrongType    = regexp.MustCompile("^cannot unmarshal !!\\S+(?: `(.*)`)? into (\\S+)")

	number = regexp.MustCompile(`^\d+$`)
	// settingName matches the setting's name at the start of a validation error.
	settingName = regexp.MustCompile(`^[a-z][A-Za-z0-9]*(?:\[\d+\]|\.[A-Za-z0-9_-]+)*`)
)

// userError rewrites one of yaml's errors for users.
func userError(file, text string, all []entry) string {
	m := typeError.FindStringSubmatch(text)
	if m == nil {
		return file + ": " + text
	}
	line, _ := strconv.Atoi(m[1])
	text = m[2]
	if u := unknownField.FindStringSubmatch(text); u != nil {
		text = fmt.Sprintf("unknown setting %q", u[1])
		if strings.Contains(m[2], "already set") {
			text = fmt.Sprintf("%q is set twice", u[1])
		}
		return fmt.Sprintf("%s:%d: %s", file, line, text)
	}
	w := wrongType.FindStringSubmatch(text)
	for _, s := range all {
		if s.line != line || w == nil || (w[1] != "" && !strings.HasPrefix(s.value, strings.TrimSuffix(w[1], "..."))) {
			continue
		}
		switch {
		case w[2] == "time.Duration" && number.MatchString(s.value):
			text = fmt.Sprintf("%q has no unit; write %ss", s.value, s.value)
		case w[2] == "time.Duration":
			text = fmt.Sprintf("%q is not a duration such as 250ms, 3s or 1m", s.value)
		default:
			text = fmt.Sprintf("%q is not %s", s.value, kind(w[2]))
		}
		return fmt.Sprintf("%s:%d: %s: %s", file, line, s.path, text)
	}
	return fmt.Sprintf("%s:%d: %s", file, line, text)
}

// kinds describes Go types for users.
var kinds = map[string]string{
	"int": "a whole number", "int64": "a whole number", "uint16": "a whole number from 0 to 65535",
	"uint8":  "a whole number from 0 to 255",
	"uint32": "a whole number above 0", "uint64": "a whole number above 0", "float64": "a number",
	"bool": "true or false", "string": "text",
}

// kind describes a Go type for users.
func kind(name string) string {
	switch {
	case strings.HasPrefix(name, "[]"):
		return "a list"
	case strings.HasPrefix(name, "map["), strings.HasPrefix(name, "struct"):
		return "a section"
	}
	return cmp.Or(kinds[name], name)
}

// Locate prefixes a validation error with the file and line of the setting, section or list that it
// names at its start. It returns other errors unchanged.
func Locate(file string, err error) error {
	if err == nil || file == "" {
		return err
	}
	b, failed := os.ReadFile(file)
	if failed != nil {
		return err
	}
	name := settingName.FindString(err.Error())
	line := 0
	for _, s := range entries(b) {
		// s is the setting itself, or its section or list.
		if name != "" && (s.path == name || strings.HasPrefix(name, s.path+".")) {
			line = s.line // deeper settings follow
		}
	}
	if line == 0 {
		return err // the value comes from a flag or a default
	}
	return fmt.Errorf("%s:%d: %w", file, line, err)
}

// entry is a setting in a file.
type entry struct {
	path   string // as in errors: tls.certificate, paths[0].index
	line   int
	column int        // column of a key in runes, from 1; 0 for values
	value  string     // for scalars
	node   *yaml.Node // for scalars
}

// entries lists the settings of a file in order.
func entries(b []byte) (all []entry) {
	var root yaml.Node
	if yaml.Unmarshal(b, &root) != nil {
		return nil
	}
	return nodes(&root)
}

// nodes lists the settings of a document in order.
func nodes(root *yaml.Node) (all []entry) {
	if len(root.Content) == 0 {
		return nil
	}
	var walk func(path string, n *yaml.Node, depth int)
	walk = func(path string, n *yaml.Node, depth int) {
		if depth > 100 {
			return // a recursive alias
		}
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				key, value := n.Content[i], n.Content[i+1]
				below := strings.TrimPrefix(path+"."+key.Value, ".")
				all = append(all, entry{path: below, line: key.Line, column: key.Column})
				walk(below, value, depth+1)
			}
		case yaml.SequenceNode:
			for i, value := range n.Content {
				below := fmt.Sprintf("%s[%d]", path, i)
				all = append(all, entry{path: below, line: value.Line})
				walk(below, value, depth+1)
			}
		case yaml.ScalarNode:
			all = append(all, entry{path: path, line: n.Line, value: n.Value, node: n})
		}
	}
	walk("", root.Content[0], 0)
	return all
}

// All matches every section.
const All = "*"

// Changed lists the settings, such as cache.maxAge, that differ between two configurations of the
// same type, except those in the given sections.
func Changed(a, b any, but ...string) (changed []string) {
	before, after := map[string]string{}, map[string]string{}
	var names []string
	for i, c := range []any{a, b} {
		text, err := yaml.Marshal(c)
		if err != nil {
			return nil
		}
		for _, s := range entries(text) {
			if i == 0 {
				before[s.path] += s.value + "\n"
			} else {
				after[s.path] += s.value + "\n"
			}
			names = append(names, s.path)
		}
	}
	seen := map[string]bool{}
	for _, name := range names {
		if before[name] == after[name] || seen[name] {
			continue
		}
		seen[name] = true
		below := false
		for _, section := range but {
			below = below || section == All || name == section || strings.HasPrefix(name, section+".") ||
				strings.HasPrefix(name, section+"[")
		}
		if !below {
			changed = append(changed, name)
		}
	}
	return changed
}
