package main

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"

	"holocast/internal/service"
)

// guard keeps web pages of others from using a relay that their visitors reach.
type guard struct {
	origins atomic.Pointer[[]string] // that are allowed beside the relay's own; "*" = all
	cert    *service.Certificate
}

// allow replaces the origins that are allowed beside the relay's own.
func (g *guard) allow(origins []string) { g.origins.Store(&origins) }

// allows reports whether the page that a request comes from may use the relay: one of the
// relay's own host, of the machine that the browser runs on, or of a configured origin.
// Programs that are no browsers name no origin.
func (g *guard) allows(r *http.Request) bool {
	if !g.knows(r.Host) {
		return false
	}
	origin := r.Header.Get("Origin")
	origins := *g.origins.Load()
	if origin == "" || slices.Contains(origins, origin) || slices.Contains(origins, "*") {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && (u.Hostname() == hostname(r.Host) || local(u.Hostname()))
}

// host refuses requests for hosts that are not the relay's: those of a page whose own name
// was made to lead here (DNS rebinding).
func (g *guard) host(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.knows(r.Host) {
			http.Error(w, "this relay does not know that host; its certificate, or origins, must name it", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// knows reports whether a Host header names the relay: by an address, by a name of its
// certificate or by that of a configured origin.
func (g *guard) knows(host string) bool {
	name := hostname(host)
	if net.ParseIP(name) != nil || local(name) || g.cert.Get().Leaf.VerifyHostname(name) == nil {
		return true
	}
	return slices.ContainsFunc(*g.origins.Load(), func(o string) bool {
		u, err := url.Parse(o)
		return o == "*" || err == nil && u.Hostname() == name
	})
}

// hostname is a Host header without its port.
func hostname(host string) string {
	u := url.URL{Host: host}
	return u.Hostname()
}

func local(name string) bool {
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && ip.IsLoopback()
}
