//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"holocast/internal/config"
	"holocast/internal/secretfile"
	"holocast/netfunc/api"
	"holocast/netfunc/bpf"
	"holocast/netfunc/edge/probe"
	"holocast/netfunc/elimination"
	"holocast/netfunc/signal"
)

// Directories of an edge's pins and sockets, by edge name.
const (
	pinRoot    = "/sys/fs/bpf/holocast"
	socketRoot = "/run/holocast"
)

// Config is the edge's configuration; edge.example.yaml documents it.
type Config struct {
	Name      string        `yaml:"name"`
	Role      api.Role      `yaml:"role"`
	Peer      string        `yaml:"peer"`
	Paths     []Path        `yaml:"paths"`
	Sender    Sender        `yaml:"sender"`
	Receiver  Receiver      `yaml:"receiver"`
	Flows     []Flow        `yaml:"flows"`
	Uplink    Uplink        `yaml:"uplink"`
	Signal    Signal        `yaml:"signal"`
	Control   Controller    `yaml:"controller"`
	Probe     Probe         `yaml:"probe"`
	Eliminate Eliminate     `yaml:"elimination"`
	OnExit    string        `yaml:"onExit"`
	Drain     time.Duration `yaml:"drain"`
	Pin       string        `yaml:"pin"`
	Socket    string        `yaml:"socket"`
	HTTP      string        `yaml:"http"`
	Log       config.Log    `yaml:"log"`
}

// Path is a path to the other edge.
type Path struct {
	Index     int        `yaml:"index"`
	Interface string     `yaml:"interface"`
	Peer      netip.Addr `yaml:"peer"`
	Gateway   netip.Addr `yaml:"gateway"`
}

// Sender selects the packets to duplicate.
type Sender struct {
	Attach      []Attach       `yaml:"attach"`
	Towards     []netip.Prefix `yaml:"towards"`
	MaxPolicies uint32         `yaml:"maxPolicies"`
	FlowLabel   bool           `yaml:"flowLabel"`
	Clsact      bool           `yaml:"clsact"`
}

// Attach is an interface whose packets are duplicated.
type Attach struct {
	Interface string `yaml:"interface"`
	Direction string `yaml:"direction"`
}

// Receiver selects where replicas arrive.
type Receiver struct {
	Interfaces []string       `yaml:"interfaces"`
	Behind     []netip.Prefix `yaml:"behind"`
	DSCP       uint8          `yaml:"dscp"`
	Stale      time.Duration  `yaml:"stale"`
	TableSize  uint32         `yaml:"tableSize"`
}

// Uplink selects the viewer packets to report to the controller.
type Uplink struct {
	Interfaces []string `yaml:"interfaces"`
	Min        uint16   `yaml:"min"`
	Max        uint16   `yaml:"max"`
}

// Flow is a path set that needs no controller.
type Flow struct {
	Destination netip.Addr `yaml:"destination"`
	Paths       []int      `yaml:"paths"`
	DSCP        *uint8     `yaml:"dscp"`
}

// Signal configures the reception of signalling packets.
type Signal struct {
	Address    netip.Addr `yaml:"address"`
	Interfaces []string   `yaml:"interfaces"`
	Port       uint16     `yaml:"port"`
	Key        string     `yaml:"key"`
}

// Controller locates and authenticates the controller.
type Controller struct {
	URL         string `yaml:"url"`
	Token       string `yaml:"token"`
	CA          string `yaml:"ca"`
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
}

// Probe configures the measurement of paths.
type Probe struct {
	Port    uint16        `yaml:"port"`
	Every   time.Duration `yaml:"every"`
	Timeout time.Duration `yaml:"timeout"`
	Down    time.Duration `yaml:"down"`
}

// Eliminate holds the parameters of Algorithm 1.
type Eliminate struct {
	Window       int           `yaml:"window"`
	Threshold    time.Duration `yaml:"threshold"`
	Span         time.Duration `yaml:"span"`
	LastSpan     time.Duration `yaml:"lastSpan"`
	CompleteSpan time.Duration `yaml:"completeSpan"`
	Regret       time.Duration `yaml:"regret"`
	Slack        float64       `yaml:"slack"`
	Timeout      time.Duration `yaml:"timeout"`
	Memory       time.Duration `yaml:"memory"`
	Capacity     int           `yaml:"capacity"`
	Guard        time.Duration `yaml:"guard"`
	Silence      time.Duration `yaml:"silence"`
	LatentPeriod time.Duration `yaml:"latentPeriod"`
	LatentLoss   float64       `yaml:"latentLoss"`
}

// algorithm converts the parameters for package elimination.
func (e Eliminate) algorithm() elimination.Config {
	return elimination.Config{
		W: e.Window, Alpha: e.Threshold, Span: e.Span, LastSpan: e.LastSpan, CompleteSpan: e.CompleteSpan,
		Regret: e.Regret, Slack: e.Slack,
		Timeout: e.Timeout, Memory: e.Memory, Capacity: e.Capacity, Guard: e.Guard, Silence: e.Silence,
		LatentPeriod: e.LatentPeriod, LatentLoss: e.LatentLoss,
	}
}

const (
	exitDetach = "detach"
	exitKeep   = "keep"
)

func defaultConfig() Config {
	var c Config
	c.Name, _ = os.Hostname()
	c.Uplink.Min, c.Uplink.Max = bpf.DefaultUplinkMin, bpf.DefaultUplinkMax
	c.Receiver.Stale, c.Receiver.TableSize = bpf.DefaultStale, bpf.DefaultTableSize
	c.Sender.MaxPolicies = bpf.DefaultMaxPolicies
	c.Signal.Port = signal.Port
	c.Probe = Probe{Port: 4791, Every: 100 * time.Millisecond, Timeout: time.Second, Down: time.Second}
	a := elimination.Default()
	c.Eliminate = Eliminate{
		Window: a.W, Threshold: a.Alpha, Span: a.Span, LastSpan: a.LastSpan, CompleteSpan: a.CompleteSpan,
		Regret: a.Regret, Slack: a.Slack,
		Timeout: a.Timeout, Memory: a.Memory, Capacity: a.Capacity, Guard: a.Guard, Silence: a.Silence,
		LatentPeriod: a.LatentPeriod, LatentLoss: a.LatentLoss,
	}
	c.OnExit, c.Drain = exitDetach, 500*time.Millisecond
	c.HTTP = "127.0.0.1:4792"
	c.Log.Level, c.Log.Format = "info", "text"
	return c
}

// names matches valid edge names, which become parts of file names and URLs.
var names = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// places checks the edge's name and fills in its pin directory and socket.
func (c *Config) places() error {
	if !names.MatchString(c.Name) {
		return fmt.Errorf("name %q: want 1 to 64 letters, digits, '.', '_' and '-'", c.Name)
	}
	if c.Pin == "" {
		c.Pin = filepath.Join(pinRoot, c.Name)
	}
	if c.Socket == "" {
		c.Socket = filepath.Join(socketRoot, c.Name+".sock")
	}
	return nil
}

// Validate checks the configuration and completes derived settings. Its error names the wrong
// setting.
func (c *Config) Validate() error {
	if err := c.places(); err != nil {
		return err
	}
	if err := settings.Check(c); err != nil {
		return err
	}
	if !slices.Contains([]api.Role{api.Sender, api.Receiver, api.Both}, c.Role) {
		return fmt.Errorf("role %q is not sender, receiver or both", c.Role)
	}
	for _, check := range []func() error{
		c.validatePaths, c.validateSender, c.validateReceiver, c.validateFlows, c.validateProbe, c.validateControl,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	switch {
	case c.OnExit != exitDetach && c.OnExit != exitKeep:
		return fmt.Errorf("onExit %q is not %s or %s", c.OnExit, exitDetach, exitKeep)
	case len(c.Uplink.Interfaces) > 0 && (c.Uplink.Min == 0 || c.Uplink.Min > c.Uplink.Max):
		return fmt.Errorf("uplink.min %d and uplink.max %d: want 0 < min <= max", c.Uplink.Min, c.Uplink.Max)
	}
	if err := c.Log.Validate(); err != nil {
		return err
	}
	// The algorithm's own validation uses the paper's names.
	if _, err := elimination.New(c.Eliminate.algorithm()); err != nil {
		return err
	}
	return nil
}

func (c *Config) validatePaths() error {
	if len(c.Paths) == 0 {
		return errors.New("paths: want at least one")
	}
	interfaces, indices := map[string]int{}, map[int]bool{}
	for n, p := range c.Paths {
		where := fmt.Sprintf("paths[%d]", n)
		switch {
		case p.Index < 1 || p.Index > bpf.MaxPaths:
			return fmt.Errorf("%s.index %d: want 1 to %d", where, p.Index, bpf.MaxPaths)
		case indices[p.Index]:
			return fmt.Errorf("%s.index %d appears twice", where, p.Index)
		case p.Interface == "":
			return fmt.Errorf("%s.interface is missing", where)
		case interfaces[p.Interface] != 0:
			return fmt.Errorf("%s.interface %s is already used by path %d", where, p.Interface, interfaces[p.Interface])
		case !p.Peer.IsValid() && !p.Gateway.IsValid():
			return fmt.Errorf("%s.peer is missing: want the other edge's address on this path", where)
		case p.Peer.IsValid() && p.Gateway.IsValid() && p.Peer.Is4() != p.Gateway.Is4():
			return fmt.Errorf("%s.gateway %s and peer %s differ in address family", where, p.Gateway, p.Peer)
		}
		interfaces[p.Interface], indices[p.Index] = p.Index, true
	}
	slices.SortFunc(c.Paths, func(a, b Path) int { return a.Index - b.Index })
	return nil
}

func (c *Config) validateSender() error {
	if !c.Role.Sends() {
		if len(c.Sender.Attach) > 0 {
			return fmt.Errorf("sender.attach is set, but the role is %s", c.Role)
		}
		return nil
	}
	if len(c.Sender.Attach) == 0 {
		return errors.New("sender.attach: want at least one interface whose packets are duplicated")
	}
	if c.Sender.MaxPolicies == 0 || c.Sender.MaxPolicies > api.MaxPolicies {
		return fmt.Errorf("sender.maxPolicies %d: want 1 to %d, the capacity of a report", c.Sender.MaxPolicies,
			api.MaxPolicies)
	}
	for n, a := range c.Sender.Attach {
		if a.Interface == "" {
			return fmt.Errorf("sender.attach[%d].interface is missing", n)
		}
		if _, ok := directions[a.Direction]; !ok {
			return fmt.Errorf("sender.attach[%d].direction %q is not ingress or egress", n, a.Direction)
		}
	}
	return nil
}

// directions maps sender.attach[].direction; ingress is the default.
var directions = map[string]bpf.Direction{"": bpf.Ingress, "ingress": bpf.Ingress, "egress": bpf.Egress}

func (c *Config) validateReceiver() error {
	if !c.Role.Receives() {
		return nil
	}
	if len(c.Receiver.Interfaces) == 0 {
		for _, p := range c.Paths {
			c.Receiver.Interfaces = append(c.Receiver.Interfaces, p.Interface)
		}
	}
	switch {
	case c.Receiver.DSCP > 63:
		return fmt.Errorf("receiver.dscp %d: want 0 to 63", c.Receiver.DSCP)
	case c.Receiver.Stale < 10*time.Millisecond || c.Receiver.Stale > 30*time.Second:
		return fmt.Errorf("receiver.stale %v: want 10ms to 30s", c.Receiver.Stale)
	case c.Receiver.TableSize == 0 || c.Receiver.TableSize > bpf.MaxTableSize:
		return fmt.Errorf("receiver.tableSize %d: want 1 to %d", c.Receiver.TableSize, bpf.MaxTableSize)
	}
	return nil
}

func (c *Config) validateFlows() error {
	if len(c.Flows) > bpf.MaxFlows {
		return fmt.Errorf("flows: %d exceed %d, the capacity of the kernel program", len(c.Flows), bpf.MaxFlows)
	}
	seen := map[netip.Addr]bool{}
	for n, f := range c.Flows {
		where := fmt.Sprintf("flows[%d]", n)
		switch {
		case !f.Destination.IsValid() || f.Destination.IsUnspecified() || f.Destination.Zone() != "":
			return fmt.Errorf("%s.destination is not an address", where)
		case seen[f.Destination.Unmap()]:
			return fmt.Errorf("%s.destination %s appears twice", where, f.Destination)
		case !c.outbound(f.Destination) && !c.inbound(f.Destination):
			return fmt.Errorf("%s.destination %s is neither in sender.towards nor in receiver.behind", where,
				f.Destination)
		case f.DSCP != nil && *f.DSCP > 63:
			return fmt.Errorf("%s.dscp %d: want 0 to 63", where, *f.DSCP)
		}
		for _, i := range f.Paths {
			if !slices.ContainsFunc(c.Paths, func(p Path) bool { return p.Index == i }) {
				return fmt.Errorf("%s.paths: unknown path %d", where, i)
			}
		}
		c.Flows[n].Destination = f.Destination.Unmap()
		seen[f.Destination.Unmap()] = true
	}
	return nil
}

// outbound reports whether this edge duplicates packets to a destination in flows. If the edge has a
// single role, the answer is the same for all destinations.
func (c *Config) outbound(destination netip.Addr) bool {
	return c.Role == api.Sender || c.Role == api.Both && contain(c.Sender.Towards, destination)
}

// inbound reports whether this edge eliminates replicas to a destination in flows.
func (c *Config) inbound(destination netip.Addr) bool {
	return c.Role == api.Receiver || c.Role == api.Both && contain(c.Receiver.Behind, destination)
}

func contain(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) })
}

func (c *Config) validateProbe() error {
	p := c.Probe
	switch {
	case p.Every < probe.MinEvery || p.Every > probe.MaxEvery:
		return fmt.Errorf("probe.every %v: want %v to %v", p.Every, probe.MinEvery, probe.MaxEvery)
	case p.Timeout < p.Every || p.Timeout > probe.MaxTimeout:
		return fmt.Errorf("probe.timeout %v: want probe.every, %v, to %v", p.Timeout, p.Every, probe.MaxTimeout)
	case p.Down < 2*p.Every:
		return fmt.Errorf("probe.down %v is below twice probe.every, %v", p.Down, p.Every)
	}
	return nil
}

func (c *Config) validateControl() error {
	s := c.Signal
	switch {
	case s.Address.IsValid() && !s.Address.Unmap().Is4():
		return fmt.Errorf("signal.address %s is not an IPv4 address", s.Address)
	case c.Control.URL == "" && (c.Control.Token != "" || c.Control.CA != "" || c.Control.Certificate != "" ||
		c.Control.Key != ""):
		return errors.New("controller.url is missing")
	case c.Control.URL != "" && c.Role.Sends() && s.Key == "":
		return errors.New("signal.key is missing: without it the controller cannot signal this sender")
	case c.Control.URL != "" && c.Role.Sends() && len(c.Sender.Towards) == 0 && len(c.Flows) == 0:
		return errors.New("sender.towards is missing: the controller needs the destinations to duplicate to")
	case c.Control.URL != "" && c.Role.Receives() && len(c.Receiver.Behind) == 0 && len(c.Flows) == 0:
		return errors.New("receiver.behind is missing: the controller needs the destinations behind this receiver")
	}
	return nil
}

// signalKey reads the signalling key. It returns nil if none is configured.
func (c *Config) signalKey() ([]byte, error) {
	if c.Signal.Key == "" {
		return nil, nil
	}
	key, err := signal.ReadKey(c.Signal.Key)
	if err != nil {
		return nil, fmt.Errorf("signal.key: %w", err)
	}
	return key, nil
}

// client returns a client for the controller, or nil if none is configured.
func (c *Config) client() (*api.Client, error) {
	if c.Control.URL == "" {
		return nil, nil
	}
	o := api.Options{URL: c.Control.URL, CA: c.Control.CA, Certificate: c.Control.Certificate, Key: c.Control.Key}
	if c.Control.Token != "" {
		token, err := secretfile.Read(c.Control.Token)
		if err != nil {
			return nil, fmt.Errorf("controller.token: %w", err)
		}
		if o.Token = strings.TrimSpace(string(token)); o.Token == "" {
			return nil, fmt.Errorf("controller.token: %s is empty", c.Control.Token)
		}
	}
	client, err := api.NewClient(o)
	if err != nil {
		return nil, fmt.Errorf("controller.%w", err)
	}
	return client, nil
}
