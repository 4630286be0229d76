//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/recording"
	"holocast/internal/recording/recordingtest"
	"holocast/relay/admin"
	"holocast/relay/auth"
	"holocast/relay/auth/authtest"
	"holocast/relay/router"
)

// show is a session with a catalog and the track points.
type show struct {
	*origin.Track
	catalog *origin.Track
	s       *moqt.Session
	relay   *process
}

// perform publishes a show.
func perform(t *testing.T, p *process, tokens ...string) *show {
	t.Helper()
	x := &show{
		relay:   p,
		Track:   origin.NewTrack(points, nil, origin.Limits{}),
		catalog: origin.NewTrack(moqt.TrackName{Namespace: session, Name: catalog.TrackName}, nil, origin.Limits{}),
	}
	write(t, x.catalog, 1, recordingtest.Catalog(t, points.Name).Payload)
	var set origin.Set
	set.Add(x.Track)
	set.Add(x.catalog)
	x.s = p.with(set.Handler(), tokens...)
	if _, err := x.s.PublishNamespace(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	return x
}

// play writes frames 1 to n once the recorder has subscribed.
func (x *show) play(t *testing.T, n int) {
	t.Helper()
	eventually(t, "the recorder subscribes", func() bool {
		return strings.Contains(x.relay.Stderr.String(), `"track":"holocast-test--points","peer":"this process"`)
	})
	for g := range uint64(n) {
		write(t, x.Track, g+1, payloadOf(g+1))
	}
}

func payloadOf(group uint64) []byte {
	b := make([]byte, 2000)
	r := rand.New(rand.NewPCG(group, 0))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// end ends the show as publishers do.
func (x *show) end(t *testing.T) {
	t.Helper()
	for _, tr := range []*origin.Track{x.Track, x.catalog} {
		tr.End(wire.DoneTrackEnded, "")
		eventually(t, "the end is sent", func() bool { return tr.Viewers() == 0 })
	}
	x.s.Close(wire.NoError, "")
}

// files lists the files of the recordings.
func files(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && !d.IsDir() {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// recorded checks that one finished recording exists, with n frames, and returns its name.
func recorded(t *testing.T, dir string, n uint64) (at string) {
	t.Helper()
	list := files(t, dir)
	if len(list) != 1 || !strings.HasSuffix(list[0], ".mcap") {
		t.Fatalf("recordings %q, want one", list)
	}
	r, err := recording.Open(list[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }() // read-only
	seen := map[uint64]bool{}
	for {
		o, err := r.Next()
		if err != nil {
			break
		}
		if o.Track.Name != points.Name || o.EndOnly {
			continue
		}
		if seen[o.Group] || !bytes.Equal(o.Payload, payloadOf(o.Group)) {
			t.Fatalf("frame %d is recorded twice or differs", o.Group)
		}
		seen[o.Group] = true
	}
	if uint64(len(seen)) != n {
		t.Errorf("recorded %d frames, want %d", len(seen), n)
	}
	return strings.TrimSuffix(filepath.Base(list[0]), ".mcap")
}

// replayed waits for a frame of a recording of the session.
func replayed(t *testing.T, s *moqt.Session, at string) {
	t.Helper()
	var sub *moqt.Subscription
	eventually(t, "the recording is offered", func() (ok bool) {
		var err error
		sub, err = s.Subscribe(t.Context(), moqt.TrackName{
			Namespace: router.RecordingOf(session[1], at), Name: points.Name,
		}, moqt.SubscribeOptions{})
		return err == nil
	})
	f, err := next(t.Context(), sub)
	if err != nil || len(f.payload) != 2000 {
		t.Fatalf("frame %d of %d bytes, %v", f.group, len(f.payload), err)
	}
}

func awaitRecordings(p *process, n float64) {
	p.t.Helper()
	p.awaitMetric("holocast_relay_recordings", n)
}

// TestRecord records a session beside a viewer, over the same upstream subscription, and replays it before and
// after a restart. Nobody but the relay's user may read the files.
func TestRecord(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "recordings")
	args := []string{"--record", "t*", "--record-dir", dir}
	p := start(t, args...)
	x := perform(t, p)
	eventually(t, "the relay subscribes", func() bool { return x.Viewers() == 1 })
	sub := subscribe(t, p.dial(moqt.Handler{}), points)
	x.play(t, 20)
	expect(t, sub, 20, payloadOf(20))
	if n := x.Viewers(); n != 1 {
		t.Errorf("%d upstream subscriptions, want one for the viewer and the recording", n)
	}
	if n := p.metric("holocast_relay_recording_sessions"); n != 1 {
		t.Errorf("%v sessions being recorded, want 1", n)
	}
	x.end(t)
	awaitRecordings(p, 1)
	at := recorded(t, dir, 20)
	for _, one := range []string{dir, filepath.Join(dir, session[1]), files(t, dir)[0]} {
		if info, err := os.Stat(one); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v, %v", one, info.Mode(), err)
		}
	}
	replayed(t, p.dial(moqt.Handler{}), at)
	if all := list[admin.Recording](p.api(""), "recordings"); len(all) != 1 || all[0].Name != "recordings/test/"+at {
		t.Errorf("the API lists %+v", all)
	}
	p.Stop()
	again := start(t, args...)
	replayed(t, again.dial(moqt.Handler{}), at)
}

// TestRecordKilled kills the relay during a recording. The next one offers what is on the disk.
func TestRecordKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, "--record", "test", "--record-dir", dir)
	x := perform(t, p)
	stop := writeFramesOf(t, x.Track, func() []byte { return payloadOf(1) })
	defer stop()
	eventually(t, "a file with frames", func() bool {
		list := files(t, dir)
		if len(list) != 1 {
			return false
		}
		info, err := os.Stat(list[0])
		return err == nil && info.Size() > 50_000
	})
	p.Kill()
	again := start(t, "--record-dir", dir)
	awaitRecordings(again, 1)
	list := files(t, dir)
	if len(list) != 1 || !strings.HasSuffix(list[0], ".mcap") {
		t.Fatalf("recordings %q", list)
	}
	replayed(t, again.dial(moqt.Handler{}), strings.TrimSuffix(filepath.Base(list[0]), ".mcap"))
}

// TestRecordStopped stops the relay during a recording, which is complete.
func TestRecordStopped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, "--record", "test", "--record-dir", dir, "--drain", "100ms")
	x := perform(t, p)
	sub := subscribe(t, p.dial(moqt.Handler{}), points)
	x.play(t, 10)
	expect(t, sub, 10, payloadOf(10))
	p.awaitMetric("holocast_relay_recorded_objects_total", 11)
	p.Stop()
	recorded(t, dir, 10)
	r, err := recording.Open(files(t, dir)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }() // read-only
	if r.Info.Truncated != nil {
		t.Error(r.Info.Truncated)
	}
}

// TestRecordUpgrade upgrades the relay during a recording. The old process, which has the publisher, finishes it;
// the new process offers it and does not record the session again.
func TestRecordUpgrade(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p, _ := upgradable(t, "--record", "test", "--record-dir", dir)
	x := perform(t, p)
	sub := subscribe(t, p.dial(moqt.Handler{}), points)
	x.play(t, 5)
	expect(t, sub, 5, payloadOf(5))
	p.upgrade()
	late := subscribe(t, p.dial(moqt.Handler{}), points)
	for g := uint64(6); g <= 10; g++ {
		write(t, x.Track, g, payloadOf(g))
	}
	expect(t, late, 10, payloadOf(10))
	expect(t, sub, 10, payloadOf(10))
	if n := p.metric("holocast_relay_recording_sessions"); n != 0 {
		t.Errorf("the new process records %v sessions", n)
	}
	x.end(t)
	awaitRecordings(p, 1)
	replayed(t, p.dial(moqt.Handler{}), recorded(t, dir, 10))
}

// TestRecordDiskFull fills the disk. Recording pauses with one message, viewers notice nothing, and recording
// resumes once there is space.
func TestRecordDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=32m"); err != nil {
		t.Skipf("cannot mount a small tmpfs (needs root): %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 24<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "--record", "test", "--record-dir", dir, "--record-min-free", "0")
	x := perform(t, p)
	sub := subscribe(t, p.dial(moqt.Handler{}), points)
	frame := random(t, 400_000)
	stop := writeFramesOf(t, x.Track, func() []byte { return frame })
	defer stop()
	const paused = "holocast_relay_recording_paused"
	for p.metric(paused) == 0 {
		if _, err := next(t.Context(), sub); err != nil {
			t.Fatal(err)
		}
	}
	for range 30 { // the viewer's session goes on
		if _, err := next(t.Context(), sub); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		for {
			if _, err := next(t.Context(), sub); err != nil {
				return
			}
		}
	}()
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	p.awaitMetric(paused, 0)
	eventually(t, "a second recording", func() bool { return len(files(t, dir)) >= 2 })
	if n := strings.Count(p.output(), "recording paused"); n != 1 {
		t.Errorf("%d messages, want one", n)
	}
	r, err := recording.Open(files(t, dir)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }() // read-only
	if r.Info.Records == 0 {
		t.Error("the first recording is empty")
	}
}

// TestRecordRights checks that a recording is as private as its session, and that nobody can publish one.
func TestRecordRights(t *testing.T) {
	t.Parallel()
	issuer := newIssuer(t, "EdDSA")
	dir := t.TempDir()
	p := start(t, "--record", "test", "--record-dir", dir, "--auth-keys", issuer.file)
	x := perform(t, p, issuer.publisher())
	x.play(t, 3)
	p.awaitMetric("holocast_relay_recorded_objects_total", 4)
	x.end(t)
	awaitRecordings(p, 1)
	at := recorded(t, dir, 3)
	ns := router.RecordingOf(session[1], at)
	name := moqt.TrackName{Namespace: ns, Name: points.Name}
	viewer := p.with(moqt.Handler{}, issuer.viewer())
	replayed(t, viewer, at)
	receipts := moqt.TrackName{Namespace: ns, Name: "receipts/v"}
	if _, err := viewer.Publish(within(t), receipts, moqt.TrackInfo{}); err != nil {
		t.Errorf("receipts of a recording: %v", err)
	}
	others := auth.Prefixes{{"holocast", "other"}, {"holocast", "recordings"}, {"holocast", "recordings/test"}}
	stranger := p.with(moqt.Handler{}, issuer.mint(auth.Claims{Subscribe: others, Publish: others}))
	unauthorized := func(what string, err error) {
		t.Helper()
		if refusal(err, nil) != "request: UNAUTHORIZED" {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := stranger.Subscribe(within(t), name, moqt.SubscribeOptions{})
	unauthorized("a stranger's SUBSCRIBE", err)
	_, err = stranger.Fetch(within(t), name, moqt.Location{}, moqt.Location{Group: 9}, moqt.FetchOptions{})
	unauthorized("a stranger's FETCH", err)
	_, err = stranger.SubscribeNamespace(within(t), ns)
	unauthorized("a stranger's SUBSCRIBE_NAMESPACE", err)
	all := p.with(moqt.Handler{}, issuer.mint(auth.Claims{Publish: auth.Prefixes{{"holocast"}}}))
	for _, ns := range []moqt.Namespace{ns, router.RecordingOf("test", "x"), append(ns[:2:2], "recording")} {
		_, err := all.PublishNamespace(within(t), ns)
		unauthorized("publishing "+ns.String(), err)
	}
	_, err = all.Publish(within(t), name, moqt.TrackInfo{})
	unauthorized("publishing a track of a recording", err)
}

// TestRecordCluster checks that of two relays only the publisher's records, and that viewers at the other can
// watch the recording.
func TestRecordCluster(t *testing.T) {
	t.Parallel()
	secret, here, there := authtest.SecretFile(t), t.TempDir(), t.TempDir()
	a, seed := startMember(t, secret, "--record", "test", "--record-dir", here)
	b, _ := startMember(t, secret, "--record", "test", "--record-dir", there, "--cluster-join", seed)
	x := perform(t, a)
	b.awaitMetric("holocast_relay_cluster_routes", 1)
	sub := subscribe(t, b.dial(moqt.Handler{}), points)
	x.play(t, 10)
	expect(t, sub, 10, payloadOf(10))
	a.awaitMetric("holocast_relay_recorded_objects_total", 11)
	if n := b.metric("holocast_relay_recorded_objects_total"); n != 0 {
		t.Errorf("the viewer's relay recorded %v objects", n)
	}
	x.end(t)
	awaitRecordings(a, 1)
	replayed(t, b.dial(moqt.Handler{}), recorded(t, here, 10))
	if list := files(t, there); len(list) != 0 {
		t.Errorf("the viewer's relay has %q", list)
	}
}

// TestRecordReload changes the patterns of a running relay.
func TestRecordReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "relay.yaml")
	set := func(sessions string) {
		t.Helper()
		yaml := "record: {dir: " + dir + "/recordings, sessions: [" + sessions + "]}\n"
		if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set("other")
	p := start(t, "--config", file)
	x := perform(t, p)
	sub := subscribe(t, p.dial(moqt.Handler{}), points)
	write(t, x.Track, 1, payloadOf(1))
	expect(t, sub, 1, payloadOf(1))
	if n := p.metric("holocast_relay_recording_sessions"); n != 0 {
		t.Fatalf("%v sessions being recorded, want none", n)
	}
	set(`"te?t"`)
	p.Signal(syscall.SIGHUP)
	p.awaitMetric("holocast_relay_recording_sessions", 1)
	write(t, x.Track, 2, payloadOf(2))
	set("other")
	p.Signal(syscall.SIGHUP)
	p.awaitMetric("holocast_relay_recording_sessions", 0)
	awaitRecordings(p, 1)
	write(t, x.Track, 3, payloadOf(3))
	expect(t, sub, 3, payloadOf(3))
}

// TestRecordSplit checks that a recording continues in another file without a gap.
func TestRecordSplit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, "--record", "test", "--record-dir", dir, "--record-max-duration", "1s")
	x := perform(t, p)
	stop := writeFramesOf(t, x.Track, func() []byte { return payloadOf(1) })
	awaitRecordings(p, 2)
	last := stop()
	x.end(t)
	eventually(t, "all files are finished", func() bool {
		for _, f := range files(t, dir) {
			if !strings.HasSuffix(f, ".mcap") {
				return false
			}
		}
		return true
	})
	seen := map[uint64]bool{}
	first := uint64(1 << 62)
	for _, f := range files(t, dir) {
		r, err := recording.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		for {
			o, err := r.Next()
			if err != nil {
				break
			}
			if o.Track.Name == points.Name {
				seen[o.Group] = true
				first = min(first, o.Group)
			}
		}
		_ = r.Close() // read-only
	}
	for g := first; g <= last; g++ {
		if !seen[g] {
			t.Errorf("frame %d of %d to %d is in no file", g, first, last)
		}
	}
}
