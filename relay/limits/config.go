package limits

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind is something that a relay has a bounded amount of.
type Kind int

// Kinds. The first ones are held until they are given back.
const (
	Connections   Kind = iota // QUIC connections, from their first packet on
	Streams                   // that a peer opened
	Window                    // bytes that a peer may send before the relay has read them
	Waiting                   // requests without an answer yet
	Subscriptions             // to tracks and namespaces
	Fetches
	Namespaces // published
	Tracks     // received from a publisher
	Properties // bytes of the properties of these tracks
	Cached     // bytes; what exceeds them is evicted, not refused
	// These are a second's.
	Handshakes
	Requests // and their updates
	Groups   // and subgroups: streams of objects
	Objects  // from publishers
	Bytes    // of objects, from publishers
	Initials // the first packets of connections
	kinds
)

const firstRate = Handshakes

var names = [kinds]string{"connections", "streams", "window", "waiting", "subscriptions", "fetches", "namespaces", "tracks", "properties", "cached", "handshakes", "requests", "groups", "objects", "bytes", "initials"}

func (k Kind) String() string { return names[k] }

// ofSessions reports whether a session may have more or less of it.
func (k Kind) ofSessions() bool { return k != Connections && k != Handshakes && k != Initials }

// Scope is whose a limit is.
type Scope int

// Scopes.
const (
	Session Scope = iota
	Address       // all sessions of an IPv4 address, or of a /64 of IPv6
	All
	scopes
)

var scopeNames = [scopes]string{"session", "address", "all"}

func (s Scope) String() string { return scopeNames[s] }

// Bounds are the limits of one kind; 0 means none.
type Bounds struct {
	Session int64 `yaml:"session,omitempty"`
	Address int64 `yaml:"address,omitempty"`
	All     int64 `yaml:"all,omitempty"`
}

func (b *Bounds) at(s Scope) *int64 { return [...]*int64{&b.Session, &b.Address, &b.All}[s] }

// Config has the limits of all kinds.
type Config struct {
	Connections   Bounds `yaml:"connections"`
	Streams       Bounds `yaml:"streams"`
	Window        Bounds `yaml:"window"`
	Waiting       Bounds `yaml:"waiting"`
	Subscriptions Bounds `yaml:"subscriptions"`
	Fetches       Bounds `yaml:"fetches"`
	Namespaces    Bounds `yaml:"namespaces"`
	Tracks        Bounds `yaml:"tracks"`
	Properties    Bounds `yaml:"properties"`
	Cached        Bounds `yaml:"cached"`
	Handshakes    Bounds `yaml:"handshakes"`
	Requests      Bounds `yaml:"requests"`
	Groups        Bounds `yaml:"groups"`
	Objects       Bounds `yaml:"objects"`
	Bytes         Bounds `yaml:"bytes"`
	Initials      Bounds `yaml:"initials"`
}

// Default is for a relay of some thousand sessions.
func Default() Config {
	return Config{
		Connections:   Bounds{0, 2048, 8192},
		Streams:       Bounds{2048, 1 << 14, 1 << 16},
		Window:        Bounds{64 << 20, 256 << 20, 512 << 20},
		Waiting:       Bounds{256, 2048, 8192},
		Subscriptions: Bounds{1024, 1 << 14, 1 << 16},
		Fetches:       Bounds{32, 512, 2048},
		Namespaces:    Bounds{256, 2048, 8192},
		Tracks:        Bounds{1024, 1 << 13, 1 << 15},
		Properties:    Bounds{1 << 20, 16 << 20, 64 << 20},
		Cached:        Bounds{512 << 20, 768 << 20, 0},
		Handshakes:    Bounds{0, 200, 1000},
		Requests:      Bounds{200, 1000, 4000},
		Groups:        Bounds{2000, 4000, 16000},
		Objects:       Bounds{80_000, 100_000, 200_000},
		Bytes:         Bounds{80_000_000, 125_000_000, 250_000_000},
		Initials:      Bounds{0, 5000, 20_000}, // two of a client with a post-quantum key, and those that are lost
	}
}

// of is what c has of a kind.
func (c *Config) of(k Kind) *Bounds {
	return [kinds]*Bounds{
		&c.Connections, &c.Streams, &c.Window, &c.Waiting, &c.Subscriptions, &c.Fetches, &c.Namespaces, &c.Tracks, &c.Properties, &c.Cached,
		&c.Handshakes, &c.Requests, &c.Groups, &c.Objects, &c.Bytes, &c.Initials,
	}[k]
}

// Validate checks the limits. Its errors begin with the setting.
func (c *Config) Validate() error {
	for k := range kinds {
		for s := range scopes {
			switch v := *c.of(k).at(s); {
			case v < 0:
				return fmt.Errorf("limits.%s.%s must not be negative; 0 is no limit", k, s)
			case v != 0 && s == Session && !k.ofSessions():
				return fmt.Errorf("limits.%s.session: a session has one connection", k)
			case v != 0 && s == All && k == Cached:
				return fmt.Errorf("limits.cached.all: the cache of all tracks is bounded by cache.totalBytes")
			}
		}
	}
	return nil
}

// Set changes a limit, as KIND.SCOPE=N. It makes *Config the value of a flag.
func (c *Config) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	kind, scope, dot := strings.Cut(name, ".")
	if !ok || !dot {
		return fmt.Errorf("%q is not of the form subscriptions.session=100", text)
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not a whole number", value)
	}
	for k := range kinds {
		for s := range scopes {
			if k.String() == kind && s.String() == scope {
				*c.of(k).at(s) = n
				return nil
			}
		}
	}
	return fmt.Errorf("there is no limit %q; kinds are %s, scopes %s", name, strings.Join(names[:], ", "), strings.Join(scopeNames[:], ", "))
}

// String is empty, so that a flag's help does not list all limits.
func (c *Config) String() string { return "" }

// Type names the flag's form in its help.
func (c *Config) Type() string { return "KIND.SCOPE=N" }
