// Package roster defines the track in which a relay of a cluster lists the others to its clients, so
// that they can continue at another relay when theirs fails.
package roster

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"holocast/internal/clock"
	"holocast/internal/moqt"
)

// Limits of a roster.
const (
	// MaxSize is the maximum size of a roster in bytes.
	MaxSize = 8 << 10
	// MaxRelays is the maximum number of relays in it.
	MaxRelays = 8
	maxURL    = 512
)

// TrackName returns the name of the track. Each of its groups has one object, a roster. A relay that is
// in no cluster has no such track.
func TrackName() moqt.TrackName {
	return moqt.TrackName{Namespace: moqt.Namespace{clock.Namespace}, Name: "relays"}
}

// Relay is another relay that serves the same sessions.
type Relay struct {
	// URL is moqt://HOST:PORT. The session's path is the same as at this relay, and the relay accepts
	// WebTransport at the same port.
	URL string `json:"url"`
	// SHA256 is the hash of the relay's certificate in hex.
	SHA256 string `json:"sha256,omitempty"`
	// Cost orders the relays: clients prefer low costs, and choose at random among equal ones.
	Cost int `json:"cost,omitempty"`
}

type list struct {
	Relays []Relay `json:"relays"`
}

// Marshal encodes a roster.
func Marshal(relays []Relay) ([]byte, error) { return json.Marshal(list{relays}) }

// Parse decodes a roster. It ignores relays beyond MaxRelays.
func Parse(b []byte) ([]Relay, error) {
	if len(b) > MaxSize {
		return nil, fmt.Errorf("roster of %d bytes exceeds %d", len(b), MaxSize)
	}
	var l list
	if err := json.Unmarshal(b, &l); err != nil {
		return nil, fmt.Errorf("roster: %w", err)
	}
	relays := l.Relays[:min(len(l.Relays), MaxRelays)]
	for _, r := range relays {
		if err := r.validate(); err != nil {
			return nil, fmt.Errorf("roster: %w", err)
		}
	}
	return relays, nil
}

func (r Relay) validate() error {
	u, err := url.Parse(r.URL)
	switch {
	case len(r.URL) > maxURL:
		return errors.New("a relay's URL is too long")
	case err != nil || u.Scheme != "moqt" || u.Hostname() == "" || u.User != nil || u.Path != "" ||
		u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("a relay's URL is not of the form moqt://HOST:PORT: %q", r.URL)
	}
	if hash, err := hex.DecodeString(r.SHA256); err != nil || len(hash) != 0 && len(hash) != 32 {
		return errors.New("a relay's sha256 is not a SHA-256 in hex")
	}
	return nil
}
