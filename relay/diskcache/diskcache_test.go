package diskcache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holocast/internal/leaktest"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var (
	points = moqt.TrackName{Namespace: moqt.Namespace{"holocast", "test"}, Name: "points"}
	quiet  = slog.New(slog.DiscardHandler)
)

func open(t *testing.T, cfg Config) *Store {
	t.Helper()
	if cfg.Size == 0 {
		cfg.Size = 1 << 30
	}
	if cfg.Age == 0 {
		cfg.Age = time.Hour
	}
	s, err := Open(cfg, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// group returns a group of three objects: two in subgroups and a datagram.
func group(id uint64, text string) origin.Group {
	part := func(s string) []byte { return []byte(fmt.Sprintf("%s %d %s", text, id, s)) }
	return origin.Group{ID: id, Arrived: time.Now(), Objects: []origin.GroupObject{
		{ID: 0, Subgroup: 0, Priority: 5, Payload: [][]byte{part("a"), part("b")}},
		{ID: 2, Subgroup: 1, Priority: 6, Properties: wire.AppendKeyValues(nil, wire.KeyValue{Type: 0x40, Int: id})},
		{ID: 3, Datagram: true, Priority: 7, Payload: [][]byte{bytes.Repeat(part("c"), 1000)}},
	}}
}

// settle waits until everything queued is written.
func settle(s *Store) {
	done := make(chan struct{})
	s.queue <- job{then: func() { close(done) }}
	<-done
}

// fetched describes the entries of a response.
func fetched(t *testing.T, source origin.Source, first, last uint64, order moqt.GroupOrder) (list []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := source(ctx, moqt.Location{Group: first}, moqt.Location{Group: last}, order, time.Second)
	cancel() // bounds only the wait for the response
	if err != nil {
		return []string{err.Error()}
	}
	defer resp.Objects.Cancel()
	for {
		o, err := resp.Objects.Next()
		if err == io.EOF {
			return list
		}
		if err != nil {
			return append(list, err.Error())
		}
		if o.Range != wire.RangeNone {
			list = append(list, fmt.Sprintf("unknown to %d", o.Group))
			continue
		}
		b, err := resp.Objects.ReadPayload(nil, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if o.Object == 0 {
			list = append(list, string(b))
		}
	}
}

// whole checks all of a group's fields.
func whole(t *testing.T, source origin.Source, want origin.Group) {
	t.Helper()
	at := moqt.Location{Group: want.ID}
	resp, err := source(t.Context(), at, at, wire.Ascending, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Objects.Cancel()
	for _, w := range want.Objects {
		o, err := resp.Objects.Next()
		if err != nil {
			t.Fatal(err)
		}
		b, err := resp.Objects.ReadPayload(nil, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if o.Object != w.ID || o.Subgroup != w.Subgroup || o.Datagram != w.Datagram || o.Priority != w.Priority ||
			!bytes.Equal(o.Properties, w.Properties) || !bytes.Equal(b, bytes.Join(w.Payload, nil)) {
			t.Errorf("object %+v of %d bytes, want %+v", o, len(b), w)
		}
	}
	if _, err := resp.Objects.Next(); err != io.EOF {
		t.Errorf("after the last object: %v", err)
	}
}

func largest(group uint64) *moqt.Location { return &moqt.Location{Group: group} }

func alone(t *Track) origin.Source { return t.Source(nil, -1, nil) }

func TestFetch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	s := open(t, Config{Dir: dir})
	tr := s.Track(points, "p", false, nil)
	for _, id := range []uint64{10, 11, 12, 15, 16, 20} {
		tr.Put(group(id, "x"))
	}
	tr.Put(group(11, "again"))
	settle(s)
	whole(t, alone(tr), group(12, "x"))
	asked := []string{}
	upstream := func(_ context.Context, start, end moqt.Location, order moqt.GroupOrder, _ time.Duration,
	) (*origin.Response, error) {
		asked = append(asked, fmt.Sprint(start.Group, "-", end.Group))
		if start.Group == 17 {
			return nil, errors.New("gone")
		}
		other := s.Track(moqt.TrackName{Namespace: points.Namespace, Name: fmt.Sprint(start.Group)}, "", true, nil)
		for id := start.Group; id <= end.Group; id++ {
			other.Put(group(id, "up"))
		}
		settle(s)
		return alone(other)(t.Context(), start, end, order, time.Second)
	}
	for name, tt := range map[string]struct {
		source      origin.Source
		first, last uint64
		order       moqt.GroupOrder
		want, asked string
	}{
		"all there": {alone(tr), 10, 12, wire.Ascending, "x 10 ax 10 b,x 11 ax 11 b,x 12 ax 12 b", ""},
		"backwards": {alone(tr), 10, 12, wire.Descending, "x 12 ax 12 b,x 11 ax 11 b,x 10 ax 10 b", ""},
		"alone": {
			alone(tr), 8, 22, wire.Ascending, "unknown to 9,x 10 ax 10 b,x 11 ax 11 b,x 12 ax 12 b,unknown to 14," +
				"x 15 ax 15 b,x 16 ax 16 b,unknown to 19,x 20 ax 20 b,unknown to 22", "",
		},
		"alone, backwards": {alone(tr), 15, 22, wire.Descending, "unknown to 21,x 20 ax 20 b,unknown to 17,x 16 ax 16 b," +
			"x 15 ax 15 b", ""},
		"with upstream": {
			tr.Source(upstream, -1, nil), 12, 20, wire.Ascending, "x 12 ax 12 b,up 13 aup 13 b,up 14 aup 14 b," +
				"x 15 ax 15 b,x 16 ax 16 b,unknown to 19,x 20 ax 20 b", "13-14,17-19",
		},
		"nothing there": {tr.Source(upstream, -1, nil), 30, 31, wire.Ascending, "up 30 aup 30 b,up 31 aup 31 b", "30-31"},
		"too old":       {tr.Source(nil, 0, nil), 10, 11, wire.Ascending, "unknown to 11", ""},
		"no cache":      {(*Track)(nil).Source(upstream, -1, nil), 40, 40, wire.Ascending, "up 40 aup 40 b", "40-40"},
	} {
		asked = nil
		if got := strings.Join(fetched(t, tt.source, tt.first, tt.last, tt.order), ","); got != tt.want {
			t.Errorf("%s: %s\nwant %s", name, got, tt.want)
		}
		if got := strings.Join(asked, ","); got != tt.asked {
			t.Errorf("%s: asked for %q, want %q", name, got, tt.asked)
		}
	}
	if err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v, %v", path, info.Mode(), err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if n := len(s.readers); n != 0 {
		t.Errorf("%d readers left", n)
	}
}

// TestRestart checks who gets the groups of an earlier process.
func TestRestart(t *testing.T) {
	for name, tt := range map[string]struct {
		publisher string
		fresh     bool
		largest   *moqt.Location
		want      string
	}{
		"the same":            {"p", false, largest(12), "x 10 ax 10 b,x 11 ax 11 b"},
		"another publisher":   {"q", false, largest(12), "unknown to 11"},
		"restarted":           {"p", true, largest(12), "unknown to 11"},
		"lower group numbers": {"p", false, largest(3), "unknown to 11"},
		"nothing published":   {"p", false, nil, "unknown to 11"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, Config{Dir: dir})
			tr := s.Track(points, "p", false, nil)
			tr.Put(group(10, "x"))
			tr.Put(group(11, "x"))
			s.Close()
			next := open(t, Config{Dir: dir})
			again := next.Track(points, tt.publisher, tt.fresh, tt.largest)
			if got := strings.Join(fetched(t, alone(again), 10, 11, wire.Ascending), ","); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			again.Put(group(10, "new"))
			settle(next)
			want := "new 10 anew 10 b"
			if tt.want != "unknown to 11" {
				want = "x 10 ax 10 b" // the first one stays
			}
			if got := strings.Join(fetched(t, alone(again), 10, 10, wire.Ascending), ","); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// TestTwoProcesses checks that a process leaves the content of one that runs alone.
func TestTwoProcesses(t *testing.T) {
	dir := t.TempDir()
	a := open(t, Config{Dir: dir})
	ta := a.Track(points, "p", false, nil)
	ta.Put(group(1, "a"))
	settle(a)
	b := open(t, Config{Dir: dir})
	tb := b.Track(points, "p", false, largest(9))
	tb.Put(group(2, "b"))
	settle(b)
	if got := fetched(t, alone(ta), 1, 2, wire.Ascending); !slices.Equal(got, []string{"a 1 aa 1 b", "unknown to 2"}) {
		t.Errorf("a has %q", got)
	}
	a.Close()
	b.takeOver()
	if got := fetched(t, alone(tb), 1, 2, wire.Ascending); !slices.Equal(got, []string{"unknown to 1", "b 2 ab 2 b"}) {
		t.Errorf("b has %q", got)
	}
	b.Close()
	c := open(t, Config{Dir: dir})
	if n := len(files(t, dir)); n != 2 || c.Stats().Groups != 1 { // c's lock and b's segment
		t.Errorf("%d files, %d groups", n, c.Stats().Groups)
	}
}

// TestEarlierGroups checks that groups that arrived before their track's publisher are not kept.
func TestEarlierGroups(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	before := group(1, "old")
	tr := s.Track(points, "p", false, nil)
	tr.Put(before)
	again := s.Track(points, "p", false, largest(3))
	again.Put(group(2, "p"))
	settle(s)
	if got := fetched(t, alone(again), 1, 2, wire.Ascending); !slices.Equal(got, []string{"unknown to 1", "p 2 ap 2 b"}) {
		t.Errorf("%q", got)
	}
}

// TestDamageOfRemoved checks that damage found in a segment removed meanwhile is not subtracted from the groups again.
func TestDamageOfRemoved(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	tr := s.Track(points, "p", false, nil)
	tr.Put(group(1, "x"))
	settle(s)
	resp, err := alone(tr)(t.Context(), moqt.Location{Group: 1}, moqt.Location{Group: 1}, wire.Ascending, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Objects.Cancel()
	segment := tr.segments[0]
	if _, err := segment.file.WriteAt([]byte("damage"), segment.entries[0].offset+recordHead); err != nil {
		t.Fatal(err)
	}
	s.Track(points, "q", false, nil) // another publisher, which removes the groups
	if o, err := resp.Objects.Next(); err != nil || o.Range != wire.RangeUnknown {
		t.Errorf("%+v %v, want an unknown group", o, err)
	}
	if st := s.Stats(); st.Groups != 0 || st.Damaged != 1 {
		t.Errorf("%+v", st)
	}
}

// TestForeignFolder checks that files of others in the directory stay.
func TestForeignFolder(t *testing.T) {
	dir := t.TempDir()
	foreign := filepath.Join(dir, "relay-notes", "00000000000000000001.segment")
	if err := os.MkdirAll(filepath.Dir(foreign), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(foreign, []byte("notes"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, Config{Dir: dir})
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}
}

func files(t *testing.T, dir string) (list []string) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestDamage damages a segment between two processes, at each of its bytes and by truncation. Nothing but the
// original objects may be served.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	tr := s.Track(points, "p", false, nil)
	for id := uint64(1); id <= 3; id++ {
		g := group(id, "x")
		g.Objects[2].Payload = nil
		tr.Put(g)
	}
	s.Close()
	var path string
	for _, f := range files(t, dir) {
		if strings.HasSuffix(f, suffix) {
			path = f
		}
	}
	original, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, b []byte) {
		t.Helper()
		dir := t.TempDir()
		folder := filepath.Join(dir, "relay-1")
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, lockName), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(path)), b, 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, Config{Dir: dir})
		defer s.Close()
		tr := s.Track(points, "p", false, largest(9))
		intact := 0
		for _, got := range fetched(t, alone(tr), 1, 3, wire.Ascending) {
			switch got {
			case "x 1 ax 1 b", "x 2 ax 2 b", "x 3 ax 3 b":
				intact++
			case "unknown to 1", "unknown to 2", "unknown to 3":
			default:
				t.Errorf("%s: served %q", what, got)
			}
		}
		if intact == 3 && s.Stats().Damaged == 0 {
			t.Errorf("%s: not noticed", what)
		}
	}
	for i := 0; i < len(original); i += 3 {
		b := bytes.Clone(original)
		b[i] ^= 0x41
		check(fmt.Sprint("byte ", i), b)
	}
	for i := 1; i < len(original); i += 31 {
		check(fmt.Sprint("truncated to ", i), original[:i])
	}
}

func TestRetention(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir(), Size: 16 * 10_000, Age: time.Hour})
	tr := s.Track(points, "p", false, nil)
	big := func(id uint64, age time.Duration) origin.Group {
		return origin.Group{ID: id, Arrived: time.Now().Add(-age), Objects: []origin.GroupObject{
			{Payload: [][]byte{make([]byte, 9000)}},
		}}
	}
	for id := range uint64(40) {
		tr.Put(big(id, 0))
	}
	settle(s)
	s.sweep(time.Now())
	s.purge()
	st := s.Stats()
	if st.Bytes > 16*10_000 || st.Groups < 10 || st.Groups > 16 {
		t.Errorf("%d groups of %d bytes", st.Groups, st.Bytes)
	}
	if got := fetched(t, alone(tr), 39, 39, wire.Ascending); len(got) != 1 || strings.HasPrefix(got[0], "unknown") {
		t.Error("the newest group is gone")
	}
	s.sweep(time.Now().Add(2 * time.Hour))
	s.purge()
	if st := s.Stats(); st.Bytes != 0 || st.Groups != 0 {
		t.Errorf("%d groups of %d bytes are left", st.Groups, st.Bytes)
	}
	if list := files(t, s.root); len(list) != 1 { // the lock
		t.Errorf("files %q", list)
	}
	tr.Close()
	s.sweep(time.Now())
	if n := len(s.tracks); n != 0 {
		t.Errorf("%d tracks are left", n)
	}
}

// TestCloseWhilePutting checks that groups put during Close are written whole or not at all.
func TestCloseWhilePutting(t *testing.T) {
	dir := t.TempDir()
	for range 20 {
		s := open(t, Config{Dir: dir})
		tr := s.Track(points, "p", true, nil)
		ctx, stop := context.WithCancel(t.Context())
		var putting sync.WaitGroup
		putting.Go(func() {
			for id := uint64(1); ctx.Err() == nil; id++ {
				tr.Put(group(id, "x"))
			}
		})
		for s.Stats().Groups < 10 {
			time.Sleep(time.Millisecond)
		}
		s.Close()
		stop()
		putting.Wait()
		if st := s.Stats(); st.Damaged != 0 || s.failedWrites.Load() != 0 {
			t.Fatalf("%d damaged, %d failed writes", st.Damaged, s.failedWrites.Load())
		}
	}
}

// TestQueue checks that Put drops groups when the writer is behind, and large ones, without blocking.
func TestQueue(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	tr := s.Track(points, "p", false, nil)
	hold, held := make(chan struct{}), make(chan struct{})
	s.queue <- job{then: func() { close(held); <-hold }}
	<-held
	payload := [][]byte{make([]byte, 4<<20)}
	for id := range uint64(20) {
		tr.Put(origin.Group{ID: id, Arrived: time.Now(), Objects: []origin.GroupObject{{Payload: payload}}})
	}
	close(hold)
	settle(s)
	if st := s.Stats(); st.Groups != 7 || st.Dropped != 13 || s.queued.Load() != 0 {
		t.Errorf("%d groups, %d dropped, %d bytes queued", st.Groups, st.Dropped, s.queued.Load())
	}
	large := [][]byte{make([]byte, maxRecord)}
	tr.Put(origin.Group{ID: 99, Arrived: time.Now(), Objects: []origin.GroupObject{{Payload: large}}})
	if st := s.Stats(); st.Dropped != 14 {
		t.Errorf("%d dropped", st.Dropped)
	}
}

// FuzzSegment checks that no bytes make the parser panic or read beyond them.
func FuzzSegment(f *testing.F) {
	b := appendFileHead(nil, identityOf(points, "p"))
	for id := range uint64(3) {
		g := group(id, "x")
		g.Objects[2].Payload = nil
		b = appendRecord(b, &g)
	}
	f.Add(b)
	f.Add(b[:len(b)-5])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		_, list, end, err := readSegment(r, int64(len(b)))
		if end > int64(len(b)) || err == nil && end != int64(len(b)) {
			t.Fatalf("end %d of %d, %v", end, len(b), err)
		}
		for _, e := range list {
			objects, err := readGroup(r, e)
			if err != nil {
				continue
			}
			for _, o := range objects {
				if len(o.properties)+len(o.payload) > len(b) {
					t.Fatal("larger than the file")
				}
			}
		}
		_, _ = parseGroup(b) // without its checksum
	})
}

// BenchmarkWrite writes groups of 200 kB.
func BenchmarkWrite(b *testing.B) {
	s, err := Open(Config{Dir: b.TempDir(), Size: 256 << 20, Age: time.Hour}, quiet)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	tr := s.Track(points, "p", false, nil)
	payload := make([]byte, 50_000)
	b.SetBytes(200_000)
	var record []byte
	for id := uint64(0); b.Loop(); id++ {
		g := origin.Group{ID: id, Arrived: time.Now()}
		for i := range uint64(4) {
			g.Objects = append(g.Objects, origin.GroupObject{ID: i, Subgroup: i, Payload: [][]byte{payload}})
		}
		record = appendRecord(record[:0], &g)
		if err := s.write(tr, &g, record); err != nil {
			b.Fatal(err)
		}
	}
}
