#!/usr/bin/env bash
# Compiles the eBPF C and writes the Go that embeds it; --check fails if that would change a byte.
# See internal/bpfload/generate.sh.
source "$(dirname "$0")/../../../internal/bpfload/generate.sh"

package=kernel
warnings=-Wno-unused-parameter
# All map types except work: bpf2go cannot translate its struct iphdr.
types="address connection connection_id count counters endpoint key_streams lease packet_key route"
types+=" sent_record source subscription track track_key viewer"
programs() { # directory
	bpf2go "$1" fastpath "$types" -target bpfel -tags linux -no-global-types
	bpf2go "$1" aead "" -target bpfel -tags linux -output-suffix _test
}

main "$@"
