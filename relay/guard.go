package main

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"

	"holocast/internal/service"
)

// guard protects a relay from web pages of foreign origins in its visitors' browsers.
type guard struct {
	origins atomic.Pointer[[]string] // origins allowed in addition to the relay's own; "*" allows all
	cert    *service.Certificate
}

// allow replaces the additional origins.
func (g *guard) allow(origins []string) { g.origins.Store(&origins) }

// allows reports whether the requesting page may use the relay. The page must come from the relay's
// own host, the browser's machine or a configured origin. Requests without an Origin header do not
// come from pages and are allowed. The requested host must be known.
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

// host refuses requests for unknown hosts (DNS rebinding).
func (g *guard) host(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.knows(r.Host) {
			http.Error(w, "unknown host; add it to the certificate or to origins", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// knows reports whether a Host header is an IP address, localhost, a name in the certificate or the
// host of a configured origin. The origin "*" covers every host.
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

// hostname returns a Host header without its port.
func hostname(host string) string {
	u := url.URL{Host: host}
	return u.Hostname()
}

func local(name string) bool {
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && ip.IsLoopback()
}
