#!/usr/bin/env bash
# Compiles the eBPF C and writes the Go code that embeds it; --check fails if the output would change.
# See internal/bpfload/generate.sh.
source "$(dirname "$0")/../../internal/bpfload/generate.sh"

package=bpf
programs() { # directory
	bpf2go "$1" sender "path path_state policy sender_counters uplink_record signal_record" -target bpfel
	bpf2go "$1" receiver "flow flow_counters receiver_counters ledger interface arrival_record" -target bpfel
}

main "$@"
