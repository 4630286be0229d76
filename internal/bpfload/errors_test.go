package bpfload

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// TestExplain checks that Explain names the first missing feature and its Linux version, or the
// missing privilege.
func TestExplain(t *testing.T) {
	have := func() error { return nil }
	lack := func() error { return ebpf.ErrNotSupported }
	unsure := func() error { return errors.New("probe failed") }
	needs := []Requirement{
		{"walking", "1.0", have},
		{"swimming", "2.0", unsure},
		{"running", "5.3", lack},
		{"flying", "6.6", lack},
	}
	err := Explain("load", unix.EINVAL, needs)
	if !errors.Is(err, ErrKernel) || !strings.Contains(err.Error(), "running needs Linux 5.3") {
		t.Errorf("%v", err)
	}
	if err := Explain("load", unix.EINVAL, needs[:2]); errors.Is(err, ErrKernel) || !errors.Is(err, unix.EINVAL) {
		t.Errorf("%v", err)
	}
	if err := Explain("load", fmt.Errorf("map create: %w", unix.EPERM), needs); !errors.Is(err, ErrPrivilege) {
		t.Errorf("%v", err)
	}
}
