# Shared part of the generate.sh scripts that compile eBPF programs. They source this file, set
# $package, define the function programs and call main "$@". Needs clang, llvm-strip and
# libbpf-dev. The committed objects were built with Debian 12's clang 14.
#
#   generate.sh          compiles the C and writes the Go that embeds it
#   generate.sh --check  fails if that would change a byte
#
# programs DIRECTORY calls bpf2go DIRECTORY NAME TYPES [FLAGS…] for each program. bpf2go compiles
# NAME.bpf.c, with the compiler flags in $warnings, and generates Go types for TYPES.
set -euo pipefail
headers=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$headers")")
cd "$(dirname "$0")"
headers=$(realpath --relative-to=. "$headers") # relative: the objects contain the paths of their sources
export BPF2GO_CC=${BPF2GO_CC:-clang} BPF2GO_STRIP=${BPF2GO_STRIP:-llvm-strip}

bpf2go() { # directory, name, types, flags for bpf2go
	local multiarch types=() t
	multiarch=$(gcc -print-multiarch 2>/dev/null || echo "$(uname -m)-linux-gnu")
	for t in $3; do types+=(-type "$t"); done
	GOPACKAGE=$package go run github.com/cilium/ebpf/cmd/bpf2go -go-package "$package" -output-dir "$1" \
		-cflags "-O2 -g -Wall -Wextra -Werror ${warnings-} -mcpu=v3 -I/usr/include/$multiarch -I$headers" \
		"${@:4}" "${types[@]}" "$2" "$2.bpf.c" >/dev/null
}

main() {
	if [[ "${1:-}" != --check ]]; then
		programs .
		return
	fi
	local file
	made=$(mktemp -d)
	trap 'rm -rf "$made"' EXIT
	programs "$made"
	for file in "$made"/*; do
		cmp "$file" "$(basename "$file")" || {
			echo "$(basename "$file") differs from what $("$BPF2GO_CC" --version | head -1) generates:" \
				"run ${PWD#"$root"/}/generate.sh" >&2
			exit 1
		}
	done
}
