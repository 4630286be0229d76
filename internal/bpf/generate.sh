# What the generate.sh beside eBPF programs share; they source it, define programs, and end
# with: main "$@". Needs clang, llvm-strip and libbpf-dev; the committed objects are those
# of Debian 12's clang 14.
#
#   generate.sh          compiles the C and writes the Go that embeds it
#   generate.sh --check  fails if that would change a byte
#
# programs DIRECTORY calls bpf2go DIRECTORY NAME TYPES [FLAGS…] for each program:
# NAME.bpf.c is compiled with the compiler's flags in $warnings, and TYPES of it get Go types.
set -euo pipefail
headers=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$headers")")
cd "$(dirname "$0")"
headers=$(realpath --relative-to=. "$headers") # the objects name the files they come from
export BPF2GO_CC=${BPF2GO_CC:-clang} BPF2GO_STRIP=${BPF2GO_STRIP:-llvm-strip}

bpf2go() { # directory, name, types, flags of bpf2go's
	local multiarch types=() t
	multiarch=$(gcc -print-multiarch 2>/dev/null || echo "$(uname -m)-linux-gnu")
	for t in $3; do types+=(-type "$t"); done
	GOPACKAGE=bpf go run github.com/cilium/ebpf/cmd/bpf2go -go-package bpf -output-dir "$1" \
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
			echo "$(basename "$file") is not what the C makes with $("$BPF2GO_CC" --version | head -1): run ${PWD#"$root"/}/generate.sh" >&2
			exit 1
		}
	done
}
