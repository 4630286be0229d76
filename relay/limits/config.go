package limits

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind is a limited resource.
type Kind int

// Kinds of limits. Kinds before Handshakes limit amounts in use.
const (
	Connections   Kind = iota // QUIC connections, from their first packet
	Streams                   // opened by the peer
	Window                    // bytes of flow-control credit beyond the initial windows
	Waiting                   // unanswered requests
	Subscriptions             // to tracks and namespaces
	Fetches
	Namespaces // published
	Tracks     // received from a publisher
	Properties // bytes of the tracks' properties
	Cached     // bytes; the cache evicts beyond the limit
	// The following limit rates per second.
	Handshakes
	Requests // including updates
	Groups   // groups and subgroups, which are streams of objects
	Objects  // from publishers
	Bytes    // of objects from publishers
	Initials // Initial packets (RFC 9000 §17.2.2)
	kinds
)

const firstRate = Handshakes

var names = [kinds]string{
	"connections", "streams", "window", "waiting", "subscriptions", "fetches", "namespaces",
	"tracks", "properties", "cached", "handshakes", "requests", "groups", "objects", "bytes", "initials",
}

func (k Kind) String() string { return names[k] }

// ofSessions reports whether the kind has a limit per session.
func (k Kind) ofSessions() bool { return k != Connections && k != Handshakes && k != Initials }

// Scope is the extent of a limit.
type Scope int

// Scopes.
const (
	Session Scope = iota
	Address       // all sessions of an IPv4 address or an IPv6 /64
	All
	scopes
)

var scopeNames = [scopes]string{"session", "address", "all"}

func (s Scope) String() string { return scopeNames[s] }

// Bounds are the limits of one kind. 0 means no limit.
type Bounds struct {
	Session int64 `yaml:"session,omitempty"`
	Address int64 `yaml:"address,omitempty"`
	All     int64 `yaml:"all,omitempty"`
}

func (b *Bounds) at(s Scope) *int64 { return [...]*int64{&b.Session, &b.Address, &b.All}[s] }

// Config holds the limits of all kinds.
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

// Default returns limits for a relay with a few thousand sessions.
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
		// a client with a post-quantum key share sends two, plus retransmissions
		Initials: Bounds{0, 5000, 20_000},
	}
}

// of returns the bounds of a kind.
func (c *Config) of(k Kind) *Bounds {
	return [kinds]*Bounds{
		&c.Connections, &c.Streams, &c.Window, &c.Waiting, &c.Subscriptions, &c.Fetches, &c.Namespaces, &c.Tracks,
		&c.Properties, &c.Cached,
		&c.Handshakes, &c.Requests, &c.Groups, &c.Objects, &c.Bytes, &c.Initials,
	}[k]
}

// Validate checks the limits. Its error begins with the name of the setting.
func (c *Config) Validate() error {
	for k := range kinds {
		for s := range scopes {
			switch v := *c.of(k).at(s); {
			case v < 0:
				return fmt.Errorf("limits.%s.%s must not be negative; 0 means no limit", k, s)
			case v != 0 && s == Session && !k.ofSessions():
				return fmt.Errorf("limits.%s.session: this limit does not exist per session", k)
			case v != 0 && s == All && k == Cached:
				return fmt.Errorf("limits.cached.all: use cache.totalBytes instead")
			}
		}
	}
	return nil
}

// Set parses KIND.SCOPE=N and changes that limit. It makes *Config a pflag.Value.
func (c *Config) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	kind, scope, dot := strings.Cut(name, ".")
	if !ok || !dot {
		return fmt.Errorf("%q: want KIND.SCOPE=N, such as subscriptions.session=100", text)
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
	return fmt.Errorf("unknown limit %q; kinds are %s, scopes %s", name, strings.Join(names[:], ", "),
		strings.Join(scopeNames[:], ", "))
}

// String implements pflag.Value. It is empty to keep the help short.
func (c *Config) String() string { return "" }

// Type implements pflag.Value.
func (c *Config) Type() string { return "KIND.SCOPE=N" }
