package admin

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/programtest/contract"
	"holocast/internal/recording"
	"holocast/internal/recording/recordingtest"
	"holocast/internal/sessiontest"
	"holocast/relay/record"
	"holocast/relay/router"
)

func newAPI(t *testing.T, cfg Config) *API {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	cfg.Router = router.New(router.Config{Log: cfg.Log})
	if cfg.Drain == nil {
		cfg.Drain = func() (int, error) { return 0, fmt.Errorf("the relay is in no cluster") }
	}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// request is a request of a test and its expected answer.
type request struct {
	method, path, body string
	status             int
	says               string // in the answer
}

func (r request) do(h http.Handler) *httptest.ResponseRecorder {
	req := httptest.NewRequest(r.method, "http://localhost"+r.path, strings.NewReader(r.body))
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return rec
}

// TestAnswers checks that answers have the status and form that the OpenAPI document promises, for
// hostile requests too.
func TestAnswers(t *testing.T) {
	a := newAPI(t, Config{Version: "test"})
	document := request{method: "GET", path: Base + "openapi.json"}.do(a)
	promised := contract.Read(t, document.Body)
	long := strings.Repeat("a", 100_000)
	for name, r := range map[string]request{
		"relays":               {"GET", "relays", "", 200, `"self":true`},
		"sessions":             {"GET", "sessions", "", 200, `"total":`},
		"tracks":               {"GET", "tracks?session=holocast-studio&limit=1000", "", 200, `{"items":[],"total":0}`},
		"viewers":              {"GET", "viewers?after=1-2", "", 200, `{"items":[],"total":0}`},
		"recordings":           {"GET", "recordings", "", 200, `"enabled":false`},
		"no items":             {"GET", "viewers?limit=0", "", 422, "expected number >= 1"},
		"too many items":       {"GET", "viewers?limit=1001", "", 422, "expected number <= 1000"},
		"no number":            {"GET", "viewers?limit=x", "", 422, "invalid integer"},
		"unknown parameter":    {"GET", "viewers?limt=5", "", 422, "unknown query parameter"},
		"long cursor":          {"GET", "viewers?after=" + long, "", 422, "expected length"},
		"unknown viewer":       {"POST", "viewers/12345678-1/kick", "", 404, "no relay has this client"},
		"viewer of the past":   {"POST", "viewers/" + a.viewerID(7) + "/kick", "{}", 404, "no such client"},
		"no ID":                {"POST", "viewers/%00%ff/kick", "{}", 404, "no relay has this client"},
		"long ID":              {"POST", "viewers/" + long + "/kick", "{}", 422, "expected length"},
		"dots":                 {"POST", "viewers/..%2f..%2fdrain/kick", "{}", 404, "no relay has this client"},
		"body of another form": {"POST", "viewers/12345678-1/kick", `["reason"]`, 422, "validation failed"},
		"unknown field":        {"POST", "viewers/12345678-1/kick", `{"raeson":"x"}`, 422, "unexpected property"},
		"no JSON":              {"POST", "viewers/12345678-1/kick", `{"reason"`, 400, ""},
		"long":                 {"POST", "viewers/12345678-1/kick", `{"reason":"` + long[:300] + `"}`, 422, "expected"},
		"huge body":            {"POST", "viewers/12345678-1/kick", `{"reason":"` + long + `"}`, 413, ""},
		"move to nowhere":      {"POST", "viewers/12345678-1/move", `{}`, 409, "no other relay"},
		"move to a page":       {"POST", "viewers/12345678-1/move", `{"url":"data:,x"}`, 422, "want moqt://"},
		"move with a user":     {"POST", "viewers/12345678-1/move", `{"url":"moqt://a:b@c:1"}`, 422, "want moqt://"},
		"move of nobody":       {"POST", "viewers/12345678-1/move", `{"url":"moqt://a:1"}`, 404, "no relay has this client"},
		"block":                {"POST", "sessions/holocast-blocked/block", "", 200, `"id":"holocast-blocked"`},
		"block of a bad name":  {"POST", "sessions/holo..cast/block", "", 422, "not the ID of a session"},
		"block of a long name": {"POST", "sessions/" + long[:300] + "/block", "", 422, "expected length"},
		"block with many fields": {
			"POST", "sessions/" + strings.Repeat("a-", 100) + "a/block", "", 422, "not the ID of a session",
		},
		"unblock of no block":  {"DELETE", "sessions/holocast-free/block", "", 404, "not blocked"},
		"drain":                {"POST", "drain", "", 409, "in no cluster"},
		"unknown resource":     {"GET", "secrets", "", 404, "openapi.json lists all"},
		"another method":       {"PUT", "drain", "", 404, "openapi.json lists all"},
		"parent of the API":    {"GET", "../../metrics", "", 307, ""},
		"resource with a path": {"GET", "relays/x", "", 404, "openapi.json lists all"},
	} {
		t.Run(name, func(t *testing.T) {
			path := r.path
			r.path = Base + r.path
			answer := r.do(a)
			body := answer.Body.Bytes()
			if answer.Code != r.status || !strings.Contains(string(body), r.says) {
				t.Fatalf("%d %s, want %d and %q", answer.Code, body, r.status, r.says)
			}
			if len(body) > 5000 && len(r.body) < 5000 && len(path) < 5000 {
				t.Errorf("an answer of %d bytes", len(body))
			}
			if r.status != 307 {
				promised.Check(t, r.method, r.path, answer.Code, answer.Header().Get("Content-Type"), body)
			}
		})
	}
	if blocks := a.Blocks(); len(blocks) != 1 || blocks[0].Namespace != "holocast-blocked" {
		t.Errorf("blocks %v", blocks)
	}
}

// TestAccess checks who may read and act, with a file of tokens and without.
func TestAccess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	const one, two = "0123456789abcdef0123", "0123456789abcdef4567"
	if err := os.WriteFile(file, []byte("# operators\n"+one+"\n\n "+two+" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const here, there = "127.0.0.1:5000", "192.0.2.7:5000"
	foreign, own := [2]string{"Origin", "https://evil.example"}, [2]string{"Origin", "http://localhost"}
	crossSite := [2]string{"Sec-Fetch-Site", "cross-site"}
	for name, c := range map[string]struct {
		file, from, method, token string
		tls                       bool
		header                    [2]string
		want                      int
	}{
		"read here":                     {from: here, want: 200},
		"read here, IPv6":               {from: "[::1]:5000", want: 200},
		"read elsewhere":                {from: there, want: 401},
		"read through a proxy here":     {from: here, header: [2]string{"X-Forwarded-For", "192.0.2.7"}, want: 401},
		"act here":                      {from: here, method: "POST", want: 401},
		"act with no file":              {from: there, method: "POST", token: one, tls: true, want: 401},
		"read without a token":          {file: file, from: here, want: 401},
		"read with a token":             {file: file, from: here, token: one, want: 200},
		"act with the second token":     {file: file, from: here, method: "POST", token: two, want: 200},
		"act with a wrong token":        {file: file, from: here, method: "POST", token: one[1:] + "4", want: 401},
		"act with a part of a token":    {file: file, from: here, method: "POST", token: one[:19], want: 401},
		"act with a comment":            {file: file, from: here, method: "POST", token: "# operators", want: 401},
		"act with an empty token":       {file: file, from: here, method: "POST", token: " ", want: 401},
		"act with a long token":         {file: file, from: here, token: strings.Repeat("a", 8000), want: 401},
		"act from elsewhere":            {file: file, from: there, method: "POST", token: one, tls: true, want: 200},
		"act from elsewhere, no TLS":    {file: file, from: there, method: "POST", token: one, want: 403},
		"act from an unknown place":     {file: file, from: "@", method: "POST", token: one, want: 403},
		"a page of another site acts":   {file: file, from: here, method: "POST", token: one, header: foreign, want: 403},
		"a page of another site, fetch": {file: file, from: here, method: "DELETE", token: one, header: crossSite, want: 403},
		"the relay's own page acts":     {file: file, from: here, method: "POST", token: one, header: own, want: 200},
		"basic authentication":          {file: file, from: here, header: [2]string{"Authorization", "Basic " + one}, want: 401},
	} {
		t.Run(name, func(t *testing.T) {
			access, err := NewAccess(c.file, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			req := httptest.NewRequest(cmp.Or(c.method, "GET"), "http://localhost"+Base+"relays", nil)
			req.RemoteAddr = c.from
			if c.tls {
				req.TLS = &tls.ConnectionState{}
			}
			if c.token != "" {
				req.Header.Set("Authorization", "Bearer "+c.token)
			}
			if c.header[0] != "" {
				req.Header.Set(c.header[0], c.header[1])
			}
			rec := httptest.NewRecorder()
			access.Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(rec, req)
			if rec.Code != c.want {
				t.Errorf("%d %s, want %d", rec.Code, rec.Body, c.want)
			}
			if rec.Code == 401 && rec.Header().Get("WWW-Authenticate") == "" {
				t.Error("no WWW-Authenticate")
			}
		})
	}
}

// TestTokenFile checks that tokens can be changed, and that bad files are refused at the start and ignored
// later.
func TestTokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]string{"# none\n": "has no token", "short\n": "at least 20 characters"} {
		put(text)
		if _, err := NewAccess(file, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := NewAccess(file+".none", nil); err == nil {
		t.Error("a missing file is accepted")
	}
	first, second := strings.Repeat("a", 20), strings.Repeat("b", 20)
	put(first)
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	want := "adminToken: " + file + " has mode 0644"
	if _, err := NewAccess(file, nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	put(first)
	a, err := NewAccess(file, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if !a.knows(first) || a.knows(second) {
		t.Error("the first token is not valid, or the second one is")
	}
	put("short")
	if !a.knows(first) {
		t.Error("a bad file ended the earlier tokens")
	}
	put(second)
	if a.knows(first) || !a.knows(second) {
		t.Error("the changed file is not used")
	}
}

// TestGuessing checks that an address may try ten tokens a minute, which others do not notice.
func TestGuessing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	token := strings.Repeat("a", 20)
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	access, err := NewAccess(file, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	try := func(from, token string) int {
		req := httptest.NewRequest("GET", "http://localhost"+Base+"relays", nil)
		req.RemoteAddr, req.TLS = from, &tls.ConnectionState{}
		req.Header.Set("Authorization", "Bearer "+token)
		status, _ := access.check(req)
		return status
	}
	for i := range perMinute {
		from := fmt.Sprintf("[2001:db8::%d]:%d", i, 1000+i)
		if got := try(from, "wrong"); got != 401 {
			t.Errorf("guess %d: %d", i, got)
		}
	}
	if got := try("[2001:db8::ffff]:1", token); got != 429 {
		t.Errorf("after %d guesses: %d", perMinute, got)
	}
	if got := try("[2001:db8:0:1::1]:1", token); got != 200 {
		t.Errorf("another network: %d", got)
	}
	access.mu.Lock()
	access.minute = access.minute.Add(-time.Minute)
	access.mu.Unlock()
	if got := try("[2001:db8::1]:1", token); got != 200 {
		t.Errorf("a minute later: %d", got)
	}
}

// TestPages checks that pages are complete and in order, also if an item ends between two of them.
func TestPages(t *testing.T) {
	a := newAPI(t, Config{})
	var list []Viewer
	for n := range uint64(25) {
		list = append(list, Viewer{ID: a.viewerID(n + 1)})
	}
	var got []string
	in := &Paging{Limit: 4}
	for {
		p := page(list, in, func(v Viewer) string { return v.ID }, a.older).Body
		for _, v := range p.Items {
			got = append(got, v.ID)
		}
		if in.After = p.Next; p.Next == "" {
			break
		}
		if in.After == a.viewerID(8) { // which ends
			list = slices.DeleteFunc(list, func(v Viewer) bool { return v.ID == in.After })
		}
	}
	for n := range 25 {
		if want := a.process + "-" + strconv.Itoa(n+1); got[n] != want {
			t.Fatalf("item %d is %s, want %s", n, got[n], want)
		}
	}
	in.After = "other-1"
	if p := page(list, in, func(v Viewer) string { return v.ID }, a.older).Body; len(p.Items) > 0 {
		t.Errorf("after an unknown ID: %v", p)
	}
}

// TestRecordings checks that the list of recordings is as documented, and complete in pages.
func TestRecordings(t *testing.T) {
	dir, quiet := t.TempDir(), slog.New(slog.DiscardHandler)
	file, err := os.ReadFile(recordingtest.Write(t, []recording.Object{recordingtest.Catalog(t, "data")}))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, session := range []string{"studio", "demo", "stage/left"} {
		folder := filepath.Join(dir, url.PathEscape(session))
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, day := range []string{"01", "02"} {
			at := "2026-11-" + day + "T12-00-00Z"
			if err := os.WriteFile(filepath.Join(folder, at+".mcap"), file, 0o600); err != nil {
				t.Fatal(err)
			}
			want = append(want, "recordings/"+session+"/"+at)
		}
	}
	slices.Sort(want)
	r := router.New(router.Config{Log: quiet})
	rec, err := record.New(record.Config{Dir: dir}, record.Host{Router: r, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() { stop(); running.Wait() })
	running.Go(func() { rec.Run(ctx) })
	sessiontest.Until(t, "the recordings are known", func() bool { return len(rec.Stats().Recordings) == len(want) })

	a := newAPI(t, Config{Recorder: rec})
	promised := contract.Read(t, request{method: "GET", path: Base + "openapi.json"}.do(a).Body)
	var got []string
	for after := ""; ; {
		path := Base + "recordings?limit=2&after=" + after
		answer := request{method: "GET", path: path}.do(a)
		promised.Check(t, "GET", path, answer.Code, answer.Header().Get("Content-Type"), answer.Body.Bytes())
		var list Recordings
		if err := json.Unmarshal(answer.Body.Bytes(), &list); err != nil {
			t.Fatal(err)
		}
		for _, one := range list.Items {
			got = append(got, one.Name)
			if one.Bytes != int64(len(file)) || one.Ended.IsZero() {
				t.Errorf("%+v", one)
			}
		}
		if !list.Enabled || list.Total != len(want) || list.Bytes != int64(len(want)*len(file)) || list.Free <= 0 ||
			len(list.Recording) != 0 || list.Paused != "" {
			t.Errorf("%+v", list)
		}
		if after = list.Next; after == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("recordings %q, want %q", got, want)
	}
}

// TestBlocks checks that the newest of several blocks of a session counts, in any order of arrival, and
// that their number is bounded.
func TestBlocks(t *testing.T) {
	at := time.Now().UTC().Add(-time.Hour)
	states := []Block{
		{Namespace: "a", Since: at},
		{Namespace: "a", Since: at.Add(time.Second), Ended: true},
		{Namespace: "a", Since: at.Add(2 * time.Second)},
	}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		a := newAPI(t, Config{})
		for _, i := range order {
			a.merge(states[i : i+1])
		}
		if b, blocked := a.blockOf("a"); !blocked || b != states[2] {
			t.Errorf("order %v: %v", order, b)
		}
		if !a.block(moqt.Namespace{"a"}, true) {
			t.Error("the block does not end")
		}
		if _, blocked := a.blockOf("a"); blocked {
			t.Errorf("order %v: still blocked", order)
		}
	}
	a := newAPI(t, Config{Blocks: []Block{
		{Namespace: "ahead", Since: time.Now().Add(time.Hour)},
		{Namespace: "holo..cast"},
		{Namespace: ""},
		{Namespace: "ended", Since: time.Now().Add(-2 * forgetAfter), Ended: true},
	}})
	a.block(moqt.Namespace{"ahead"}, true)
	if _, blocked := a.blockOf("ahead"); blocked || len(a.Blocks()) != 1 {
		t.Errorf("%v", a.Blocks())
	}
	var most []Block
	for i := range maxBlocks - 10 {
		most = append(most, Block{Namespace: "many-" + strconv.Itoa(i), Since: at})
	}
	a.merge(most)
	for i := maxBlocks - 10; i < maxBlocks+10; i++ {
		if fits := a.block(moqt.Namespace{"many", strconv.Itoa(i)}, false); fits != (i < maxBlocks-1) {
			t.Fatalf("block %d: %v", i, fits)
		}
	}
}

// TestBulletins checks that hostile bulletins and questions of members are bounded or ignored.
func TestBulletins(t *testing.T) {
	a := newAPI(t, Config{})
	board := a.Board()
	for _, text := range []string{"", "null", "[]", `{"links":5}`, "{", `{"links":null,"blocks":[{"namespace":""}]}`} {
		board.Receive("stranger", []byte(text))
		if got := board.Answer([]byte(text)); got != nil {
			t.Errorf("%q is answered with %q", text, got)
		}
	}
	if len(a.heard)+len(a.Blocks()) > 0 {
		t.Error("a relay that is no member is heard")
	}
	var log strings.Builder
	a.Log = slog.New(slog.NewTextHandler(&log, nil))
	if got := board.Answer([]byte(`{"kick":"` + a.viewerID(1) + `"}`)); string(got) != router.ErrNoClient.Error() {
		t.Errorf("%q", got)
	}
	if text := log.String(); !strings.Contains(text, "admin: action refused") || !strings.Contains(text, a.viewerID(1)) {
		t.Errorf("the log of a question that fails: %s", text)
	}
	var b bulletin
	if err := json.Unmarshal(board.Bulletin(), &b); err != nil || b.Links == nil {
		t.Errorf("%v %v", b, err)
	}
	var many []Block
	for i := range maxBlocks {
		many = append(many, Block{Namespace: strings.Repeat("a", maxBlockID-6) + "-" + strconv.Itoa(i), Since: time.Now()})
	}
	a.merge(many)
	if n := len(board.Bulletin()); n < 256*maxBlocks || n > 400<<10 { // of 512 KiB; the rest is for links
		t.Errorf("a bulletin of %d bytes", n)
	}
	if got := a.ask(context.Background(), question{Kick: "x-1"}); got != "" {
		t.Errorf("without a cluster, the answer is %q", got)
	}
}
