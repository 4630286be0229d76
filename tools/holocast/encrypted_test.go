package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// publishEncrypted starts a capture server with a key file.
func publishEncrypted(t *testing.T, url, key string, args ...string) *process {
	t.Helper()
	p := start(t, "capture-server", append([]string{
		"--source", "synthetic", "--fps", "5", "--e2e-key", key, url,
	}, args...)...)
	p.Line("publishing")
	return p
}

// TestEncryptedSession plays, rotates the key of, records, replays and exports an encrypted session.
func TestEncryptedSession(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, old := filepath.Join(dir, "session.key"), filepath.Join(dir, "old.key")
	start(t, "holocast", "key", key).mustSucceed()
	b, err := os.ReadFile(key)
	if err == nil {
		err = os.WriteFile(old, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	startRelay(t, port)
	url := sessionURL(port, "secret")
	publisher := publishEncrypted(t, url, key)

	play := func(url, key string, args ...string) *process {
		return start(t, "holocast", append([]string{"play", url, "--e2e-key", key, "--json", "--wait"}, args...)...)
	}
	frames := filepath.Join(dir, "frames.csv")
	p := play(url, key, "--frames", frames)
	shown := func(at int) func() bool { return func() bool { return len(displayedFrames(t, frames)) >= at } }
	until(t, "5 frames", shown(5))
	start(t, "holocast", "key", key, "--rotate").mustSucceed()
	publisher.Signal(syscall.SIGHUP)
	publisher.Line("configuration reloaded")
	before := len(displayedFrames(t, frames))
	until(t, "frames under the new key", shown(before+10))
	var report struct {
		Encryption struct {
			Opened  uint64
			Refused map[string]uint64
		}
	}
	p.interrupted(&report)
	// Until the player reads its file again, at most once a second, it lacks the new key.
	if n := report.Encryption.Refused["unknown key"]; report.Encryption.Opened < 15 || n > 10 ||
		len(report.Encryption.Refused) > 1 {
		t.Errorf("encryption %+v", report.Encryption)
	}

	for _, tt := range []struct{ key, want string }{
		{"", "the session is encrypted: give its key"},
		{old, "encrypted with key 2, which is not among the keys given"},
	} {
		if got := play(url, tt.key).mustFail(); !strings.Contains(got, tt.want) {
			t.Errorf("with key %q: %q", tt.key, got)
		}
	}

	take := filepath.Join(dir, "take.mcap")
	start(t, "holocast", "record", url, take, "--duration", "2s").mustSucceed()
	recorded, err := os.ReadFile(take)
	if err != nil || bytes.Contains(recorded, []byte("cameraName")) || bytes.Contains(recorded, []byte("synthetic-0")) {
		t.Errorf("the recording names the camera, or %v", err)
	}
	publisher.Stop()

	again := sessionURL(port, "again")
	start(t, "holocast", "replay", take, again, "--loop")
	r := play(again, key, "--frames", frames+".again")
	until(t, "frames of a second pass", func() bool { return len(displayedFrames(t, frames+".again")) >= 20 })
	report.Encryption.Refused = nil
	r.interrupted(&report)
	if len(report.Encryption.Refused) > 0 {
		t.Errorf("a replay's objects were refused: %v", report.Encryption.Refused)
	}
	play(again, key, "--from", "500ms", "--seek", "1s:200ms", "--duration", "1s").mustSucceed()
	got := start(t, "holocast", "replay", take, again+"-live", "--live").mustFail()
	if !strings.Contains(got, "is encrypted") {
		t.Errorf("replay --live: %q", got)
	}

	ply := filepath.Join(dir, "ply")
	got = start(t, "holocast", "export", take, "--ply", ply).mustFail()
	if !strings.Contains(got, "is encrypted: give its key") {
		t.Errorf("export: %q", got)
	}
	start(t, "holocast", "export", take, "--ply", ply, "--e2e-key", key).mustSucceed()
	if files, err := filepath.Glob(ply + "/*.ply"); err != nil || len(files) < 5 {
		t.Errorf("%d PLY files, %v", len(files), err)
	}
}

// TestEncryptedDatagrams plays, records and exports frames and sound in encrypted datagrams.
func TestEncryptedDatagrams(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, take := filepath.Join(dir, "session.key"), filepath.Join(dir, "take.mcap")
	start(t, "holocast", "key", key).mustSucceed()
	port := freePort(t)
	startRelay(t, port)
	url := sessionURL(port, "parts")
	publishEncrypted(t, url, key, "--delivery", "datagram", "--audio", "synthetic", "--fps", "2", "--descriptions", "4")
	frames := filepath.Join(dir, "frames.csv")
	p := start(t, "holocast", "play", url, "--e2e-key", key, "--json", "--frames", frames, "--delivery-timeout", "1m",
		"--wav", filepath.Join(dir, "sound.wav"))
	until(t, "4 frames", func() bool { return len(displayedFrames(t, frames)) >= 4 })
	var report struct {
		Encryption struct{ Refused map[string]uint64 }
		Sound      struct{ Packets uint64 }
	}
	p.interrupted(&report)
	for reason, n := range report.Encryption.Refused {
		if reason != "replayed" { // a repair may bring a part that arrives late too
			t.Errorf("%d refused as %s", n, reason)
		}
	}
	start(t, "holocast", "record", url, take, "--duration", "3s").mustSucceed()
	wav := filepath.Join(dir, "export.wav")
	start(t, "holocast", "export", take, "--wav", wav, "--e2e-key", key).mustSucceed()
	if info, err := os.Stat(wav); err != nil || info.Size() < 48_000 {
		t.Error(fmt.Sprint(info), err)
	}
}
