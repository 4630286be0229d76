//go:build linux

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"holocast/internal/programtest"
	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
)

// viewing is a viewer that answers frames with receipts.
type viewing struct {
	mu    sync.Mutex
	every time.Duration
	stop  chan struct{}
	done  sync.WaitGroup
}

func (s *site) view() *viewing {
	s.t.Helper()
	v := &viewing{every: 20 * time.Millisecond, stop: make(chan struct{})}
	var conn *net.UDPConn
	err := s.viewer.Do(func() (err error) {
		conn, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.ParseIP(relayAddress), Port: 9})
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	v.done.Go(func() {
		defer func() { _ = conn.Close() }()
		for {
			v.mu.Lock()
			wait := v.every
			v.mu.Unlock()
			select {
			case <-v.stop:
				return
			case <-time.After(wait):
			}
			for range 2 { // the first may fail with the ICMP error of the previous one
				if _, err := conn.Write(make([]byte, 220)); err == nil {
					break
				}
			}
		}
	})
	s.t.Cleanup(func() { close(v.stop); v.done.Wait() })
	return v
}

// at sets the frame interval.
func (v *viewing) at(every time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.every = every
}

// TestSystem runs the real controller and edges. Late frames start duplication, elimination ends it,
// and no packet is lost or duplicated whichever process is killed.
func TestSystem(t *testing.T) {
	s := newSite(t)
	dir := t.TempDir()
	key, err := exec.Command(controllerBinary, "key").Output()
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	keyFile, tokenFile := file("signal.key", string(key)), file("token", token+"\n")
	config := file("controller.yaml", "reportInterval: 300ms\nrearm: 100ms\ntrigger: {rule: paper}\n")
	args := []string{
		"run", "--config", config, "--http-listen", relayAddress + ":" + controllerPort, "--auth-token", tokenFile,
		"--signal-key", keyFile, "--state", filepath.Join(dir, "state.json"), "--log-level", "debug",
	}
	startController := func() *programtest.Process { return startIn(t, s.relay, exec.Command(controllerBinary, args...)) }
	controller := startController()
	common := fmt.Sprintf("controller: {url: \"http://%s:%s\", token: %s}\nsignal: {key: %s}\n", relayAddress,
		controllerPort, tokenFile, keyFile)
	near := s.edge(s.near, "near", common+"role: sender\nsender: {towards: [10.9.0.0/24], attach: [{interface: lan0}]}")
	far := s.edge(s.far, "far", common+"role: receiver\nreceiver: {behind: [10.9.0.0/24]}\nuplink: {interfaces: "+
		"[lan0]}\n"+
		"elimination: {span: 500ms, completeSpan: 3s, guard: 50ms, threshold: 50ms, timeout: 60ms}")
	far.start()
	near.start()
	for _, e := range []*edge{near, far} {
		e.until("connected", func(st *Status) bool { return allUp(st) && st.Controller.Connected })
	}
	f := s.traffic(2000)
	v := s.view()
	far.until("the flow is known", func(st *Status) bool {
		return len(st.Receiver.Flows) == 1 && st.Receiver.Flows[0].Elimination.State == api.Armed
	})
	time.Sleep(200 * time.Millisecond)

	policy := func(st *Status) pathset.Set {
		if len(st.Sender.Policies) == 0 {
			return 0
		}
		return st.Sender.Policies[0].Paths
	}
	trouble := func() {
		t.Helper()
		v.at(200 * time.Millisecond)
		near.until("duplication", func(st *Status) bool { return policy(st) == pathset.Of(1, 2, 3) })
		v.at(20 * time.Millisecond)
	}
	trouble()
	// Kill every process, one after another.
	controller.Kill()
	near.process.Kill()
	near.start()
	startController()
	far.process.Kill()
	far.start()
	near.until("connected again", func(st *Status) bool { return allUp(st) && st.Controller.Connected })
	far.until("connected again", func(st *Status) bool { return allUp(st) && st.Controller.Connected })
	// If the controller lost an edge for a while, it may have ended duplication, so start it again.
	trouble()
	// All paths are good, so eventually one carries the flow.
	near.until("single path", func(st *Status) bool { return policy(st).Len() == 1 })
	far.until("armed", func(st *Status) bool { return st.Receiver.Flows[0].Elimination.State == api.Armed })
	trouble()
	near.process.Stop()
	near.clean()
	far.process.Stop()
	far.clean()
	f.exact()
}
