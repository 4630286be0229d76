package bpf

import "errors"

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
	// ErrMapFull: a policy or a flow too many.
	ErrMapFull = errors.New("map full")
)
