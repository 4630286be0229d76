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

// Causes of failure, for errors.Is. Explain and Missing wrap one of them if it is the likely cause.
var (
	// ErrPrivilege means that the process lacks the privileges that eBPF needs.
	ErrPrivilege = errors.New("needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON")
	// ErrKernel means that the kernel lacks a feature. The message names it and the first Linux
	// version that has it.
	ErrKernel = errors.New("kernel too old")
)

// Requirement is a kernel feature that the programs need.
type Requirement struct {
	Name  string
	Since string       // first Linux version with it
	Have  func() error // returns an error wrapping ebpf.ErrNotSupported if missing
}

// Helper returns a check for a helper function in programs of type t.
func Helper(t ebpf.ProgramType, f asm.BuiltinFunc) func() error {
	return func() error { return features.HaveProgramHelper(t, f) }
}

// Missing returns an error wrapping ErrKernel for the first unmet requirement, or nil.
func Missing(needs []Requirement) error {
	for _, r := range needs {
		if errors.Is(r.Have(), ebpf.ErrNotSupported) {
			return fmt.Errorf("%w: %s needs Linux %s", ErrKernel, r.Name, r.Since)
		}
	}
	return nil
}

// Explain returns the likely cause of err: missing privileges, or the first of needs that the kernel
// lacks. If it finds none, it wraps err. what names the failed operation.
func Explain(what string, err error, needs []Requirement) error {
	var refused *ebpf.VerifierError // the verifier returns EACCES, too
	if errors.Is(err, unix.EPERM) || errors.Is(err, fs.ErrPermission) && !errors.As(err, &refused) {
		return fmt.Errorf("%s: %w: %w", what, ErrPrivilege, unix.EPERM)
	}
	if missing := Missing(needs); missing != nil {
		return fmt.Errorf("%s: %w", what, missing)
	}
	return fmt.Errorf("%s: %w", what, err)
}
