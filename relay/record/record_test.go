package record

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holocast/internal/leaktest"
	"holocast/internal/moqt"
	"holocast/internal/recording"
	"holocast/internal/recording/recordingtest"
	"holocast/relay/router"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestValidate(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  Config
		want string
	}{
		"off":         {Config{}, ""},
		"offer only":  {Config{Dir: "d"}, ""},
		"patterns":    {Config{Dir: "d", Sessions: []string{"studio/*", "demo"}}, ""},
		"no folder":   {Config{Sessions: []string{"*"}}, "record.dir"},
		"empty":       {Config{Dir: "d", Sessions: []string{""}}, "record.sessions[0]"},
		"bad pattern": {Config{Dir: "d", Sessions: []string{"a", "[a"}}, "record.sessions[1]"},
	} {
		err := tt.cfg.Validate()
		if (err == nil) != (tt.want == "") || err != nil && !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func TestMatches(t *testing.T) {
	cfg := Config{Sessions: []string{"studio/*", "demo", "lab-?"}}
	for session, want := range map[string]bool{
		"studio/a": true, "studio": false, "studio/a/b": false, "demo": true, "demo2": false, "lab-1": true, "lab-12": false,
	} {
		if got := cfg.matches(session); got != want {
			t.Errorf("%s: %v, want %v", session, got, want)
		}
	}
}

func TestFolderNames(t *testing.T) {
	for _, session := range []string{
		"studio", "studio/a", "..", ".", ".hidden", "a b", "%2F", "übung", "a\\b", "a\x00b", "a:b",
	} {
		folder, err := folderOf(session)
		if err != nil || !filepath.IsLocal(folder) || folder == "." || strings.ContainsAny(folder, "/\\\x00") {
			t.Errorf("%q: folder %q, %v", session, folder, err)
		}
		if back, ok := sessionOf(folder); !ok || back != session {
			t.Errorf("%q: folder %q is of session %q", session, folder, back)
		}
	}
	for _, session := range []string{"", strings.Repeat("a", 201), strings.Repeat("/", 70)} {
		if folder, err := folderOf(session); err == nil {
			t.Errorf("%.20q: folder %.20q", session, folder)
		}
	}
	for _, folder := range []string{"%zz", "a%2fb", ".git", "a%41"} {
		if session, ok := sessionOf(folder); ok {
			t.Errorf("folder %q is of session %q", folder, session)
		}
	}
}

// newRecorder returns a recorder of an empty directory and its router.
func newRecorder(t *testing.T, cfg Config) (*Recorder, *router.Router) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	cfg.Dir = filepath.Join(t.TempDir(), "recordings")
	r := router.New(router.Config{Log: quiet})
	rec, err := New(cfg, Host{Router: r, Grace: func() time.Duration { return time.Second }, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rec.close)
	return rec, r
}

// add adds a recording that ended age ago. Its name ends with suffix.
func add(t *testing.T, rec *Recorder, session string, age time.Duration, suffix string) (path string) {
	t.Helper()
	folder, err := folderOf(session)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(rec.dir, folder, time.Now().Add(-age).UTC().Format(timeFormat)+suffix)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(recordingtest.Write(t, []recording.Object{recordingtest.Catalog(t, "data")}))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
		t.Fatal(err)
	}
	return path
}

// offered lists the recordings that the router offers.
func offers(r *router.Router) (list []string) {
	published, _ := r.Published()
	for _, ns := range published {
		list = append(list, ns[1])
	}
	slices.Sort(list)
	return list
}

func TestRetention(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg             func(size int64) Config
		kept            int // of three: 3, 2 and 1 hours old
		tooOld, tooMany uint64
	}{
		"none":    {func(int64) Config { return Config{} }, 3, 0, 0},
		"age":     {func(int64) Config { return Config{MaxAge: 90 * time.Minute} }, 1, 2, 0},
		"bytes":   {func(size int64) Config { return Config{MaxBytes: 2*size + 1} }, 2, 0, 1},
		"both":    {func(size int64) Config { return Config{MaxAge: 150 * time.Minute, MaxBytes: size} }, 1, 1, 1},
		"nothing": {func(int64) Config { return Config{MaxBytes: 1} }, 0, 0, 3},
	} {
		t.Run(name, func(t *testing.T) {
			rec, r := newRecorder(t, Config{})
			var paths []string
			for _, age := range []time.Duration{3 * time.Hour, 2 * time.Hour, time.Hour} {
				paths = append(paths, add(t, rec, "studio", age, ".mcap"))
			}
			rec.look(time.Now())
			if got := offers(r); len(got) != 3 || !strings.HasPrefix(got[0], "recordings/studio/") {
				t.Fatalf("offered %q", got)
			}
			info, err := os.Stat(paths[0])
			if err != nil {
				t.Fatal(err)
			}
			rec.SetConfig(tt.cfg(info.Size()))
			rec.look(time.Now())
			st := rec.Stats()
			if len(st.Recordings) != tt.kept || st.TooOld != tt.tooOld || st.TooLarge != tt.tooMany {
				t.Errorf("%d kept, %d too old, %d too large", len(st.Recordings), st.TooOld, st.TooLarge)
			}
			for i, path := range paths {
				if _, err := os.Stat(path); (err == nil) != (i >= 3-tt.kept) {
					t.Errorf("file %d: %v", i, err)
				}
			}
			if st.Bytes != int64(tt.kept)*info.Size() {
				t.Errorf("%d bytes", st.Bytes)
			}
		})
	}
}

// TestLeftOver checks what happens to partial files, and that foreign files stay.
func TestLeftOver(t *testing.T) {
	rec, r := newRecorder(t, Config{})
	crashed := add(t, rec, "crashed", time.Minute, ".mcap.part")
	fresh := add(t, rec, "fresh", 0, ".mcap.part")
	written := add(t, rec, "written", time.Minute, ".mcap.part")
	f, err := os.OpenFile(written, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // read-only
	if err := lock(f); err != nil {
		t.Fatal(err)
	}
	empty := add(t, rec, "empty", time.Minute, ".mcap.part")
	if err := os.Truncate(empty, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(empty, time.Time{}, time.Now().Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(rec.dir, "crashed", "notes.mcap")
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	rec.look(time.Now())
	rec.look(time.Now())
	if got := offers(r); len(got) != 1 || !strings.HasPrefix(got[0], "recordings/crashed/") {
		t.Errorf("offered %q", got)
	}
	for path, want := range map[string]bool{
		crashed: false, strings.TrimSuffix(crashed, partial): true, fresh: true, written: true, empty: false, foreign: true,
	} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestLongName checks that a session whose name cannot name a folder does not pause the recording of others.
func TestLongName(t *testing.T) {
	rec, _ := newRecorder(t, Config{Sessions: []string{"*"}})
	var log strings.Builder
	rec.log = slog.New(slog.NewTextHandler(&log, nil))
	name := strings.Repeat("a", maxFolder+1)
	s := &session{r: rec, name: name, ns: moqt.Namespace{"holocast", name}}
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	s.run(ctx)
	if err := rec.Stats().Paused; err != nil {
		t.Errorf("recording is paused: %v", err)
	}
	if n := strings.Count(log.String(), "cannot be recorded"); n != 1 {
		t.Errorf("%d messages, want one:\n%s", n, log.String())
	}
}

// TestFreeSpace pauses below the floor with one message, and resumes above it.
func TestFreeSpace(t *testing.T) {
	rec, _ := newRecorder(t, Config{Sessions: []string{"*"}, MinFree: 1 << 30})
	var log strings.Builder
	rec.log = slog.New(slog.NewTextHandler(&log, nil))
	now := time.Now()
	check := func(free int64, after time.Duration, paused bool) {
		t.Helper()
		rec.checkSpace(rec.cfg, free, now.Add(after))
		if got := rec.Stats().Paused != nil; got != paused {
			t.Errorf("%d bytes free: paused %v, want %v", free, got, paused)
		}
		select {
		case <-rec.ready:
			if paused {
				t.Error("sessions do not wait")
			}
		default:
			if !paused {
				t.Error("sessions wait")
			}
		}
	}
	check(2<<30, 0, false)
	check(1<<20, 0, true)
	check(1<<20, 0, true)
	check(1<<30, time.Hour, true) // not enough above the floor
	check(2<<30, 0, true)         // too soon
	check(2<<30, time.Hour, false)
	check(1<<20, time.Hour, true)
	if n := strings.Count(log.String(), "recording paused"); n != 2 {
		t.Errorf("%d messages, want 2:\n%s", n, log.String())
	}
}
