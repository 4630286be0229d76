package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/connect"
	"holocast/internal/moqt"
)

// TestReload checks that SIGHUP applies the calibration file's new poses immediately and a new
// token at the next connection, and that removing the file is refused.
func TestReload(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir, addr := t.TempDir(), freePort(t)
	path := func(name string) string { return filepath.Join(dir, name) }
	output := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(ctx, filepath.Join(bin, "relay"), args...).Output()
		if err != nil {
			t.Fatalf("relay %v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	token := func(key string, allows ...string) string {
		return output(append([]string{"token", "--auth-keys", path(key), "--for", "1h"}, allows...)...)
	}
	set := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	place := func(x int) {
		set("poses.yaml",
			fmt.Sprintf("cameras:\n  synthetic-0: {rotation: [1, 0, 0, 0, 1, 0, 0, 0, 1], translation: [%d, 0, 0]}\n",
				x))
	}
	output("key", path("old.key"))
	output("key", path("new.key"))
	config := func(key, calibration string) {
		set(
			"capture-server.yaml",
			fmt.Sprintf("relay: moqt://%s/test\nsources: [synthetic]\nfps: 5\ncalibration: %s\ntoken: %s\n",
				addr, calibration, token(key, "--publish", "test")),
		)
	}
	config("old.key", calibrationNone)
	start(t, filepath.Join(bin, "relay"), "--listen", addr, "--http", addr, "--auth-keys", path("old.key"),
		"--auth-keys", path("new.key"))
	server := start(t, filepath.Join(bin, "capture-server"), "--config", path("capture-server.yaml"))
	s := view(ctx, t, connect.Target{URL: "moqt://" + addr + "/test", Token: token("new.key", "--subscribe", "test")})
	ns := moqt.Namespace{connect.Root, "test"}
	sub := subscribe(ctx, t, s, ns, catalog.PoseTrack)
	at := func(document []byte) float64 {
		t.Helper()
		events, err := catalog.ParsePoses(document)
		if err != nil || len(events) != 1 {
			t.Fatalf("%+v, %v", events, err)
		}
		return events[0].Data.Pose.T[0]
	}
	if x := at(newestObject(ctx, t, sub)); x != 0 {
		t.Fatalf("the camera is at %g, want 0", x)
	}
	reload := func(x float64) {
		t.Helper()
		server.Signal(syscall.SIGHUP)
		for moved := false; !moved; {
			document, _ := next(ctx, t, sub)
			moved = at(document.payload) == x
		}
	}
	place(1000)
	config("old.key", path("poses.yaml"))
	reload(1000)
	place(2000)
	config("new.key", path("poses.yaml"))
	reload(2000)
	config("new.key", calibrationNone)
	server.Signal(syscall.SIGHUP)
	server.Line(`\"none\" takes effect after a restart`)

	// Removing the old key ends the session that it authorized.
	other := path("other.key")
	output("key", other)
	if err := os.Rename(other, path("old.key")); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := sub.AcceptSubgroup(ctx); err != nil {
			if ctx.Err() != nil {
				t.Fatal("the session of the old key does not end")
			}
			break
		}
	}
	sub = subscribe(ctx, t, s, ns, catalog.PoseTrack)
	if x := at(newestObject(ctx, t, sub)); x != 2000 {
		t.Errorf("in the new session the camera is at %g, want 2000", x)
	}
}
