package main

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/recording"
	"holocast/tools/holocast/player"
)

// identity is all of an object that a replay must keep.
type identity struct {
	track                   string
	group, subgroup, object uint64
	priority, status        uint8
	forwarding              recording.Forwarding
	contents                [32]byte
}

// recordedObjects reads the objects of a recording, in the order of their places.
func recordedObjects(t *testing.T, path string) (list []identity, info recording.Info) {
	t.Helper()
	r, err := recording.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for {
		o, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if o.EndOnly {
			continue
		}
		h := sha256.New()
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(o.Properties))))
		h.Write(o.Properties)
		h.Write(o.Payload)
		list = append(list, identity{o.Track.Name, o.Group, o.Subgroup, o.ObjectID, o.Priority, o.Status, o.Forwarding, [32]byte(h.Sum(nil))})
	}
	slices.SortFunc(list, func(a, b identity) int {
		if c := strings.Compare(a.track, b.track); c != 0 {
			return c
		}
		if a.group != b.group {
			return int(int64(a.group - b.group))
		}
		return int(int64(a.object - b.object))
	})
	return list, r.Info
}

// recordSession records a session of two cameras and four descriptions.
func recordSession(t *testing.T, port int, path string) {
	t.Helper()
	url := sessionURL(port, "demo")
	pub := publish(t, url, 2, 4)
	defer pub.stop()
	// A busy machine takes its time for a hundred objects.
	for duration := 2 * time.Second; ; duration *= 2 {
		p := start(t, "holocast", "record", url, path, "--duration", duration.String(), "--json")
		p.mustSucceed()
		var sum recorded
		p.lastLine(&sum)
		list, info := recordedObjects(t, path)
		if len(list) < 100 && duration < 16*time.Second {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if info.Truncated != nil || uint64(len(list)) != sum.Objects || info.Records != sum.Records || len(list) < 100 {
			t.Fatalf("%d objects in %d records, said %+v, truncated: %v", len(list), info.Records, sum, info.Truncated)
		}
		return
	}
}

// TestRecordLeavesStrangersOut: of what somebody publishes in the session's namespace,
// only receipts are recorded, unless all is asked for.
func TestRecordLeavesStrangersOut(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port, "--publisher-backups") // which lets strangers in
	url := sessionURL(port, "demo")
	pub := publish(t, url, 1, 1)
	target := connect.Target{URL: url}
	s, err := target.Dial(t.Context(), moqt.Handler{}, moqt.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(wire.NoError, "")
	for _, name := range []string{"graffiti", connect.ReceiptsPrefix + "somebody"} {
		p, err := s.Publish(t.Context(), moqt.TrackName{Namespace: pub.ns, Name: name}, moqt.TrackInfo{})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for group := uint64(0); p.Context().Err() == nil; group++ {
				_ = p.SendDatagram(moqt.Datagram{Group: group, Payload: []byte(name)})
				time.Sleep(20 * time.Millisecond)
			}
		}()
	}
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"catalog", "points/0/full", "receipts/somebody"}},
		{[]string{"--all"}, []string{"catalog", "graffiti", "points/0/full", "receipts/somebody"}},
	} {
		path := filepath.Join(t.TempDir(), "take.mcap")
		start(t, "holocast", append([]string{"record", url, path, "--duration", "1s"}, tt.args...)...).mustSucceed()
		list, _ := recordedObjects(t, path)
		var got []string
		for _, o := range list {
			if !slices.Contains(got, o.track) {
				got = append(got, o.track)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q recorded %q, want %q", tt.args, got, tt.want)
		}
	}
}

// again replays a recording to a recorder and returns the second recording.
func again(t *testing.T, port int, path string, args ...string) (second string, r replayed) {
	t.Helper()
	second = filepath.Join(t.TempDir(), "second.mcap")
	url := sessionURL(port, "again")
	rec := start(t, "holocast", "record", url, second, "--wait")
	rep := start(t, "holocast", append([]string{"replay", path, url, "--wait-viewer", "--json"}, args...)...)
	rep.mustSucceed()
	rec.mustSucceed()
	rep.lastLine(&r)
	return second, r
}

func TestReplayIsIdentical(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port)
	first := filepath.Join(t.TempDir(), "first.mcap")
	recordSession(t, port, first)
	second, sum := again(t, port, first)
	if sum.Unsent != 0 || sum.Truncated {
		t.Errorf("%+v", sum)
	}
	want, _ := recordedObjects(t, first)
	got, _ := recordedObjects(t, second)
	compareObjects(t, got, want)

	// A player knows that it sees a recording.
	url := sessionURL(port, "played")
	p := start(t, "holocast", "play", url, "--wait", "--json")
	start(t, "holocast", "replay", first, url, "--wait-viewer").mustSucceed()
	p.mustSucceed()
	var r struct {
		Frames    int    `json:"frames"`
		DelayFrom string `json:"delay_from"`
	}
	if p.lastLine(&r); r.Frames < 10 || r.DelayFrom != "arrival" {
		t.Errorf("%+v", r)
	}
}

func compareObjects(t *testing.T, got, want []identity) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d objects, want %d", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("object %d:\n%+v\nwant\n%+v", i, got[i], want[i])
		}
	}
}

// A recording that was cut off replays up to its last whole chunk.
func TestReplayTruncated(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port)
	first := filepath.Join(t.TempDir(), "first.mcap")
	recordSession(t, port, first)
	info, err := os.Stat(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(first, info.Size()*2/3); err != nil {
		t.Fatal(err)
	}
	want, cut := recordedObjects(t, first)
	if cut.Truncated == nil || len(want) < 10 {
		t.Fatalf("%d objects left, %v", len(want), cut.Truncated)
	}
	second, sum := again(t, port, first)
	if !sum.Truncated {
		t.Errorf("%+v", sum)
	}
	got, _ := recordedObjects(t, second)
	compareObjects(t, got, want)
	p := start(t, "holocast", "replay", first, sessionURL(port, "third"), "--speed", "100")
	p.mustSucceed()
	if said := p.Stderr.String(); !strings.Contains(said, "cut off") {
		t.Errorf("said %q", said)
	}
}

// A loop's groups go on ascending.
func TestReplayLoop(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port)
	dir := t.TempDir()
	first := filepath.Join(dir, "first.mcap")
	recordSession(t, port, first)
	url := sessionURL(port, "again")
	second := filepath.Join(dir, "second.mcap")
	rec := start(t, "holocast", "record", url, second, "--wait", "--duration", "6s")
	rep := start(t, "holocast", "replay", first, url, "--wait-viewer", "--loop", "--speed", "2")
	rec.mustSucceed()
	_ = rep.Cmd.Process.Signal(syscall.SIGINT)
	rep.mustSucceed()
	want, _ := recordedObjects(t, first)
	got, _ := recordedObjects(t, second)
	if len(got) < len(want)*3/2 {
		t.Fatalf("%d objects of a recording of %d: no loop", len(got), len(want))
	}
	seen := map[[32]byte]int{}
	for i, o := range got {
		seen[o.contents]++
		if i > 0 && got[i-1].track == o.track && got[i-1].group == o.group && got[i-1].object == o.object {
			t.Fatalf("%s %d/%d twice", o.track, o.group, o.object)
		}
	}
	for _, o := range want {
		if seen[o.contents] == 0 {
			t.Fatalf("%s %d/%d is missing", o.track, o.group, o.object)
		}
	}
}

// To a player a live replay is a camera, also in a loop: its frames are new ones, and
// their delay counts from when they were sent.
func TestReplayLive(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port)
	dir := t.TempDir()
	first, frames := filepath.Join(dir, "first.mcap"), filepath.Join(dir, "frames.csv")
	recordSession(t, port, first)
	url := sessionURL(port, "live")
	rep := start(t, "holocast", "replay", first, url, "--wait-viewer", "--live", "--loop", "--speed", "2")
	p := start(t, "holocast", "play", url, "--wait", "--duration", "3s", "--json", "--frames", frames)
	p.mustSucceed()
	_ = rep.Cmd.Process.Signal(syscall.SIGINT)
	rep.mustSucceed()
	var r player.Report
	if p.lastLine(&r); r.DelayFrom != "capture" || r.FramesDuplicate != 0 || r.PublisherRestarts != 0 || r.FramesLost > r.Frames/3 || r.FramesPartial >= r.Frames {
		t.Errorf("%+v", r)
	}
	text, err := os.ReadFile(frames)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if uint64(len(lines)-1) < r.Frames {
		t.Fatalf("%d lines of %d frames", len(lines), r.Frames)
	}
	for _, line := range lines[1:] {
		var camera, sequence, captured, arrived, shown, points, bytes int64
		if n, err := fmt.Sscanf(line, "%d,%d,%d,%d,%d,%d,%d", &camera, &sequence, &captured, &arrived, &shown, &points, &bytes); n != 7 {
			t.Fatalf("%q: %v", line, err)
		}
		// Captures are on the relay's clock, as the replay estimates it. A description comes late where the machine is busy.
		descriptions := points > 0 && points <= testWidth*testHeight && points%(testWidth*testHeight/4) == 0
		if captured > arrived+20_000 || arrived > shown || shown-captured > 5e6 || !descriptions || bytes < 100 {
			t.Fatal(line)
		}
	}
}

func TestRecordInterrupted(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port)
	url := sessionURL(port, "demo")
	publish(t, url, 1, 1)
	path := filepath.Join(t.TempDir(), "a.mcap")
	p := start(t, "holocast", "record", url, path)
	until(t, "recording", func() bool { info, err := os.Stat(path); return err == nil && info.Size() > 20_000 })
	_ = p.Cmd.Process.Signal(syscall.SIGINT)
	p.mustSucceed()
	if list, info := recordedObjects(t, path); info.Truncated != nil || len(list) == 0 {
		t.Errorf("%d objects, truncated: %v", len(list), info.Truncated)
	}
}

// A recording goes on when the relay comes back, and has no object twice.
func TestRecordRelayReturns(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	relay := startRelay(t, port)
	url := sessionURL(port, "demo")
	publish(t, url, 1, 4)
	path := filepath.Join(t.TempDir(), "a.mcap")
	p := start(t, "holocast", "record", url, path)
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	until(t, "recording", func() bool { return size() > 100_000 })
	relay.Kill()
	startRelay(t, port)
	before := size()
	until(t, "recording again", func() bool { return size() > before+3_000_000 })
	_ = p.Cmd.Process.Signal(syscall.SIGINT)
	p.mustSucceed()
	list, info := recordedObjects(t, path)
	if info.Truncated != nil {
		t.Error(info.Truncated)
	}
	for i := 1; i < len(list); i++ {
		if a, b := list[i-1], list[i]; a.track == b.track && a.group == b.group && a.object == b.object {
			t.Fatalf("%s %d/%d is there twice", a.track, a.group, a.object)
		}
	}
}

// A full disk is one error, and what is there replays.
func TestRecordDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		t.Skipf("cannot mount a small tmpfs (needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	port := freePort(t)
	startRelay(t, port)
	url := sessionURL(port, "demo")
	publish(t, url, 2, 1)
	path := filepath.Join(dir, "a.mcap")
	said := start(t, "holocast", "record", url, path).mustFail()
	if strings.Count(said, "no space left on device") != 1 || !strings.Contains(said, "can be replayed") {
		t.Errorf("said %q", said)
	}
	if list, info := recordedObjects(t, path); info.Truncated == nil || len(list) == 0 {
		t.Errorf("%d objects, truncated: %v", len(list), info.Truncated)
	}
}

func TestRecordRefused(t *testing.T) {
	port := freePort(t)
	startRelay(t, port)
	dir := t.TempDir()
	exists := filepath.Join(dir, "exists.mcap")
	if err := os.WriteFile(exists, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(dir, "none.mcap")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"no session", []string{"record", sessionURL(port, "nothing"), none}, `the relay has no session "nothing"`},
		{"file exists", []string{"record", sessionURL(port, "nothing"), exists}, "file exists"},
		{"no folder", []string{"record", sessionURL(port, "nothing"), filepath.Join(dir, "no", "a.mcap")}, "no such file or directory"},
		{"not a recording", []string{"replay", exists, sessionURL(port, "x")}, "not an MCAP file"},
		{"no file", []string{"replay", none, sessionURL(port, "x")}, "no such file or directory"},
		{"speed", []string{"replay", exists, sessionURL(port, "x"), "--speed", "-1"}, "--speed -1 is not above 0"},
		{"export of nothing", []string{"export", none, "--ply", dir}, "no such file or directory"},
		{"export to nothing", []string{"export", none}, "at least one of the flags"},
		{"colour", []string{"export", none, "--k4a", dir, "--color", "cmyk"}, `--color "cmyk": want mjpg or bgra`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if said := start(t, "holocast", tt.args...).mustFail(); !strings.Contains(said, tt.want) {
				t.Errorf("said %q, want %q", said, tt.want)
			}
		})
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("an empty recording was left")
	}
	if b, err := os.ReadFile(exists); err != nil || string(b) != "mine" {
		t.Errorf("the file that was there: %q, %v", b, err)
	}
}
