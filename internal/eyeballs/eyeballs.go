// Package eyeballs connects to hosts with several addresses (Happy Eyeballs version 2, RFC 8305).
package eyeballs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

const (
	// attemptDelay is the Connection Attempt Delay (RFC 8305 §5): how long to wait for an address
	// before also trying the next.
	attemptDelay = 250 * time.Millisecond
	// resolutionDelay is the Resolution Delay (§3): how long IPv4 addresses wait for IPv6
	// addresses.
	resolutionDelay = 50 * time.Millisecond
)

// Errors are the errors of all addresses, in the order they occurred.
type Errors []error

// Error joins the messages.
func (e Errors) Error() string {
	text := make([]string, len(e))
	for i, err := range e {
		text[i] = err.Error()
	}
	return strings.Join(text, "; ")
}

// Unwrap returns the errors.
func (e Errors) Unwrap() []error { return e }

// Dial resolves the host of address ("host:port") and returns the first connection that dial opens.
// IPv6 and IPv4 addresses take turns; each attempt starts attemptDelay after the previous one, or
// when that fails. The contexts of losing attempts are cancelled, and discard closes their
// connections. The error is a *net.DNSError, the only attempt's error, or Errors.
func Dial[C any](
	ctx context.Context, address string, dial func(context.Context, netip.AddrPort) (C, error), discard func(C),
) (conn C, err error) {
	return dialWith(ctx, net.DefaultResolver.LookupNetIP, address, dial, discard)
}

// DialTCP opens a TCP connection, for http.Transport.
func DialTCP(ctx context.Context, network, address string) (net.Conn, error) {
	dial := func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, to.String())
	}
	return Dial(ctx, address, dial, func(c net.Conn) { _ = c.Close() })
}

// lookup returns the addresses of a host; network is ip4 or ip6.
type lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

func dialWith[C any](
	ctx context.Context, resolve lookup, address string,
	dial func(context.Context, netip.AddrPort) (C, error), discard func(C),
) (conn C, err error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return conn, err
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return conn, fmt.Errorf("%s: invalid port %q", address, service)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return dial(ctx, netip.AddrPortFrom(ip, uint16(port)))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := race[C]{
		dial: dial, discard: discard, host: host, port: uint16(port),
		answers: make(chan answer, 2), outcomes: make(chan outcome[C]),
	}
	return r.run(ctx, resolve)
}

// family is an address family. The one with the lower value is tried first.
type family int

const (
	ipv6 family = iota
	ipv4
)

type answer struct {
	family    family
	addresses []netip.Addr
	err       error
}

type outcome[C any] struct {
	conn C
	err  error
}

// race is a set of concurrent connection attempts to a host.
type race[C any] struct {
	dial    func(context.Context, netip.AddrPort) (C, error)
	discard func(C)
	host    string
	port    uint16

	answers  chan answer
	outcomes chan outcome[C]

	waiting  [2]bool         // waiting for the name server's answer
	untried  [2][]netip.Addr // addresses
	next     family
	running  int
	pause    <-chan time.Time // fires when the next attempt may start; nil if it may start now
	failures Errors
	unnamed  []error // of the name server
}

func (r *race[C]) run(ctx context.Context, resolve lookup) (none C, err error) {
	if r.host == "localhost" {
		// Try IPv4 first on loopback: programs often serve only IPv4 there, and a refused IPv6
		// attempt may report no error.
		r.next = ipv4
	}
	for f, network := range []string{"ip6", "ip4"} {
		r.waiting[f] = true
		go func() {
			list, err := resolve(ctx, network, r.host)
			r.answers <- answer{family(f), list, err}
		}()
	}
	for {
		for r.pause == nil && len(r.untried[ipv6])+len(r.untried[ipv4]) > 0 {
			r.attempt(ctx)
		}
		if r.running == 0 && !r.waiting[ipv6] && !r.waiting[ipv4] && r.pause == nil {
			return none, r.failure()
		}
		select {
		case a := <-r.answers:
			r.answered(a)
		case o := <-r.outcomes:
			r.running--
			if o.err == nil {
				return o.conn, nil
			}
			r.failures = append(r.failures, o.err)
			r.pause = nil
		case <-r.pause:
			r.pause = nil
		case <-ctx.Done():
			if r.running == 0 && len(r.failures) == 0 && ctx.Err() == context.DeadlineExceeded {
				return none, &net.DNSError{Err: "no answer", Name: r.host, IsTimeout: true}
			}
			r.failures = append(r.failures, ctx.Err())
			return none, r.failure()
		}
	}
}

// answered adds the addresses of one family.
func (r *race[C]) answered(a answer) {
	r.waiting[a.family] = false
	r.untried[a.family] = a.addresses
	if a.err != nil {
		r.unnamed = append(r.unnamed, a.err)
	}
	if r.running > 0 || len(r.failures) > 0 {
		return
	}
	r.pause = nil
	if other := 1 - a.family; r.waiting[other] && r.next == other && len(a.addresses) > 0 {
		r.pause = time.After(resolutionDelay)
	}
}

// attempt dials the next address.
func (r *race[C]) attempt(ctx context.Context) {
	if len(r.untried[r.next]) == 0 {
		r.next = 1 - r.next
	}
	to := netip.AddrPortFrom(r.untried[r.next][0].Unmap(), r.port)
	r.untried[r.next] = r.untried[r.next][1:]
	r.next = 1 - r.next
	r.running++
	r.pause = time.After(attemptDelay)
	go func() {
		conn, err := r.dial(ctx, to)
		select {
		case r.outcomes <- outcome[C]{conn, err}:
		case <-ctx.Done():
			if err == nil {
				r.discard(conn)
			}
		}
	}()
}

// failure returns the reason for a failed race.
func (r *race[C]) failure() error {
	switch len(r.failures) {
	case 0:
		for _, err := range r.unnamed {
			if e := (*net.DNSError)(nil); !errors.As(err, &e) || !e.IsNotFound {
				return err // more specific than that a family has no addresses
			}
		}
		if len(r.unnamed) > 0 {
			return r.unnamed[0]
		}
		return &net.DNSError{Err: "no address", Name: r.host, IsNotFound: true}
	case 1:
		return r.failures[0]
	}
	return r.failures
}
