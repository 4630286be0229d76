package main

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/pointcloud"
	"holocast/internal/recording"
)

// identity holds the fields of an object that a replay must preserve.
type identity struct {
	track                   string
	group, subgroup, object uint64
	priority, status        uint8
	forwarding              recording.Forwarding
	contents                [32]byte
}

// recordedObjects reads the objects of a recording, sorted by track and location.
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
		list = append(
			list,
			identity{o.Track.Name, o.Group, o.Subgroup, o.ObjectID, o.Priority, o.Status, o.Forwarding, contents(o)},
		)
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

// contents returns the hash of an object's properties and payload.
func contents(o recording.Object) [32]byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(o.Properties)))
	return sha256.Sum256(append(append(b, o.Properties...), o.Payload...))
}

// recordedContents returns the contents of the objects in a recording in progress.
func recordedContents(path string) map[[32]byte]bool {
	all := map[[32]byte]bool{}
	r, err := recording.Open(path)
	if err != nil {
		return all
	}
	defer func() { _ = r.Close() }()
	for o, err := r.Next(); err == nil; o, err = r.Next() {
		all[contents(o)] = true
	}
	return all
}

// recordedTracks counts the objects per track of a recording in progress.
func recordedTracks(path string) map[string]int {
	n := map[string]int{}
	r, err := recording.Open(path)
	if err != nil {
		return n
	}
	defer func() { _ = r.Close() }()
	for {
		o, err := r.Next()
		if err != nil {
			return n
		}
		if !o.EndOnly {
			n[o.Track.Name]++
		}
	}
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// The recording that writeRecording writes has two seconds of frames at 30 frames per second.
const (
	recordedCameras      = 2
	recordedFrames       = 60
	recordedDescriptions = 4
)

// writeRecording writes a recording. Unlike in a recording of a live session, frames arrive exactly
// on time.
func writeRecording(t *testing.T, path string) {
	t.Helper()
	ns := moqt.Namespace{"holocast", "demo"}
	p := &publisher{descriptions: recordedDescriptions}
	var err error
	if p.enc, err = pointcloud.NewEncoder(pointcloud.EncoderOptions{}); err != nil {
		t.Fatal(err)
	}
	defer p.enc.Close()
	w, err := recording.Create(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now().Add(-time.Minute)
	err = w.Write(recording.Object{
		Track: moqt.TrackName{Namespace: ns, Name: catalog.TrackName}, Group: 1, Priority: 10,
		Payload: testCatalog(t, recordedCameras, recordedDescriptions), FirstObject: true, End: recording.EndFIN,
		Arrival: began,
	})
	for n := range recordedFrames {
		arrival := began.Add(time.Duration(n) * time.Second / 30)
		if err != nil {
			break
		}
		err = p.encode(recordedCameras, arrival.Add(-20*time.Millisecond), func(camera, description int, b []byte) error {
			return w.Write(recording.Object{
				Track: moqt.TrackName{Namespace: ns, Name: catalog.PointsTrack(camera, "full")}, Group: uint64(1 + n),
				Subgroup: uint64(description), ObjectID: uint64(description), Priority: uint8(64 + description),
				Payload: b, FirstObject: true, End: recording.EndFIN, Arrival: arrival,
			})
		})
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
}

// recordSession records a session of two cameras and four descriptions.
func recordSession(t *testing.T, port int, path string) {
	t.Helper()
	url := sessionURL(port, "demo")
	pub := publish(t, url, 2, 4)
	defer pub.stop()
	p := start(t, "holocast", "record", url, path, "--json")
	until(t, "100 recorded objects", func() bool { return recordedTracks(path)["points/0/full"] > 100 })
	var sum recorded
	p.interrupted(&sum)
	list, info := recordedObjects(t, path)
	if info.Truncated != nil || uint64(len(list)) != sum.Objects || info.Records != sum.Records {
		t.Fatalf("%d objects in %d records, reported %+v, truncated: %v", len(list), info.Records, sum, info.Truncated)
	}
}

// TestRecordForeignTracks checks that other publishers' tracks in the session's namespace are
// recorded only with --all, except receipts.
func TestRecordForeignTracks(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port, "--publisher-backups") // admits other publishers
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
		p := start(t, "holocast", append([]string{"record", url, path}, tt.args...)...)
		until(t, "all tracks recorded", func() bool {
			n := recordedTracks(path)
			return !slices.ContainsFunc(tt.want, func(track string) bool { return n[track] == 0 })
		})
		p.Signal(syscall.SIGINT)
		p.mustSucceed()
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

// recordReplay replays a recording and records the replay.
func recordReplay(t *testing.T, port int, path string, args ...string) (second string, r replayed) {
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
	second, sum := recordReplay(t, port, first)
	if sum.Unsent != 0 || sum.Truncated {
		t.Errorf("%+v", sum)
	}
	want, _ := recordedObjects(t, first)
	got, _ := recordedObjects(t, second)
	compareObjects(t, got, want)

	// A player recognizes a replay.
	url := sessionURL(port, "played")
	p := start(t, "holocast", "play", url, "--wait", "--json")
	start(t, "holocast", "replay", first, url, "--wait-viewer").mustSucceed()
	p.mustSucceed()
	var r struct {
		Frames    int    `json:"frames"`
		DelayFrom string `json:"delay_from"`
	}
	if p.lastLine(&r); r.Frames == 0 || r.DelayFrom != "arrival" {
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

// TestReplayTruncated checks that a truncated recording replays up to its last complete chunk.
func TestReplayTruncated(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port)
	first := filepath.Join(t.TempDir(), "first.mcap")
	writeRecording(t, first)
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
	second, sum := recordReplay(t, port, first)
	if !sum.Truncated {
		t.Errorf("%+v", sum)
	}
	got, _ := recordedObjects(t, second)
	compareObjects(t, got, want)
	p := start(t, "holocast", "replay", first, sessionURL(port, "third"), "--speed", "100")
	p.mustSucceed()
	if said := p.Stderr.String(); !strings.Contains(said, "cut off") {
		t.Errorf("stderr %q", said)
	}
}

// TestReplayLoop checks that group IDs keep increasing across loops.
func TestReplayLoop(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port)
	dir := t.TempDir()
	first := filepath.Join(dir, "first.mcap")
	writeRecording(t, first)
	url := sessionURL(port, "again")
	second := filepath.Join(dir, "second.mcap")
	rec := start(t, "holocast", "record", url, second, "--wait")
	rep := start(t, "holocast", "replay", first, url, "--wait-viewer", "--loop", "--speed", "2")
	want, _ := recordedObjects(t, first)
	next := 2 * fileSize(first)
	until(t, "two loops with all objects", func() bool {
		if fileSize(second) < next {
			return false
		}
		next += fileSize(first)
		seen := recordedContents(second)
		return !slices.ContainsFunc(want, func(o identity) bool { return !seen[o.contents] })
	})
	rec.Signal(syscall.SIGINT)
	rec.mustSucceed()
	rep.Signal(syscall.SIGINT)
	rep.mustReplay()
	got, _ := recordedObjects(t, second)
	if len(got) <= len(want) {
		t.Fatalf("%d objects from a recording of %d: no loop", len(got), len(want))
	}
	for i, o := range got {
		if i > 0 && got[i-1].track == o.track && got[i-1].group == o.group && got[i-1].object == o.object {
			t.Fatalf("%s %d/%d twice", o.track, o.group, o.object)
		}
	}
}

// TestReplayLive checks that a player cannot distinguish a looping live replay from cameras. Frames
// have new sequence numbers, and their capture time is the time of sending.
func TestReplayLive(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port)
	dir := t.TempDir()
	first, frames := filepath.Join(dir, "first.mcap"), filepath.Join(dir, "frames.csv")
	writeRecording(t, first)
	url := sessionURL(port, "live")
	began := time.Now()
	rep := start(t, "holocast", "replay", first, url, "--wait-viewer", "--live", "--loop", "--speed", "2")
	p := start(t, "holocast", "play", url, "--wait", "--delivery-timeout", "1m", "--json", "--frames", frames)
	until(t, "two loops", func() bool {
		return len(displayedFrames(t, frames)) > 2*recordedCameras*recordedFrames
	})
	r := p.interrupt()
	rep.Signal(syscall.SIGINT)
	rep.mustReplay()
	// An interrupted player leaves superseded frames undecoded.
	if r.DelayFrom != "capture" || r.FramesDuplicate != 0 || r.PublisherRestarts != 0 || r.FramesLost > r.Frames/3 {
		t.Errorf("%+v", r)
	}
	list := displayedFrames(t, frames)
	if uint64(len(list)) < r.Frames {
		t.Fatalf("%d lines for %d frames", len(list), r.Frames)
	}
	// The recorded capture times are a minute old. The replay estimates the relay's clock with an error
	// of less than a second.
	const clockError = 1e6
	for _, f := range list {
		descriptions := f.points > 0 && f.points <= testWidth*testHeight &&
			f.points%(testWidth*testHeight/recordedDescriptions) == 0
		if f.captured < began.UnixMicro()-clockError || f.captured > f.arrived+clockError || f.arrived > f.shown ||
			!descriptions ||
			f.bytes < 100 {
			t.Fatalf("%+v", f)
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
	until(t, "recorded objects", func() bool { return fileSize(path) > 20_000 })
	p.Signal(syscall.SIGINT)
	p.mustSucceed()
	if list, info := recordedObjects(t, path); info.Truncated != nil || len(list) == 0 {
		t.Errorf("%d objects, truncated: %v", len(list), info.Truncated)
	}
}

// TestRecordRelayReturns checks that a recording continues after a relay restart, without duplicates.
func TestRecordRelayReturns(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	relay := startRelay(t, port)
	url := sessionURL(port, "demo")
	publish(t, url, 1, 4)
	path := filepath.Join(t.TempDir(), "a.mcap")
	p := start(t, "holocast", "record", url, path)
	until(t, "recorded objects", func() bool { return fileSize(path) > 100_000 })
	relay.Kill()
	startRelay(t, port)
	before := fileSize(path)
	until(t, "more recorded objects", func() bool { return fileSize(path) > before+3_000_000 })
	p.Signal(syscall.SIGINT)
	p.mustSucceed()
	list, info := recordedObjects(t, path)
	if info.Truncated != nil {
		t.Error(info.Truncated)
	}
	for i := 1; i < len(list); i++ {
		if a, b := list[i-1], list[i]; a.track == b.track && a.group == b.group && a.object == b.object {
			t.Fatalf("%s %d/%d recorded twice", a.track, a.group, a.object)
		}
	}
}

// TestRecordDiskFull checks that a full disk causes one error and leaves a usable recording.
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
		t.Errorf("stderr %q", said)
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
		{
			"no folder",
			[]string{"record", sessionURL(port, "nothing"), filepath.Join(dir, "no", "a.mcap")},
			"no such file or directory",
		},
		{"not a recording", []string{"replay", exists, sessionURL(port, "x")}, "not an MCAP file"},
		{"no file", []string{"replay", none, sessionURL(port, "x")}, "no such file or directory"},
		{"speed", []string{"replay", exists, sessionURL(port, "x"), "--speed", "-1"}, "--speed is -1, want more than 0"},
		{"export without a recording", []string{"export", none, "--ply", dir}, "no such file or directory"},
		{"export without an output", []string{"export", none}, "at least one of the flags"},
		{"colour", []string{"export", none, "--k4a", dir, "--color", "cmyk"}, `--color is "cmyk", want mjpg or bgra`},
		{"look", []string{"export", none, "--png", exists, "--look", "dots"}, `--look "dots" is unknown; use surface or points`},
		{"size", []string{"export", none, "--png", exists, "--size", "12"}, `--size "12": want WIDTHxHEIGHT`},
		{"target", []string{"export", none, "--png", exists, "--target", "1,2"}, "--target [1 2]: want x,y,z"},
		{"elevation", []string{"export", none, "--png", exists, "--elevation", "91"}, "elevation from -90 to 90"},
		{"faces", []string{"export", none, "--png", exists, "--mesh"}, "--mesh needs --ply"},
		{"view without a picture", []string{"export", none, "--glb", exists, "--size", "9x9"}, "--size needs --png or --mp4"},
		{"film's flag without a film", []string{"export", none, "--png", exists, "--turn", "3s"}, "--turn needs --mp4"},
		{"time without a frame", []string{"export", none, "--ply", dir, "--at", "3s"}, "--at needs --png or --glb or --mp4"},
		{"no revolution", []string{"export", none, "--mp4", exists, "--at", "0s", "--turn", "0s"}, "needs a revolution"},
		{"two files are one", []string{"export", none, "--png", none, "--glb", none}, "two outputs are called " + none},
		{"picture is a folder", []string{"export", none, "--png", dir, "--force"}, dir + " is a folder or a device"},
		{"picture exists", []string{"export", none, "--png", exists}, exists + " exists"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if said := start(t, "holocast", tt.args...).mustFail(); !strings.Contains(said, tt.want) {
				t.Errorf("stderr %q, want %q", said, tt.want)
			}
		})
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("empty recording not removed")
	}
	if b, err := os.ReadFile(exists); err != nil || string(b) != "mine" {
		t.Errorf("existing file: %q, %v", b, err)
	}
}
