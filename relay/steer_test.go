//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"holocast/internal/moqt"
	"holocast/internal/origin"
)

// TestWithoutPrivileges checks that a relay without eBPF privileges uses a single socket and says so.
func TestWithoutPrivileges(t *testing.T) {
	const nobody = 65534
	if os.Geteuid() != 0 {
		t.Skip("not root: cannot start a relay as another user")
	}
	p := startBy(t, func(cmd *exec.Cmd) error {
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return cmd.Start()
	}, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
	if !strings.Contains(p.output(), `"using one UDP socket for all processors"`) ||
		!strings.Contains(p.output(), "needs root or CAP_BPF") {
		t.Error("the log does not say why there is one socket")
	}
	tr := origin.NewTrack(points, nil, origin.Limits{})
	p.publish(tr)
	payload := bytes.Repeat([]byte{1}, 5000)
	sub := subscribe(t, p.dial(moqt.Handler{}), points)
	write(t, tr, 1, payload)
	expect(t, sub, 1, payload)
}
