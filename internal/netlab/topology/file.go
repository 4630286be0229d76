package topology

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"holocast/internal/netlab/wire"
)

// Limits of a topology file.
const (
	maxFile     = 1 << 20 // bytes
	maxNodes    = 64
	maxLinks    = 128
	maxPaths    = 32
	maxSteps    = 10000
	maxCommands = 256
)

// file is a topology as written. An omitted field is empty.
type file struct {
	Name     string     `yaml:"name"`
	Seed     uint64     `yaml:"seed,omitempty"`
	Duration string     `yaml:"duration,omitempty"`
	Late     string     `yaml:"late,omitempty"`
	Hosts    []string   `yaml:"hosts,flow"`
	Edges    []string   `yaml:"edges,flow,omitempty"`
	Links    []fileLink `yaml:"links,omitempty"`
	Paths    []filePath `yaml:"paths"`

	Wifi map[string]fileWifi `yaml:"wifi,omitempty"` // channels by name
	Run  []fileCommand       `yaml:"run,omitempty"`
}

type fileLink struct {
	Between []string `yaml:"between,flow"`
}

type filePath struct {
	Name       string          `yaml:"name"`
	Between    []string        `yaml:"between,flow"`
	Wifi       string          `yaml:"wifi,omitempty"`
	Conditions fileConditions  `yaml:",inline"`
	Variation  *fileVariation  `yaml:"variation,omitempty"`
	Backward   *fileConditions `yaml:"backward,omitempty"`
	Schedule   []fileStep      `yaml:"schedule,omitempty"`
}

type fileConditions struct {
	Rate     string     `yaml:"rate,omitempty"`
	Overhead *int       `yaml:"overhead,omitempty"`
	Delay    string     `yaml:"delay,omitempty"`
	Loss     string     `yaml:"loss,omitempty"`
	Burst    *fileBurst `yaml:"burst,omitempty"`
	Queue    string     `yaml:"queue,omitempty"`
	Reorder  *bool      `yaml:"reorder,omitempty"`

	Strays *fileStrays `yaml:"strays,omitempty"`
}

type fileBurst struct {
	Average string  `yaml:"average"`
	Length  float64 `yaml:"length"`
	InBad   string  `yaml:"inBad,omitempty"`
}

type fileStrays struct {
	Share string `yaml:"share"`
	Delay string `yaml:"delay"`
}

type fileVariation struct {
	Delay string `yaml:"delay"`
	Every string `yaml:"every,omitempty"`
	From  string `yaml:"from,omitempty"`
	To    string `yaml:"to,omitempty"`
}

type fileStep struct {
	At         string         `yaml:"at"`
	Direction  string         `yaml:"direction,omitempty"`
	Conditions fileConditions `yaml:",inline"`
}

type fileCommand struct {
	Host       string `yaml:"host"`
	Command    string `yaml:"command"`
	Start      string `yaml:"start,omitempty"`
	Background bool   `yaml:"background,omitempty"`
}

// Parse reads a topology. Errors name the field.
func Parse(data []byte) (*Topology, error) {
	var f file
	if err := decode(data, "topology", &f); err != nil {
		return nil, err
	}
	return f.topology()
}

// decode reads YAML into a struct that has all its fields. what names the file in errors.
func decode(data []byte, what string, into any) error {
	if len(data) > maxFile {
		return fmt.Errorf("%s of %d bytes exceeds the limit of %d", what, len(data), maxFile)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	err := decoder.Decode(into)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the %s is empty", what)
	}
	return plain(err)
}

// goType matches the Go type at the end of a YAML package error about a mismatched field.
var goType = regexp.MustCompile(` (not found in type|into) \S+`)

// plain reduces a YAML package error to one line without Go types.
func plain(err error) error {
	var fields *yaml.TypeError
	if !errors.As(err, &fields) {
		return err
	}
	lines := make([]string, len(fields.Errors))
	for i, line := range fields.Errors {
		lines[i] = goType.ReplaceAllStringFunc(line, func(s string) string {
			if strings.HasPrefix(s, " into") {
				return ", which does not belong there"
			}
			return " is not known"
		})
	}
	return errors.New(strings.Join(lines, "; "))
}

// YAML writes the topology in the format that Parse reads.
func (t *Topology) YAML() ([]byte, error) {
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(t.source); err != nil {
		return nil, err
	}
	return text.Bytes(), encoder.Close()
}

// WithoutVariation returns the topology without delay variations.
func (t *Topology) WithoutVariation() *Topology {
	f := t.source
	f.Paths = slices.Clone(f.Paths)
	for i := range f.Paths {
		f.Paths[i].Variation = nil
	}
	calm, err := f.topology()
	if err != nil {
		panic(err) // a valid file stays valid without variations
	}
	return calm
}

// nodeName limits names to the length and characters of device names.
var nodeName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,11}$`)

// at prefixes an error with its position in the file.
func at(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

func (f file) topology() (*Topology, error) {
	t := &Topology{Name: f.Name, Hosts: f.Hosts, Edges: f.Edges, Seed: f.Seed, Late: time.Millisecond, source: f}
	var err error
	if f.Name == "" {
		return nil, errors.New("name: missing")
	}
	if f.Duration != "" {
		if t.Duration, err = parseDuration(f.Duration, maxTime); err != nil {
			return nil, at(err, "duration")
		}
	}
	if f.Late != "" {
		if t.Late, err = parseDuration(f.Late, maxDelay); err != nil {
			return nil, at(err, "late")
		}
	}
	switch {
	case len(f.Hosts) == 0:
		return nil, errors.New("hosts: missing")
	case len(f.Hosts)+len(f.Edges) > maxNodes:
		return nil, fmt.Errorf("hosts, edges: %d nodes exceed the limit of %d", len(f.Hosts)+len(f.Edges), maxNodes)
	case len(f.Links) > maxLinks:
		return nil, fmt.Errorf("links: %d exceed the limit of %d", len(f.Links), maxLinks)
	case len(f.Paths) == 0 || len(f.Paths) > maxPaths:
		return nil, fmt.Errorf("paths: %d, want 1 to %d", len(f.Paths), maxPaths)
	case len(f.Run) > maxCommands:
		return nil, fmt.Errorf("run: %d commands exceed the limit of %d", len(f.Run), maxCommands)
	}
	if err := f.names(); err != nil {
		return nil, err
	}
	for i, l := range f.Links {
		between, err := f.ends(l.Between)
		if err != nil {
			return nil, at(err, "links[%d].between", i)
		}
		t.Links = append(t.Links, Link{between})
	}
	channels := map[string]*wire.Wifi{}
	for name, channel := range f.Wifi {
		if channels[name], err = channel.model(); err != nil {
			return nil, fmt.Errorf("wifi.%s.%w", name, err)
		}
	}
	for i, p := range f.Paths {
		path, err := p.path(f)
		if err != nil {
			return nil, at(err, "paths[%d]", i)
		}
		if p.Wifi != "" {
			if path.Wifi = channels[p.Wifi]; path.Wifi == nil {
				return nil, fmt.Errorf("paths[%d].wifi: %q: name an entry of wifi", i, p.Wifi)
			}
		}
		t.Paths = append(t.Paths, path)
	}
	for i, c := range f.Run {
		command, err := c.command(f)
		if err != nil {
			return nil, at(err, "run[%d]", i)
		}
		t.Commands = append(t.Commands, command)
	}
	return t, t.devices()
}

func (f file) names() error {
	seen := map[string]bool{}
	for _, list := range []struct {
		field string
		names []string
	}{{"hosts", f.Hosts}, {"edges", f.Edges}} {
		for i, name := range list.names {
			if !nodeName.MatchString(name) || name == "lo" {
				return fmt.Errorf("%s[%d]: invalid name %q: want up to 12 of a-z, 0-9 and -, beginning with a letter",
					list.field, i, name)
			}
			if seen[name] {
				return fmt.Errorf("%s[%d]: duplicate name %q", list.field, i, name)
			}
			seen[name] = true
		}
	}
	for i, p := range f.Paths {
		if !nodeName.MatchString(p.Name) || p.Name == "lo" {
			return fmt.Errorf("paths[%d].name: invalid name %q: want up to 12 of a-z, 0-9 and -, beginning with a "+
				"letter", i, p.Name)
		}
		if seen[p.Name] {
			return fmt.Errorf("paths[%d].name: duplicate name %q", i, p.Name)
		}
		seen[p.Name] = true
	}
	return nil
}

func (f file) hasNode(name string) error {
	if slices.Contains(f.Hosts, name) || slices.Contains(f.Edges, name) {
		return nil
	}
	return fmt.Errorf("unknown node %q: name a host or an edge", name)
}

func (f file) ends(between []string) (ends [2]string, err error) {
	if len(between) != 2 || between[0] == between[1] {
		return ends, errors.New("want two different nodes")
	}
	for i, name := range between {
		if err := f.hasNode(name); err != nil {
			return ends, err
		}
		ends[i] = name
	}
	return ends, nil
}

// devices rejects a second link between the same nodes, because devices are named after the nodes
// at the other end.
func (t *Topology) devices() error {
	seen := map[[2]string]bool{}
	for i, l := range t.Links {
		key := [2]string{min(l.Between[0], l.Between[1]), max(l.Between[0], l.Between[1])}
		if seen[key] {
			return fmt.Errorf("links[%d].between: %s and %s are already linked", i, key[0], key[1])
		}
		seen[key] = true
	}
	return nil
}

func (c fileCommand) command(f file) (Command, error) {
	command := Command{Host: c.Host, Shell: c.Command, Background: c.Background}
	if err := f.hasNode(c.Host); err != nil {
		return command, at(err, "host")
	}
	if c.Command == "" {
		return command, errors.New("command: missing")
	}
	var err error
	if c.Start != "" {
		command.Start, err = parseDuration(c.Start, maxTime)
	}
	return command, at(err, "start")
}

func (p filePath) path(f file) (Path, error) {
	path := Path{Name: p.Name}
	var err error
	if path.Between, err = f.ends(p.Between); err != nil {
		return path, at(err, "between")
	}
	if path.Forward, err = p.timeline("forward"); err != nil {
		return path, err
	}
	path.Backward, err = p.timeline("backward")
	return path, err
}

// An event is a change of conditions at one time.
type event struct {
	at    time.Duration
	field string // for error messages
	apply func(*conditions) error
}

// conditions are wire.Conditions under construction.
type conditions struct {
	wire.Conditions
	queue string // as written, because a queue given as a time depends on the rate, which may change
}

func (p filePath) timeline(direction string) ([]wire.Change, error) {
	if len(p.Schedule) > maxSteps {
		return nil, fmt.Errorf("schedule: %d steps exceed the limit of %d", len(p.Schedule), maxSteps)
	}
	events := []event{{field: "", apply: p.Conditions.apply}}
	if direction == "backward" && p.Backward != nil {
		events = append(events, event{field: "backward.", apply: p.Backward.apply})
	}
	if p.Variation != nil {
		more, err := p.Variation.events()
		if err != nil {
			return nil, at(err, "variation")
		}
		events = append(events, more...)
	}
	for i, step := range p.Schedule {
		when, err := parseDuration(step.At, maxTime)
		if err != nil {
			return nil, at(err, "schedule[%d].at", i)
		}
		switch step.Direction {
		case "", "both", direction:
			events = append(events, event{when, fmt.Sprintf("schedule[%d].", i), step.Conditions.apply})
		case "forward", "backward":
		default:
			return nil, fmt.Errorf("schedule[%d].direction: %q: want forward, backward or both", i, step.Direction)
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })

	var changes []wire.Change
	now := conditions{queue: defaultQueue}
	for i, e := range events {
		if err := e.apply(&now); err != nil {
			return nil, fmt.Errorf("%s%w", e.field, err)
		}
		if i+1 < len(events) && events[i+1].at == e.at {
			continue
		}
		change := wire.Change{At: e.at, Conditions: now.Conditions}
		if now.Rate > 0 && p.Wifi != "" {
			return nil, fmt.Errorf("%srate: the channel sets the rate of a path over Wi-Fi", e.field)
		}
		if now.Rate > 0 || p.Wifi != "" {
			var err error
			if change.QueueBytes, change.QueuePackets, err = parseQueue(now.queue, now.Rate); err != nil {
				return nil, fmt.Errorf("%squeue: %w", e.field, err)
			}
		}
		changes = append(changes, change)
	}
	return changes, nil
}

// defaultQueue equals netem's default limit.
const defaultQueue = "1000 packets"

func (f *fileConditions) apply(c *conditions) (err error) {
	if f.Rate != "" {
		if c.Rate, err = parseRate(f.Rate); err != nil {
			return at(err, "rate")
		}
	}
	if f.Overhead != nil {
		if c.Overhead = *f.Overhead; c.Overhead < 0 || c.Overhead > 1000 {
			return fmt.Errorf("overhead: %d: want 0 to 1000 bytes", c.Overhead)
		}
	}
	if f.Delay != "" {
		if c.Delay, err = parseDuration(f.Delay, maxDelay); err != nil {
			return at(err, "delay")
		}
	}
	if f.Loss != "" {
		if c.Loss, err = parseShare(f.Loss); err != nil {
			return at(err, "loss")
		}
	}
	if f.Burst != nil {
		if c.Burst, err = f.Burst.model(); err != nil {
			return at(err, "burst")
		}
	}
	if f.Queue != "" {
		if _, _, err := parseQueue(f.Queue, maxRate); err != nil {
			return at(err, "queue")
		}
		c.queue = f.Queue
	}
	if f.Reorder != nil {
		c.Reorder = *f.Reorder
	}
	if f.Strays != nil {
		if c.StrayShare, err = parseShare(f.Strays.Share); err != nil {
			return at(err, "strays: share")
		}
		if c.StrayDelay, err = parseDuration(f.Strays.Delay, maxDelay); err != nil {
			return at(err, "strays: delay")
		}
	}
	return nil
}

func (f *fileBurst) model() (*wire.BurstLoss, error) {
	b := &wire.BurstLoss{Length: f.Length, InBad: 1}
	var err error
	if b.Average, err = parseShare(f.Average); err != nil {
		return nil, at(err, "average")
	}
	if f.InBad != "" {
		if b.InBad, err = parseShare(f.InBad); err != nil {
			return nil, at(err, "inBad")
		}
	}
	if !(b.Length >= 1 && b.Length <= 1e6) {
		return nil, fmt.Errorf("length: %v: want 1 to 1000000 packets", b.Length)
	}
	if b.Average == 0 {
		return nil, nil // ends the burst model
	}
	share := b.Average / b.InBad
	if !(share < 1) || share/(1-share) > b.Length {
		return nil, fmt.Errorf("average: %s is unreachable with length %v and inBad %v %%", f.Average, b.Length,
			100*b.InBad)
	}
	return b, nil
}

func (f *fileVariation) events() ([]event, error) {
	v := wire.Variation{EveryMin: 50 * time.Millisecond, EveryMax: 200 * time.Millisecond}
	var err error
	if v.Min, v.Max, err = parseRange(f.Delay, maxDelay); err != nil {
		return nil, at(err, "delay")
	}
	if f.Every != "" {
		if v.EveryMin, v.EveryMax, err = parseRange(f.Every, maxTime); err != nil {
			return nil, at(err, "every")
		}
		if v.EveryMin < 100*time.Microsecond {
			return nil, fmt.Errorf("every: %q: want at least 100µs", f.Every)
		}
	}
	set := func(v *wire.Variation) func(*conditions) error {
		return func(c *conditions) error { c.Variation = v; return nil }
	}
	events := []event{{apply: set(&v)}}
	if f.From != "" {
		if events[0].at, err = parseDuration(f.From, maxTime); err != nil {
			return nil, at(err, "from")
		}
	}
	if f.To != "" {
		end, err := parseDuration(f.To, maxTime)
		if err != nil {
			return nil, at(err, "to")
		}
		if end <= events[0].at {
			return nil, fmt.Errorf("to: %q: want a time after from", f.To)
		}
		events = append(events, event{at: end, apply: set(nil)})
	}
	return events, nil
}
