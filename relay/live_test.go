package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"holocast/internal/moqt"
	"holocast/internal/origin"
)

// TestLivePage checks that the page loads, and that its report lists a track's publisher, viewers and
// traffic.
func TestLivePage(t *testing.T) {
	p := start(t)
	tr := origin.NewTrack(points, nil, origin.Limits{})
	p.publish(tr)
	sub := subscribe(t, p.dial(moqt.Handler{}), points)
	payload := make([]byte, 1000)
	write(t, tr, 1, payload)
	expect(t, sub, 1, payload)

	var report struct {
		Sessions []struct {
			Number    uint64
			Peer      string
			Transport string
			Offers    []string
			Sent      uint64 `json:"sent_bytes"`
		}
		Tracks []struct {
			Name     string
			From, To []uint64
			Sent     uint64 `json:"sent_bytes"`
		}
	}
	eventually(t, "the report shows the object", func() bool {
		status, body := p.get("/live/report.json")
		if status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		if err := json.Unmarshal([]byte(body), &report); err != nil {
			t.Fatal(err)
		}
		return len(report.Tracks) == 1 && report.Tracks[0].Sent >= 1000
	})
	track := report.Tracks[0]
	if track.Name != points.String() || len(track.From) != 1 || len(track.To) != 1 || track.From[0] == track.To[0] ||
		len(report.Sessions) != 2 {
		t.Fatalf("%+v", report)
	}
	for _, s := range report.Sessions {
		offers := slices.Contains(s.Offers, session.String())
		if s.Transport != "quic" || s.Peer == "" || s.Sent == 0 || offers != (s.Number == track.From[0]) {
			t.Errorf("%+v", s)
		}
	}
	_, page := p.get("/live/")
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"]+\.(?:js|css))"`).FindAllStringSubmatch(page, -1) {
		if status, _ := p.get("/live/" + m[1]); status != 200 {
			t.Errorf("%s: %d", m[1], status)
		}
	}
	if !strings.Contains(page, "live.js") {
		t.Errorf("no page:\n%s", page)
	}
}

// TestLivePageIsForTheOperator checks that http does not serve the live page on a public address.
func TestLivePageIsForTheOperator(t *testing.T) {
	p := start(t, "--admin", "localhost:0")
	if status, _ := p.get("/live/report.json"); status != 404 {
		t.Errorf("http has the live page though admin has: %d", status)
	}
}

// TestQlog checks that --qlog-dir writes one file per connection.
func TestQlog(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "--qlog-dir", dir)
	p.dial(moqt.Handler{})
	eventually(t, "a file of events", func() bool {
		list, err := filepath.Glob(filepath.Join(dir, "*_server.sqlog"))
		if err != nil || len(list) != 1 {
			return false
		}
		info, err := os.Stat(list[0])
		return err == nil && info.Mode().Perm() == 0o640
	})
}
