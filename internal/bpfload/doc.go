// Package bpfload is what the project's eBPF programs share: places in traffic control (TCX,
// clsact), and errors that say what is missing to run them; beside it, the C headers of
// packets on the wire.
package bpfload
