package pairing

import (
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Limits of a relay's codes.
const (
	maxCodes     = 256  // valid at a time
	perMinute    = 60   // requests per address (in IPv6 per /64)
	allPerMinute = 6000 // requests of all addresses
)

// Codes holds a relay's valid codes. Its methods may run concurrently.
type Codes struct {
	mu     sync.Mutex
	codes  map[string]entry
	minute time.Time // of the counts below
	asked  map[netip.Prefix]int
	all    int
}

type entry struct {
	sealed []byte
	until  time.Time
}

// NewCodes returns an empty Codes.
func NewCodes() *Codes { return &Codes{codes: map[string]entry{}} }

// Create creates a code. The request's body is the encrypted address; the response is the code.
func (c *Codes) Create(w http.ResponseWriter, r *http.Request) {
	sealed, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBytes))
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		http.Error(w, "the address is too long", http.StatusRequestEntityTooLarge)
		return
	case err != nil || len(sealed) == 0:
		http.Error(w, "the address is missing", http.StatusBadRequest)
		return
	}
	code, ok := c.add(sealed)
	if !ok {
		refuse(w, "too many codes are valid; each expires after ten minutes")
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, code+"\n")
}

// Serve sends the encrypted address of the code in the path value "code".
func (c *Codes) Serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	sealed, ok := c.get(r.PathValue("code"), Prefix(r.RemoteAddr))
	switch {
	case !ok:
		refuse(w, "too many requests for codes; try again in a minute")
	case sealed == nil:
		http.Error(w, "the code is unknown or has expired", http.StatusNotFound)
	default:
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(sealed)
	}
}

func refuse(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "60")
	http.Error(w, why, http.StatusTooManyRequests)
}

func (c *Codes) add(sealed []byte) (code string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for code, e := range c.codes {
		if !now.Before(e.until) {
			delete(c.codes, code)
		}
	}
	if len(c.codes) >= maxCodes {
		return "", false
	}
	// 40 bits make guesses futile; without its key, a code reveals nothing.
	code = rand.Text()[:8]
	c.codes[code] = entry{sealed, now.Add(Lifetime)}
	return code, true
}

// get returns nil for unknown codes, and false if the address, or all addresses together, sent too
// many requests.
func (c *Codes) get(code string, from netip.Prefix) (sealed []byte, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.asked == nil || now.Sub(c.minute) >= time.Minute {
		c.minute, c.asked, c.all = now, map[netip.Prefix]int{}, 0
	}
	if c.all >= allPerMinute || c.asked[from] >= perMinute {
		return nil, false
	}
	c.all++
	c.asked[from]++
	if e := c.codes[code]; now.Before(e.until) {
		return e.sealed, true
	}
	return nil, true
}

// Prefix returns the unit for counting requests: the address of an http.Request.RemoteAddr, or its /64 in IPv6.
func Prefix(remote string) netip.Prefix {
	a, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	ip := a.Addr().Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}

// FromThisMachine reports whether a request comes from this machine, and not through a proxy on it.
func FromThisMachine(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	ip := net.ParseIP(host)
	return err == nil && ip.IsLoopback() && r.Header.Get("X-Forwarded-For") == "" && r.Header.Get("Forwarded") == ""
}
