package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"holocast/internal/service"
)

// DefaultListen is the default address of the cluster port.
const DefaultListen = ":6222"

// Config configures a relay's membership in a cluster. The zero value means none.
type Config struct {
	// Name is the cluster's name. "" means that the relay is in no cluster.
	Name string `yaml:"name"`
	// Region names the relay's location. A session of another region is received once per region.
	Region string `yaml:"region"`
	// Secret is the file with the secret that all relays of the cluster share.
	Secret string `yaml:"secret"`
	// Advertise is the moqt:// URL at which other relays reach this one. "" derives it from the
	// address that the relay listens on.
	Advertise string `yaml:"advertise"`
	// Public is the moqt:// URL at which clients reach this relay. "" means Advertise.
	Public string `yaml:"public"`
	// Listen is the TCP address for the routes of other relays.
	Listen string `yaml:"listen"`
	// Join lists addresses of other relays' cluster ports. One that is reachable suffices.
	Join []string `yaml:"join"`
	// NATS is the URL of an external NATS server, to be used instead of Listen and Join.
	NATS string `yaml:"nats"`
}

// Enabled reports whether the relay is in a cluster.
func (c *Config) Enabled() bool { return c.Name != "" }

// Validate returns an error that begins with the name of the invalid setting. It reads no files.
func (c *Config) Validate() error {
	if !c.Enabled() {
		if c.Region != "" || c.Secret != "" || c.Advertise != "" || c.Public != "" || len(c.Join) > 0 || c.NATS != "" {
			return errors.New("cluster.name is needed for the other settings of cluster")
		}
		return nil
	}
	for _, text := range []struct{ setting, value string }{
		{"name", c.Name}, {"region", c.Region}, {"advertise", c.Advertise}, {"public", c.Public},
	} {
		if len(text.value) > maxText {
			return fmt.Errorf("cluster.%s is longer than %d bytes", text.setting, maxText)
		}
	}
	switch {
	case strings.ContainsAny(c.Name, " \t\r\n.*>"):
		return fmt.Errorf("cluster.name: %q has a space, dot, asterisk or >", c.Name)
	case c.Secret == "":
		return errors.New("cluster.secret: the relays of a cluster share a secret: " +
			"generate one (relay key cluster.key --algorithm HS256), copy it to all relays and set cluster.secret to the file")
	case c.NATS != "" && len(c.Join) > 0:
		return errors.New("cluster.join has no effect with cluster.nats; remove one of them")
	}
	for _, address := range []struct{ setting, value string }{{"advertise", c.Advertise}, {"public", c.Public}} {
		u, err := url.Parse(address.value)
		if address.value != "" && (err != nil || u.Scheme != "moqt" || u.Hostname() == "" || u.Path != "") {
			return fmt.Errorf("cluster.%s: %q is not of the form moqt://HOST:PORT", address.setting, address.value)
		}
	}
	if c.NATS != "" {
		u, err := url.Parse(c.NATS)
		if err != nil || u.Scheme != "nats" && u.Scheme != "tls" || u.Host == "" {
			return fmt.Errorf("cluster.nats: want nats://HOST:PORT or tls://HOST:PORT")
		}
		return nil
	}
	if err := service.CheckAddress("cluster.listen", c.Listen); err != nil {
		return err
	}
	for i, address := range c.Join {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
			return fmt.Errorf("cluster.join[%d]: %q is not of the form HOST:PORT", i, address)
		}
	}
	return nil
}

// advertised returns the URL at which other relays reach a relay that listens at addr. A wildcard
// address becomes the one from which the machine reaches the first address of Join, or its first
// public one.
func (c *Config) advertised(addr net.Addr) (string, error) {
	if c.Advertise != "" {
		return c.Advertise, nil
	}
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return "", err
	}
	ip := net.ParseIP(host)
	if ip != nil && ip.IsUnspecified() {
		ip = c.outbound()
	}
	if ip == nil {
		return "", errors.New("cluster.advertise: the machine has no address for other relays; set moqt://HOST:PORT")
	}
	return "moqt://" + net.JoinHostPort(ip.String(), port), nil
}

// outbound returns the machine's address as other relays see it, or nil. It sends nothing.
func (c *Config) outbound() net.IP {
	for _, address := range c.Join {
		if conn, err := net.Dial("udp", address); err == nil {
			defer conn.Close()
			return conn.LocalAddr().(*net.UDPAddr).IP
		}
	}
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return n.IP
		}
	}
	return nil
}
