package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// startCluster starts n relays that serve the same sessions and returns their ports.
func startCluster(t *testing.T, n int) (ports []int, relays []*process) {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "cluster.key")
	key := exec.Command(filepath.Join(programs, "relay"), "key", secret, "--algorithm", "HS256")
	if out, err := key.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	seed := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	listen := seed
	for range n {
		port := freePort(t)
		ports = append(ports, port)
		relays = append(relays, startRelay(t, port, "--cluster", "test", "--cluster-secret", secret,
			"--cluster-listen", listen, "--cluster-join", seed))
		listen = "127.0.0.1:0"
	}
	return ports, relays
}

// TestFailover kills the relay of a player and then that of a capture server. Both continue at another
// relay of the cluster, the capture server with the next group number.
func TestFailover(t *testing.T) {
	t.Parallel()
	ports, relays := startCluster(t, 3)
	capture := start(
		t, "capture-server", sessionURL(ports[0], "demo"), "--source", "synthetic", "--fps", "10", "--low=false",
		"--thin=false", "--delivery-timeout", "0",
	)
	play := start(t, "holocast", "play", sessionURL(ports[1], "demo"), "--wait", "--json")
	other := start(t, "holocast", "play", sessionURL(ports[2], "demo"), "--wait", "--json")
	playing := func(when string) {
		t.Helper()
		for _, p := range []*process{play, other} {
			lines := func() int { return strings.Count(p.Stderr.String(), "\n") }
			from := lines()
			until(t, "frames "+when, func() bool { return lines() > from+2 && p.fps() > 0 })
		}
	}
	playing("at first")
	relays[1].Kill()
	continues := regexp.MustCompile(`relay does not answer; continuing at another one|relay lost; trying the others`)
	until(t, "the player leaves", func() bool { return continues.MatchString(play.Stderr.String()) })
	playing("after the loss of the player's relay")
	relays[0].Kill()
	until(t, "the capture server leaves", func() bool { return continues.MatchString(capture.Stderr.String()) })
	until(t, "the capture server publishes again", func() bool {
		return len(regexp.MustCompile(`msg=publishing`).FindAllString(capture.Stderr.String(), -1)) >= 2
	})
	playing("after the loss of the capture server's relay")
	for _, p := range []*process{play, other} {
		if r := p.interrupt(); r.PublisherRestarts != 0 || r.FramesDuplicate > 1 {
			t.Errorf("%+v, want no restart of the publisher", r)
		}
	}
}

// TestMonitorInCluster checks that a monitor at one relay measures a player at another one.
func TestMonitorInCluster(t *testing.T) {
	t.Parallel()
	ports, _ := startCluster(t, 3)
	publish(t, sessionURL(ports[0], "demo"), 1, 1)
	shows := startMonitor(t, sessionURL(ports[2], "demo"))
	start(t, "holocast", "play", sessionURL(ports[1], "demo"), "--wait")
	until(t, "a displayed frame", shows)
}
