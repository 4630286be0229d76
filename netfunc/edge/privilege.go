//go:build linux

package main

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"holocast/netfunc/bpf"
)

// privileged returns a bpf.ErrPrivilege that names missing capabilities, or nil.
func privileged() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	may := func(bit int) bool { return have[bit/32].Effective&(1<<(bit%32)) != 0 }
	var missing []string
	for _, c := range []struct {
		name string
		bit  int
	}{{"CAP_BPF", unix.CAP_BPF}, {"CAP_NET_ADMIN", unix.CAP_NET_ADMIN}, {"CAP_PERFMON", unix.CAP_PERFMON}} {
		// Before Linux 5.8 CAP_SYS_ADMIN included CAP_BPF and CAP_PERFMON.
		if !may(c.bit) && (c.bit == unix.CAP_NET_ADMIN || !may(unix.CAP_SYS_ADMIN)) {
			missing = append(missing, c.name)
		}
	}
	if missing != nil {
		return fmt.Errorf("an edge %w: this process has no %s", bpf.ErrPrivilege, strings.Join(missing, ", "))
	}
	return nil
}
