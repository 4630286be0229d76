package bpf

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"
)

// Errors that callers tell apart with errors.Is. What is returned wraps them in one
// sentence that names the interface, the feature or the setting.
var (
	// ErrPrivilege: the process may not use eBPF.
	ErrPrivilege = errors.New("needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON")
	// ErrKernel: the kernel lacks a feature; the sentence names it and the version
	// that has it.
	ErrKernel = errors.New("kernel too old")
	// ErrNoNativeXDP: an interface's driver has no native XDP.
	ErrNoNativeXDP = errors.New("no native XDP")
	// ErrMapFull: there is no room for another policy or flow.
	ErrMapFull = errors.New("map full")
)

// requirement is a feature of the kernel that the programs need.
type requirement struct {
	name  string
	since string // version of Linux
	have  func() error
}

// requirements are those of both programs, the oldest first. TCX is not among them:
// without it there is clsact.
func requirements() []requirement {
	helper := func(t ebpf.ProgramType, f asm.BuiltinFunc) func() error {
		return func() error { return features.HaveProgramHelper(t, f) }
	}
	return []requirement{
		{"the helper bpf_clone_redirect in TC", "4.2", helper(ebpf.SchedCLS, asm.FnCloneRedirect)},
		{"eBPF programs for XDP", "4.8", func() error { return features.HaveProgramType(ebpf.XDP) }},
		{"the helper bpf_fib_lookup in TC", "4.18", helper(ebpf.SchedCLS, asm.FnFibLookup)},
		{"bounded loops in eBPF", "5.3", features.HaveBoundedLoops},
		{"eBPF ring buffers", "5.8", func() error { return features.HaveMapType(ebpf.RingBuf) }},
		{"the helper bpf_check_mtu in TC, and atomic compare-and-exchange in eBPF", "5.12", helper(ebpf.SchedCLS, asm.FnCheckMtu)},
	}
}

// explain makes one sentence of why something of the kernel failed.
func explain(what string, err error, needs []requirement) error {
	var refused *ebpf.VerifierError // the verifier says EACCES, too
	if errors.Is(err, unix.EPERM) || errors.Is(err, fs.ErrPermission) && !errors.As(err, &refused) {
		return fmt.Errorf("%s: %w: %w", what, ErrPrivilege, unix.EPERM)
	}
	for _, r := range needs {
		if errors.Is(r.have(), ebpf.ErrNotSupported) {
			return fmt.Errorf("%s: %w: %s came with Linux %s", what, ErrKernel, r.name, r.since)
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// full turns the error of an update of a full map into ErrMapFull.
func full(what string, m *ebpf.Map, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%s: %w: it holds %d", what, ErrMapFull, m.MaxEntries())
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}
