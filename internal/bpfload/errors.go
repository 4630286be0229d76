package bpfload

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
// sentence that names what failed and what is missing.
var (
	// ErrPrivilege: the process may not use eBPF.
	ErrPrivilege = errors.New("needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON")
	// ErrKernel: the kernel lacks a feature; the sentence names it and the version
	// that has it.
	ErrKernel = errors.New("kernel too old")
)

// Requirement is a feature of the kernel that programs need.
type Requirement struct {
	Name  string
	Since string       // version of Linux
	Have  func() error // wraps ebpf.ErrNotSupported where it is missing
}

// Helper is the check of a helper function in programs of a type.
func Helper(t ebpf.ProgramType, f asm.BuiltinFunc) func() error {
	return func() error { return features.HaveProgramHelper(t, f) }
}

// Missing is an error that wraps ErrKernel for the first requirement that the kernel does
// not meet, nil if it meets all.
func Missing(needs []Requirement) error {
	for _, r := range needs {
		if errors.Is(r.Have(), ebpf.ErrNotSupported) {
			return fmt.Errorf("%w: %s came with Linux %s", ErrKernel, r.Name, r.Since)
		}
	}
	return nil
}

// Explain makes one sentence of why something of the kernel failed.
func Explain(what string, err error, needs []Requirement) error {
	var refused *ebpf.VerifierError // the verifier says EACCES, too
	if errors.Is(err, unix.EPERM) || errors.Is(err, fs.ErrPermission) && !errors.As(err, &refused) {
		return fmt.Errorf("%s: %w: %w", what, ErrPrivilege, unix.EPERM)
	}
	if missing := Missing(needs); missing != nil {
		return fmt.Errorf("%s: %w", what, missing)
	}
	return fmt.Errorf("%s: %w", what, err)
}
