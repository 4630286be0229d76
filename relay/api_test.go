package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/programtest/contract"
	"holocast/relay/admin"
	"holocast/relay/auth/authtest"
)

// api is a relay's API, whose answers must be as its OpenAPI document promises.
type api struct {
	t        *testing.T
	base     string
	token    string
	promised *contract.Document
}

func (p *process) api(token string) *api {
	p.t.Helper()
	_, document := p.get(admin.Base + "openapi.json")
	return &api{p.t, "http://" + p.http, token, contract.Read(p.t, strings.NewReader(document))}
}

// do sends a request and decodes the answer into result unless that is nil.
func (a *api) do(method, path, body string, want int, result any) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.base+admin.Base+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != want {
		a.t.Fatalf("%s %s: %d %s, want %d", method, path, resp.StatusCode, b, want)
	}
	a.promised.Check(a.t, method, admin.Base+path, resp.StatusCode, resp.Header.Get("Content-Type"), b)
	if result != nil {
		if err := json.Unmarshal(b, result); err != nil {
			a.t.Fatal(err)
		}
	}
}

// list returns a complete list.
func list[T any](a *api, path string) []T {
	a.t.Helper()
	var p admin.Page[T]
	a.do("GET", path, "", http.StatusOK, &p)
	if p.Total != len(p.Items) || p.Next != "" {
		a.t.Fatalf("%s: %d of %d", path, len(p.Items), p.Total)
	}
	return p.Items
}

// operator runs a command of the operator and returns its output.
func (p *process) operator(args ...string) (out string, err error) {
	p.t.Helper()
	b, err := exec.Command(binary, append(args, "--listen", p.udp)...).Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = errors.New(string(failed.Stderr))
	}
	return string(b), err
}

func (p *process) mustOperate(args ...string) (out string) {
	p.t.Helper()
	out, err := p.operator(args...)
	if err != nil {
		p.t.Fatalf("relay %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// TestAPI checks that the API lists the relay, its session, tracks and viewers with who carries what to
// whom, as the OpenAPI document says.
func TestAPI(t *testing.T) {
	t.Parallel()
	web := t.TempDir()
	if err := os.WriteFile(filepath.Join(web, "index.html"), []byte("viewer"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "--web", web)
	if status, body := p.get("/"); status != http.StatusOK || body != "viewer" {
		t.Errorf("web viewer of a relay with an API: %d %q", status, body)
	}
	a := p.api("")
	tr := origin.NewTrack(points, nil, origin.Limits{})
	p.publish(tr)
	sub := subscribe(t, p.dial(moqt.Handler{}), points)
	p.dial(moqt.Handler{})
	payload := make([]byte, 1000)
	write(t, tr, 1, payload)
	expect(t, sub, 1, payload)

	var tracks []admin.Track
	eventually(t, "the track has sent the object", func() bool {
		tracks = list[admin.Track](a, "tracks")
		return len(tracks) == 1 && tracks[0].SentBytes >= 1000
	})
	track := tracks[0]
	if track.ID != points.String() || track.Session != "holocast-test" || track.Name != "points" || len(track.From) != 1 ||
		len(track.To) != 1 || track.Viewers != 1 || len(track.Upstream) != 0 || track.From[0] == track.To[0] {
		t.Fatalf("%+v", track)
	}
	viewers := list[admin.Viewer](a, "viewers")
	if len(viewers) != 3 {
		t.Fatalf("%+v", viewers)
	}
	for _, v := range viewers {
		only := []string{"holocast-test"}
		publishes, watches := slices.Equal(v.Publishes, only), slices.Equal(v.Watches, only)
		active := v.ID == track.From[0] || v.ID == track.To[0]
		if publishes != (v.ID == track.From[0]) || watches != (v.ID == track.To[0]) || (v.State == "active") != active ||
			v.Transport != "quic" || v.Peer == "" || v.SentBytes == 0 || v.Since.IsZero() || v.Relay {
			t.Errorf("%+v", v)
		}
	}
	if of := list[admin.Viewer](a, "viewers?session=holocast-test"); len(of) != 2 {
		t.Errorf("%+v", of)
	}
	if of := list[admin.Track](a, "tracks?session=holocast-other"); len(of) != 0 {
		t.Errorf("%+v", of)
	}
	sessions := list[admin.Session](a, "sessions")
	relays := list[admin.Relay](a, "relays")
	if len(relays) != 1 || !relays[0].Self || relays[0].Clients != 3 || relays[0].Published != 1 ||
		relays[0].State != "serving" {
		t.Fatalf("%+v", relays)
	}
	if len(sessions) != 1 || sessions[0].ID != "holocast-test" || !slices.Equal(sessions[0].Namespace, session) ||
		sessions[0].Relay != relays[0].ID || !slices.Equal(sessions[0].Publishers, track.From) || sessions[0].Viewers != 1 ||
		sessions[0].Tracks != 1 || sessions[0].Blocked != nil {
		t.Errorf("%+v", sessions)
	}
	a.do("POST", "viewers/"+track.To[0]+"/kick", "", http.StatusUnauthorized, nil)
}

// TestAPIToken checks that with adminToken, requests need a token, over TLS too, and that actions are
// logged with who asked for them.
func TestAPIToken(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef0123"
	file := filepath.Join(t.TempDir(), "admin.token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "--admin-token", file, "--admin", "localhost:0")
	if status, _ := p.get(admin.Base + "relays"); status != http.StatusNotFound {
		t.Errorf("http has the API though admin has: %d", status)
	}
	p.http = p.admin
	if status, _ := p.get(admin.Base + "relays"); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d", status)
	}
	p.api("wrong").do("GET", "relays", "", http.StatusUnauthorized, nil)
	viewer := p.dial(moqt.Handler{})
	a := p.api(token)
	var id string
	eventually(t, "the viewer is listed", func() bool {
		for _, v := range list[admin.Viewer](a, "viewers") {
			id = v.ID
		}
		return id != ""
	})
	a.do("POST", "viewers/"+id+"/kick", `{"reason":"the show is over"}`, http.StatusNoContent, nil)
	<-viewer.Context().Done()
	var e *moqt.SessionError
	if !errors.As(viewer.Err(), &e) || e.Code != wire.Unauthorized ||
		e.Reason != "removed by the operator: the show is over" {
		t.Errorf("%v", viewer.Err())
	}
	line := p.Line(`"admin: action"`)
	for _, want := range []string{`"action":"kick"`, `"target":"` + id + `"`, `"by":"127.0.0.1:`} {
		if !strings.Contains(line, want) {
			t.Errorf("the log lacks %s: %s", want, line)
		}
	}
	secure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	resp, err := secure.Get("https://" + p.admin + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	secure.CloseIdleConnections()
	if out := p.output(); strings.Contains(out, token) {
		t.Error("the log has the token")
	}
}

// TestOperator checks the commands that show and steer a relay, without HTTP.
func TestOperator(t *testing.T) {
	t.Parallel()
	p := start(t, "--http", "")
	tr := origin.NewTrack(points, nil, origin.Limits{})
	var set origin.Set
	set.Add(tr)
	pub := p.dial(set.Handler())
	ns, err := pub.PublishNamespace(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	viewer := p.dial(moqt.Handler{})
	sub := subscribe(t, viewer, points)
	if out := p.mustOperate("sessions"); !strings.Contains(out, "holocast-test") {
		t.Errorf("sessions:\n%s", out)
	}
	if out := p.mustOperate("relays"); !strings.Contains(out, "serving") {
		t.Errorf("relays:\n%s", out)
	}
	var viewers []admin.Viewer
	if err := json.Unmarshal([]byte(p.mustOperate("viewers", "--json")), &viewers); err != nil || len(viewers) != 2 {
		t.Fatalf("%v %+v", err, viewers)
	}
	p.mustOperate("block", "test")
	<-ns.Done()
	if _, err := sub.AcceptSubgroup(t.Context()); err == nil {
		t.Error("the subscription continues")
	}
	if out := p.mustOperate("sessions"); !strings.Contains(out, "holocast-test") || strings.Contains(out, viewers[0].ID) {
		t.Errorf("blocked sessions:\n%s", out)
	}
	if _, err := pub.PublishNamespace(t.Context(), session); err == nil || !strings.Contains(err.Error(), "blocked") {
		t.Errorf("published although blocked: %v", err)
	}
	p.mustOperate("unblock", "/holocast/test")
	if _, err := pub.PublishNamespace(t.Context(), session); err != nil {
		t.Errorf("after the block: %v", err)
	}
	for _, v := range viewers {
		if len(v.Publishes) == 0 {
			p.mustOperate("kick", v.ID, "--reason", "enough")
		}
	}
	<-viewer.Context().Done()
	for want, args := range map[string][]string{
		"no relay has this client":    {"kick", "unknown-1"},
		"ID is missing":               {"kick"},
		"the session is not blocked":  {"unblock", "test"},
		"would block everything":      {"block", "/"},
		"is in no cluster":            {"drain"},
		"no other relay":              {"move", viewers[0].ID},
		"want moqt://HOST:PORT":       {"move", viewers[0].ID, "http://x"},
		"no relay is running here at": {"viewers"},
	} {
		at := p
		if args[0] == "viewers" {
			at = &process{t: t, udp: "127.0.0.1:1"}
		}
		if out, err := at.operator(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v %s, want %s", args, err, out, want)
		}
	}
	line := p.Line(`"action":"block"`)
	if !strings.Contains(line, `"by":"user `) {
		t.Errorf("the log does not name the user: %s", line)
	}
}

// TestAPICluster checks that each of two relays lists the other and the link between them, and that
// actions at one apply to clients and sessions of the other.
func TestAPICluster(t *testing.T) {
	t.Parallel()
	relays := startCluster(t, 2)
	a, b := relays[0], relays[1]
	one, two := a.api(""), b.api("")
	publisher := a.dial(moqt.Handler{})
	tr := origin.NewTrack(points, nil, origin.Limits{})
	a.publish(tr)
	b.awaitMetric("holocast_relay_cluster_routes", 1)
	viewer := b.dial(moqt.Handler{})
	sub := subscribe(t, viewer, points)
	write(t, tr, 1, []byte("frame"))
	expect(t, sub, 1, []byte("frame"))

	self := func(api *api) admin.Relay {
		t.Helper()
		for _, r := range list[admin.Relay](api, "relays") {
			if r.Self {
				return r
			}
		}
		t.Fatal("the relay does not list itself")
		return admin.Relay{}
	}
	idA, idB := self(one).ID, self(two).ID
	for _, api := range []*api{one, two} {
		eventually(t, "the link is listed", func() bool {
			listed := list[admin.Relay](api, "relays")
			for _, r := range listed {
				if r.ID == idA && (r.Published != 1 || len(r.Links) != 0) {
					t.Fatalf("%+v", r)
				}
				if r.ID == idB && len(r.Links) == 1 && r.Links[0].From == idA && r.Links[0].TrackCount == 1 &&
					slices.Equal(r.Links[0].Tracks, []string{points.String()}) && r.Clients == 1 {
					return len(listed) == 2
				}
			}
			return false
		})
		sessions := list[admin.Session](api, "sessions")
		if len(sessions) != 1 || sessions[0].Relay != idA {
			t.Errorf("%+v", sessions)
		}
	}
	tracks := list[admin.Track](two, "tracks")
	if len(tracks) != 1 || !slices.Equal(tracks[0].Upstream, []string{idA}) || len(tracks[0].From) != 0 {
		t.Errorf("%+v", tracks)
	}
	var id string
	for _, v := range list[admin.Viewer](two, "viewers") {
		if len(v.Watches) > 0 {
			id = v.ID
		}
	}
	if out := b.mustOperate("relays"); !strings.Contains(out, idA+" (1 tracks") {
		t.Errorf("relays:\n%s", out)
	}

	a.mustOperate("kick", id)
	<-viewer.Context().Done()

	a.mustOperate("block", "test")
	eventually(t, "the other relay has the block", func() bool {
		s := list[admin.Session](two, "sessions")
		return len(s) == 1 && s[0].Blocked != nil
	})
	other := b.dial(moqt.Handler{})
	if _, err := other.PublishNamespace(within(t), session); err == nil || !strings.Contains(err.Error(), "blocked") {
		t.Errorf("published at the other relay: %v", err)
	}
	b.mustOperate("unblock", "test")
	eventually(t, "the first relay allows the session", func() bool {
		_, err := publisher.PublishNamespace(within(t), session)
		return err == nil
	})
}

// TestAPIMove checks that a client asked to move at another relay than its own loses no frame.
func TestAPIMove(t *testing.T) {
	t.Parallel()
	relays := startCluster(t, 2)
	a, b := relays[0], relays[1]
	tr := origin.NewTrack(points, nil, origin.Limits{})
	a.publish(tr)
	b.awaitMetric("holocast_relay_cluster_routes", 1)
	c := newCamera(t, tr, 1000)
	f := a.follower(t)
	f.watches(t, c)
	var id string
	for _, v := range list[admin.Viewer](a.api(""), "viewers") {
		if len(v.Watches) > 0 {
			id = v.ID
		}
	}
	to := "moqt://" + b.udp
	if out := b.mustOperate("move", id, to); !strings.HasPrefix(out, to+"#") {
		t.Errorf("moved to %s", out)
	}
	eventually(t, "the viewer is at the other relay", func() bool { return f.relay() == b.udp })
	f.watches(t, c)
	c.stop()
	last := c.written()
	eventually(t, "all frames", func() bool { return len(f.missing(last)) == 0 })
	eventually(t, "the viewer is gone", func() bool {
		_, err := a.operator("move", id, to)
		return err != nil && strings.Contains(err.Error(), "no such client")
	})
}

// TestAPIDrain checks that the API drains a relay once.
func TestAPIDrain(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef0123"
	file := filepath.Join(t.TempDir(), "admin.token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	secret := authtest.SecretFile(t)
	a, seed := startMember(t, secret, "--admin-token", file)
	b, _ := startMember(t, secret, "--cluster-join", seed)
	b.awaitMetric("holocast_relay_cluster_relays", 1)
	a.awaitMetric("holocast_relay_cluster_relays", 1)
	a.dial(moqt.Handler{})
	eventually(t, "the client is listed", func() bool { return len(list[admin.Viewer](a.api(token), "viewers")) > 0 })
	var drained admin.Drained
	api := a.api(token)
	api.do("POST", "drain", "", http.StatusAccepted, &drained)
	if drained.Clients != 1 {
		t.Errorf("%+v", drained)
	}
	if _, err := a.operator("drain"); err == nil || !strings.Contains(err.Error(), "already draining") {
		t.Errorf("a second time: %v", err)
	}
	if out := a.mustOperate("relays"); !strings.Contains(out, "draining") {
		t.Errorf("relays:\n%s", out)
	}
}

// TestBlockSurvivesUpgrade checks that the new process keeps the blocks.
func TestBlockSurvivesUpgrade(t *testing.T) {
	t.Parallel()
	p, _ := upgradable(t)
	p.mustOperate("block", "test")
	p.mustOperate("block", "other")
	p.mustOperate("unblock", "other")
	p.upgrade()
	var sessions []admin.Session
	if err := json.Unmarshal([]byte(p.mustOperate("sessions", "--json")), &sessions); err != nil {
		t.Fatal(err)
	}
	if len(sessions) != 1 || sessions[0].ID != "holocast-test" || sessions[0].Blocked == nil {
		t.Errorf("%+v", sessions)
	}
	if _, err := p.dial(moqt.Handler{}).PublishNamespace(within(t), session); err == nil {
		t.Error("published although blocked")
	}
}
