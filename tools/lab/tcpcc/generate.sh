#!/usr/bin/env bash
# Compiles the eBPF C and writes the Go that embeds it; --check fails if that would change a byte.
# See internal/bpfload/generate.sh.
source "$(dirname "$0")/../../../internal/bpfload/generate.sh"

package=tcpcc
warnings=-Wno-unused-parameter # ctx in BPF_PROG
programs() { # directory
	bpf2go "$1" tcpcc "" -target bpfel -tags linux -no-global-types
}

main "$@"
