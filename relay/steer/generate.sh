#!/usr/bin/env bash
# Compiles the eBPF C and writes the Go that embeds it; --check fails if that would change a byte.
# See internal/bpfload/generate.sh.
source "$(dirname "$0")/../../internal/bpfload/generate.sh"

package=steer
programs() { # directory
	bpf2go "$1" steer accepting -target bpfel -tags linux
}

main "$@"
