// Package bpf is the kernel side of the relay's fast path.
package bpf
