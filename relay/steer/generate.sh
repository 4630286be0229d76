#!/usr/bin/env bash
# Compiles the eBPF C and writes the Go that embeds it. Needs clang, llvm-strip and
# libbpf-dev; the committed object is that of Debian 12's clang 14.
#
#   generate.sh          regenerate
#   generate.sh --check  fail if regenerating would change a byte
set -euo pipefail
cd "$(dirname "$0")"

generate() { # into directory $1
	local multiarch
	multiarch=$(gcc -print-multiarch 2>/dev/null || uname -m)-
	export BPF2GO_CC=${BPF2GO_CC:-clang} BPF2GO_STRIP=${BPF2GO_STRIP:-llvm-strip}
	GOPACKAGE=steer go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -tags linux \
		-cflags "-O2 -g -Wall -Wextra -Werror -mcpu=v3 -I/usr/include/${multiarch%-}" \
		-go-package steer -output-dir "$1" -type accepting steer steer.bpf.c >/dev/null
}

if [ "${1:-}" = --check ]; then
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
	generate "$dir"
	for file in "$dir"/*; do
		cmp "$file" "$(basename "$file")" || { echo "$(basename "$file") is not what the C makes with $(${BPF2GO_CC} --version | head -1): run relay/steer/generate.sh" >&2; exit 1; }
	done
	exit
fi
generate .
