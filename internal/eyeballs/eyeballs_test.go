package eyeballs

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// name is a name server's answer for a host.
type name struct {
	addresses []string      // nil = not found
	after     time.Duration // delay of the answer; negative = never
}

// peer is an address that answers after the given time, or never if that is negative.
type peer struct {
	after time.Duration
	err   error
}

var (
	errRefused     = errors.New("refused")
	errUnreachable = errors.New("unreachable")
)

// TestDial checks, in fake time, which addresses Dial tries and when.
func TestDial(t *testing.T) {
	const never = -1
	const ms = time.Millisecond
	for title, c := range map[string]struct {
		host   string
		v6, v4 name
		peers  map[string]peer // others answer after 10 ms
		cancel time.Duration   // 0 = a deadline of 10 s
		want   string          // the connected address, or a part of the error
		tried  []string        // in order, with the time
		took   time.Duration
	}{
		"both families": {
			v6: name{[]string{"2001:db8::1"}, 5 * ms}, v4: name{[]string{"192.0.2.1"}, 5 * ms},
			want: "2001:db8::1", tried: []string{"2001:db8::1 5ms"}, took: 15 * ms,
		},
		"IPv4 alone": {
			v6: name{nil, 5 * ms}, v4: name{[]string{"192.0.2.1"}, 5 * ms},
			want: "192.0.2.1", tried: []string{"192.0.2.1 5ms"}, took: 15 * ms,
		},
		"IPv6 host without IPv4, IPv4 listed": {
			v6: name{[]string{"2001:db8::1"}, 20 * ms}, v4: name{[]string{"192.0.2.1"}, 5 * ms},
			peers: map[string]peer{"192.0.2.1": {0, errUnreachable}},
			want:  "2001:db8::1", tried: []string{"2001:db8::1 20ms"}, took: 30 * ms,
		},
		"broken IPv6": {
			v6: name{[]string{"2001:db8::1"}, 5 * ms}, v4: name{[]string{"192.0.2.1"}, 5 * ms},
			peers: map[string]peer{"2001:db8::1": {never, nil}},
			want:  "192.0.2.1", tried: []string{"2001:db8::1 5ms", "192.0.2.1 255ms"}, took: 265 * ms,
		},
		"no route to IPv6": {
			v6: name{[]string{"2001:db8::1"}, 5 * ms}, v4: name{[]string{"192.0.2.1"}, 5 * ms},
			peers: map[string]peer{"2001:db8::1": {0, errUnreachable}},
			want:  "192.0.2.1", tried: []string{"2001:db8::1 5ms", "192.0.2.1 5ms"}, took: 15 * ms,
		},
		"first of two addresses dead": {
			v6: name{nil, 5 * ms}, v4: name{[]string{"192.0.2.1", "192.0.2.2"}, 5 * ms},
			peers: map[string]peer{"192.0.2.1": {never, nil}},
			want:  "192.0.2.2", tried: []string{"192.0.2.1 5ms", "192.0.2.2 255ms"}, took: 265 * ms,
		},
		"families take turns": {
			v6:    name{[]string{"2001:db8::1", "2001:db8::2"}, 5 * ms},
			v4:    name{[]string{"192.0.2.1", "192.0.2.2"}, 5 * ms},
			peers: map[string]peer{"2001:db8::1": {never, nil}, "192.0.2.1": {never, nil}, "2001:db8::2": {never, nil}},
			want:  "192.0.2.2",
			tried: []string{"2001:db8::1 5ms", "192.0.2.1 255ms", "2001:db8::2 505ms", "192.0.2.2 755ms"}, took: 765 * ms,
		},
		"AAAA query unanswered": {
			v6: name{nil, never}, v4: name{[]string{"192.0.2.1"}, 5 * ms},
			want: "192.0.2.1", tried: []string{"192.0.2.1 55ms"}, took: 65 * ms,
		},
		"A query unanswered": {
			v6: name{[]string{"2001:db8::1"}, 5 * ms}, v4: name{nil, never},
			want: "2001:db8::1", tried: []string{"2001:db8::1 5ms"}, took: 15 * ms,
		},
		"late AAAA answer, dead IPv4": {
			v6: name{[]string{"2001:db8::1"}, 100 * ms}, v4: name{[]string{"192.0.2.1"}, 5 * ms},
			peers: map[string]peer{"192.0.2.1": {never, nil}},
			want:  "2001:db8::1", tried: []string{"192.0.2.1 55ms", "2001:db8::1 305ms"}, took: 315 * ms,
		},
		"slow but first": {
			v6: name{[]string{"2001:db8::1"}, 5 * ms}, v4: name{[]string{"192.0.2.1"}, 5 * ms},
			peers: map[string]peer{"2001:db8::1": {300 * ms, nil}, "192.0.2.1": {300 * ms, nil}},
			want:  "2001:db8::1", tried: []string{"2001:db8::1 5ms", "192.0.2.1 255ms"}, took: 305 * ms,
		},
		"all refuse": {
			v6: name{[]string{"2001:db8::1"}, 5 * ms}, v4: name{[]string{"192.0.2.1"}, 5 * ms},
			peers: map[string]peer{"2001:db8::1": {10 * ms, errUnreachable}, "192.0.2.1": {10 * ms, errRefused}},
			want:  "unreachable; refused", tried: []string{"2001:db8::1 5ms", "192.0.2.1 15ms"}, took: 25 * ms,
		},
		"all dead": {
			v6: name{nil, 5 * ms}, v4: name{[]string{"192.0.2.1"}, 5 * ms},
			peers: map[string]peer{"192.0.2.1": {never, nil}},
			want:  context.DeadlineExceeded.Error(), tried: []string{"192.0.2.1 5ms"}, took: 10 * time.Second,
		},
		"unknown name": {v6: name{nil, 5 * ms}, v4: name{nil, 8 * ms}, want: "no such host", took: 8 * ms},
		"silent name server": {
			v6: name{nil, never}, v4: name{nil, never}, want: "no answer", took: 10 * time.Second,
		},
		"cancelled while the name server is silent": {
			v6: name{nil, never}, v4: name{nil, never}, cancel: 70 * ms,
			want: context.Canceled.Error(), took: 70 * ms,
		},
		"localhost": {
			host: "localhost", v6: name{[]string{"::1"}, 0}, v4: name{[]string{"127.0.0.1"}, ms},
			want: "127.0.0.1", tried: []string{"127.0.0.1 1ms"}, took: 11 * ms,
		},
		"address": {host: "[2001:db8::9]", want: "2001:db8::9", tried: []string{"2001:db8::9 0s"}, took: 10 * ms},
	} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				resolve := func(ctx context.Context, network, host string) ([]netip.Addr, error) {
					answer := map[string]name{"ip6": c.v6, "ip4": c.v4}[network]
					if answer.after < 0 {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					time.Sleep(answer.after)
					if answer.addresses == nil {
						return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
					}
					var list []netip.Addr
					for _, a := range answer.addresses {
						list = append(list, netip.MustParseAddr(a))
					}
					return list, nil
				}
				var mu sync.Mutex
				var tried []string
				open := 0
				count := func(n int) {
					mu.Lock()
					defer mu.Unlock()
					open += n
				}
				dial := func(ctx context.Context, to netip.AddrPort) (netip.Addr, error) {
					mu.Lock()
					tried = append(tried, to.Addr().String()+" "+time.Since(began).String())
					mu.Unlock()
					p, ok := c.peers[to.Addr().String()]
					if !ok {
						p.after = 10 * ms
					}
					if p.after < 0 {
						<-ctx.Done()
						return netip.Addr{}, ctx.Err()
					}
					time.Sleep(p.after)
					if p.err == nil {
						count(1)
					}
					return to.Addr(), p.err
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
				}
				host := c.host
				if host == "" {
					host = "relay.example"
				}
				got, err := dialWith(ctx, resolve, host+":443", dial, func(netip.Addr) { count(-1) })
				took := time.Since(began)
				synctest.Wait()
				mu.Lock()
				if err != nil {
					if !strings.Contains(err.Error(), c.want) || open != 0 {
						t.Errorf("error %v, want %q; %d connections open", err, c.want, open)
					}
				} else if got.String() != c.want {
					t.Errorf("connected to %s, want %s", got, c.want)
				}
				if took != c.took || !slices.Equal(tried, c.tried) {
					t.Errorf("took %s, want %s; tried %q, want %q", took, c.took, tried, c.tried)
				}
				mu.Unlock()
				time.Sleep(time.Minute) // late connections
				mu.Lock()
				defer mu.Unlock()
				if err == nil && open != 1 {
					t.Errorf("%d connections stay open", open)
				}
			})
		})
	}
}

// TestAddressErrors dials malformed addresses.
func TestAddressErrors(t *testing.T) {
	for _, address := range []string{"relay.example", "relay.example:", "relay.example:99999", "a:b:c", ""} {
		_, err := DialTCP(t.Context(), "tcp", address)
		if err == nil {
			t.Errorf("%q: no error", address)
		}
	}
}
