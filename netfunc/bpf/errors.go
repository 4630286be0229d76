package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"holocast/internal/bpfload"
)

// Errors for use with errors.Is. Returned errors wrap them and name the interface, feature or setting.
var (
	// ErrPrivilege means that the process lacks the privileges for eBPF.
	ErrPrivilege = bpfload.ErrPrivilege
	// ErrKernel means that the kernel lacks a feature. The message names it and the first Linux
	// version that has it.
	ErrKernel = bpfload.ErrKernel
	// ErrPin means that the pin directory is not usable.
	ErrPin = errors.New("pin")
	// ErrNoNativeXDP means that an interface's driver has no native XDP.
	ErrNoNativeXDP = errors.New("no native XDP")
	// ErrMapFull means that there is no room for another policy or flow.
	ErrMapFull = errors.New("map full")
)

// requirements lists the kernel features of both programs, oldest first. TCX is optional, since
// clsact can replace it.
func requirements() []bpfload.Requirement {
	return []bpfload.Requirement{
		{
			Name:  "the helper bpf_clone_redirect in TC",
			Since: "4.2",
			Have:  bpfload.Helper(ebpf.SchedCLS, asm.FnCloneRedirect),
		},
		{Name: "eBPF programs for XDP", Since: "4.8", Have: func() error { return features.HaveProgramType(ebpf.XDP) }},
		{Name: "the helper bpf_fib_lookup in TC", Since: "4.18", Have: bpfload.Helper(ebpf.SchedCLS, asm.FnFibLookup)},
		{Name: "bounded loops in eBPF", Since: "5.3", Have: features.HaveBoundedLoops},
		{Name: "eBPF ring buffers", Since: "5.8", Have: func() error { return features.HaveMapType(ebpf.RingBuf) }},
		{
			Name:  "the helper bpf_check_mtu in TC, and atomic compare-and-exchange in eBPF",
			Since: "5.12",
			Have:  bpfload.Helper(ebpf.SchedCLS, asm.FnCheckMtu),
		},
	}
}

// explain adds the likely cause to an error from the kernel.
func explain(what string, err error, needs []bpfload.Requirement) error {
	return bpfload.Explain(what, err, needs)
}

// full converts the error from updating a full map to ErrMapFull.
func full(what string, m *ebpf.Map, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%s: %w: it holds at most %d entries", what, ErrMapFull, m.MaxEntries())
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}
