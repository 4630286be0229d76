#!/usr/bin/env bash
# Compiles the eBPF C and writes the Go that embeds it, with --check fails if that would
# change a byte: see internal/bpf/generate.sh.
source "$(dirname "$0")/../../../internal/bpf/generate.sh"

warnings=-Wno-unused-parameter
programs() { # into a directory
	bpf2go "$1" fastpath "address packet_key subscription sent_record count" -target bpfel -tags linux
	bpf2go "$1" aead "" -target bpfel -tags linux -output-suffix _test
}

main "$@"
