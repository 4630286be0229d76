#!/usr/bin/env bash
# Compiles the eBPF C and writes the Go that embeds it, with --check fails if that would
# change a byte: see internal/bpf/generate.sh.
source "$(dirname "$0")/../../internal/bpf/generate.sh"

programs() { # into a directory
	bpf2go "$1" sender "path path_state policy sender_counters uplink_record signal_record" -target bpfel,bpfeb
	bpf2go "$1" receiver "flow flow_counters receiver_counters ledger interface arrival_record" -target bpfel,bpfeb
}

main "$@"
