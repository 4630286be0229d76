package config

import (
	"bytes"
	"encoding"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Setting describes one setting, or one section, of a program's configuration. It determines the
// flag, the comment in the example file, the range check and the reload behavior.
type Setting struct {
	// Key is the path in the YAML file, such as cache.maxAge. It names a field of the configuration
	// struct by its yaml tags.
	Key string
	// Help is one sentence, shown in the flag's help and in the example file.
	Help string
	// More continues Help in the example file. Lines that begin with two spaces are not wrapped.
	More string
	// Flag names the flag. "" derives it from Key (--cache-max-age), and "-" means no flag.
	// Sections, and types that Table.AddFlags does not list, never have flags.
	Flag string
	// OldFlag and OldKey are deprecated names. They work for one release, with a warning. OldKey is a
	// full path in the same section as Key.
	OldFlag, OldKey string
	// Range bounds a number or duration.
	Range Range
	// Reload reports whether SIGHUP applies a change. Set on a section, it covers all its settings.
	Reload bool
}

// Range bounds a number or duration.
type Range int

// Ranges.
const (
	Any Range = iota
	NotNegative
	Positive
)

// Table lists the settings of a program.
type Table []Setting

// Described is a configuration with a table. Load, Read and Decode then accept its old keys.
type Described interface {
	Settings() Table
}

// LogSettings describes a Log at the key log.
func LogSettings() Table {
	return Table{
		{Key: "log.level", Help: "Least severe log level: debug, info, warn or error.", Reload: true},
		{Key: "log.format", Help: "Log format: text or json."},
	}
}

// flagName returns the flag's name, or "" if the setting has none.
func (s Setting) flagName() string {
	switch s.Flag {
	case "-":
		return ""
	case "":
		return kebab(s.Key)
	}
	return s.Flag
}

// kebab converts a key to a flag name: cache.maxAge becomes cache-max-age, and clientCA becomes
// client-ca.
func kebab(key string) string {
	var b strings.Builder
	lower := false // the last rune was a lowercase letter
	for _, r := range key {
		switch {
		case r == '.':
			b.WriteByte('-')
		case unicode.IsUpper(r) && lower:
			b.WriteByte('-')
			fallthrough
		default:
			b.WriteRune(unicode.ToLower(r))
		}
		lower = unicode.IsLower(r)
	}
	return b.String()
}

// usage returns Help in the style of a flag's help: no capital, no full stop.
func (s Setting) usage() string {
	r := []rune(strings.TrimSuffix(s.Help, "."))
	if len(r) > 1 && unicode.IsLower(r[1]) {
		r[0] = unicode.ToLower(r[0])
	}
	return string(r)
}

// AddFlags adds the flags of the settings with the given keys, or of all settings if there are no
// keys. cfg is a pointer to the configuration, which holds the defaults and receives the values.
// Flags support strings, numbers, booleans, durations, lists and maps of strings,
// encoding.TextUnmarshaler and pflag.Value.
func (t Table) AddFlags(fs *pflag.FlagSet, cfg any, keys ...string) {
	for _, s := range t {
		name := s.flagName()
		if name == "" || len(keys) > 0 && !slices.Contains(keys, s.Key) || !addFlag(fs, name, s.usage(), s.field(cfg)) {
			continue
		}
		if s.OldFlag != "" {
			old := *fs.Lookup(name)
			old.Name = s.OldFlag
			fs.AddFlag(&old)
			_ = fs.MarkDeprecated(s.OldFlag, "use --"+name) // fails for unknown flags only
		}
	}
}

// addFlag adds a flag for a field. It returns false if flags do not support the field's type.
func addFlag(fs *pflag.FlagSet, name, usage string, field reflect.Value) bool {
	switch p := field.Addr().Interface().(type) {
	case pflag.Value:
		fs.Var(p, name, usage)
		return true
	case *time.Duration:
		fs.DurationVar(p, name, *p, usage)
		return true
	case *[]string:
		fs.StringSliceVar(p, name, *p, usage)
		return true
	case *map[string]string:
		fs.StringToStringVar(p, name, *p, usage)
		return true
	case encoding.TextUnmarshaler:
		if value, ok := field.Interface().(encoding.TextMarshaler); ok {
			fs.TextVar(p, name, value, usage)
			return true
		}
	}
	switch field.Kind() {
	case reflect.String:
		p := as[string](field)
		fs.StringVar(p, name, *p, usage)
	case reflect.Bool:
		p := as[bool](field)
		fs.BoolVar(p, name, *p, usage)
	case reflect.Int:
		p := as[int](field)
		fs.IntVar(p, name, *p, usage)
	case reflect.Int64:
		p := as[int64](field)
		fs.Int64Var(p, name, *p, usage)
	case reflect.Uint8:
		p := as[uint8](field)
		fs.Uint8Var(p, name, *p, usage)
	case reflect.Uint16:
		p := as[uint16](field)
		fs.Uint16Var(p, name, *p, usage)
	case reflect.Uint32:
		p := as[uint32](field)
		fs.Uint32Var(p, name, *p, usage)
	case reflect.Uint64:
		p := as[uint64](field)
		fs.Uint64Var(p, name, *p, usage)
	case reflect.Float64:
		p := as[float64](field)
		fs.Float64Var(p, name, *p, usage)
	default:
		return false
	}
	return true
}

// as returns a pointer to a field whose underlying type is T.
func as[T any](field reflect.Value) *T {
	return field.Addr().Convert(reflect.TypeFor[*T]()).Interface().(*T)
}

// Check checks the ranges. The error begins with the setting's key.
func (t Table) Check(cfg any) error {
	for _, s := range t {
		if s.Range == Any {
			continue
		}
		v := s.field(cfg)
		sign := 0
		switch {
		case v.CanInt() && v.Int() < 0, v.CanFloat() && !(v.Float() >= 0): // NaN too
			sign = -1
		case !v.IsZero():
			sign = 1
		}
		switch {
		case s.Range == Positive && sign <= 0:
			return fmt.Errorf("%s must be above 0", s.Key)
		case s.Range == NotNegative && sign < 0:
			return fmt.Errorf("%s must not be negative", s.Key)
		}
	}
	return nil
}

// Reloaded returns the keys that SIGHUP applies.
func (t Table) Reloaded() (keys []string) {
	for _, s := range t {
		if s.Reload {
			keys = append(keys, s.Key)
		}
	}
	return keys
}

// field returns the field that the key names in cfg, a pointer to a struct. It panics if there is
// none, which is a bug in the program.
func (s Setting) field(cfg any) reflect.Value {
	v := reflect.ValueOf(cfg).Elem()
	for name := range strings.SplitSeq(s.Key, ".") {
		if v = child(v, name); !v.IsValid() {
			panic("config: no field for setting " + s.Key)
		}
	}
	return v
}

// child returns the field of a struct that a YAML key names, including fields of inlined structs.
func child(v reflect.Value, key string) reflect.Value {
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	for f, value := range v.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "" && f.IsExported() {
			name = strings.ToLower(f.Name)
		}
		if strings.Contains(options, "inline") {
			if below := child(value, key); below.IsValid() {
				return below
			}
		} else if name == key {
			return value
		}
	}
	return reflect.Value{}
}

// exampleWidth is the column at which comments of the example file wrap.
const exampleWidth = 100

// Example returns the example file: every setting with its help and its default, in the order of the
// struct's fields. It begins with header, a comment without "# ". cfg is a pointer to the defaults. A
// setting without an entry in the table is an error.
func (t Table) Example(header string, cfg any) ([]byte, error) {
	var root yaml.Node
	if err := root.Encode(cfg); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	comment(&b, "", header)
	seen := 0
	if err := t.example(&b, "", "", &root, &seen); err != nil {
		return nil, err
	}
	if seen != len(t) {
		return nil, fmt.Errorf("%d settings of the table are missing from the configuration or listed twice",
			len(t)-seen)
	}
	return b.Bytes(), nil
}

// example writes the settings below path.
func (t Table) example(b *bytes.Buffer, path, indent string, section *yaml.Node, seen *int) error {
	for i := 0; i+1 < len(section.Content); i += 2 {
		name, value := section.Content[i].Value, section.Content[i+1]
		key := strings.TrimPrefix(path+"."+name, ".")
		at := slices.IndexFunc(t, func(s Setting) bool { return s.Key == key })
		deeper := slices.ContainsFunc(t, func(s Setting) bool { return strings.HasPrefix(s.Key, key+".") })
		if at < 0 && !deeper {
			return fmt.Errorf("setting %s is not in the table", key)
		}
		if indent == "" {
			b.WriteByte('\n')
		}
		if at >= 0 {
			*seen++
			comment(b, indent, t[at].Help+" "+t[at].More)
		}
		if deeper {
			fmt.Fprintf(b, "%s%s:\n", indent, name)
			if err := t.example(b, key, indent+"  ", value, seen); err != nil {
				return err
			}
			continue
		}
		if value.Kind == yaml.SequenceNode && len(value.Content) > 0 && value.Content[0].Kind == yaml.MappingNode {
			if err := sections(b, indent, name, value.Content); err != nil {
				return err
			}
			continue
		}
		value.Style |= yaml.FlowStyle
		if d, err := time.ParseDuration(value.Value); err == nil && value.Tag == "!!str" {
			value.Value = shorten(d)
		}
		text, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "%s%s: %s", indent, name, text)
	}
	return nil
}

// sections writes a list of sections, one per line.
func sections(b *bytes.Buffer, indent, name string, list []*yaml.Node) error {
	fmt.Fprintf(b, "%s%s:\n", indent, name)
	for _, item := range list {
		item.Style |= yaml.FlowStyle
		text, err := yaml.Marshal(item)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "%s  - %s", indent, text)
	}
	return nil
}

// shorten formats a duration without zero units: 1h, not 1h0m0s.
func shorten(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// comment writes text as a wrapped YAML comment.
func comment(b *bytes.Buffer, indent, text string) {
	line := ""
	flush := func() {
		if line != "" {
			fmt.Fprintf(b, "%s# %s\n", indent, line)
		}
		line = ""
	}
	for part := range strings.Lines(text) {
		if strings.HasPrefix(part, "  ") {
			flush()
			line = strings.TrimRight(part, "\n")
			flush()
			continue
		}
		for word := range strings.FieldsSeq(part) {
			if line != "" && len(indent)+len("# ")+len(line)+1+len(word) > exampleWidth {
				flush()
			}
			line = strings.TrimPrefix(line+" "+word, " ")
		}
	}
	flush()
}

// renameOldKeys replaces deprecated keys with current ones and warns about each. It preserves line
// numbers.
func renameOldKeys(file string, b []byte, into any) []byte {
	d, ok := into.(Described)
	if !ok {
		return b
	}
	lines := bytes.SplitAfter(b, []byte("\n"))
	for _, e := range slices.Backward(entries(b)) { // from the end, so that the columns of earlier keys stay valid
		for _, s := range d.Settings() {
			if s.OldKey == "" || e.path != s.OldKey || e.column == 0 {
				continue
			}
			oldName, newName := s.OldKey[strings.LastIndexByte(s.OldKey, '.')+1:],
				s.Key[strings.LastIndexByte(s.Key, '.')+1:]
			line := []rune(string(lines[e.line-1]))
			before, after := string(line[:e.column-1]), string(line[e.column-1:])
			lines[e.line-1] = []byte(before + strings.Replace(after, oldName, newName, 1))
			fmt.Fprintf(os.Stderr, "%s:%d: %s is deprecated, use %s\n", file, e.line, s.OldKey, s.Key)
		}
	}
	return bytes.Join(lines, nil)
}
