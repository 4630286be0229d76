#!/usr/bin/env bash
# Fuzzes every target in the repository, one per processor at a time.
#   tools/fuzz.sh [TIME]           TIME per target (default 3s), from the committed corpora
#   tools/fuzz.sh --keep [TIME]    also add the smallest new inputs to testdata/fuzz,
#                                  for every `go test` to replay
set -euo pipefail
cd "$(dirname "$0")/.."

export keep=
if [[ "${1:-}" == --keep ]]; then
	keep=1
	shift
fi
export time=${1:-3s}
export kept=32      # files per target
export largest=4096 # bytes per file
export cache=$(go env GOCACHE)/fuzz
export module=$(go list -m)
export bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT

targets=$(git grep -o 'func Fuzz[A-Za-z0-9]*' -- '*_test.go' | sed -E 's|(.*)/[^/]*:func |\1 |' | sort -u)

compile() { # package
	go test -c -fuzz=. -ldflags=-s -o "$bin/${1//\//-}" "./$1" || { echo "fuzz: ./$1 does not compile" >&2; exit 255; }
}

run() { # package target
	local package=$1 target=$2 log=$bin/${1//\//-}.$2
	# The fuzzer may report its own deadline as a failure, without an input. Limit minimization: it
	# only helps people who read the input, and could otherwise use up the time.
	if ! (cd "$package" && "$bin/${package//\//-}" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" \
		-test.fuzzminimizetime 10x -test.parallel 1 -test.fuzzcachedir "$cache/$module/$package") </dev/null >"$log" 2>&1 &&
		! { grep -q '^    context deadline exceeded' "$log" && ! grep -q 'Failing input' "$log"; }; then
		echo "fuzz: ./$package $target failed" >&2
		cat "$log" >&2
		exit 255 # stops xargs
	fi
	printf '%-32s %-22s %s\n' "./$package" "$target" "$(grep -o 'execs: [0-9]*' "$log" | tail -n 1)"
	[[ -n "$keep" ]] || return 0
	local corpus=$package/testdata/fuzz/$target found=$cache/$module/$package/$target have
	[[ -d "$found" ]] || return 0
	mkdir -p "$corpus"
	have=$(find "$corpus" -type f | wc -l)
	((have < kept)) || return 0
	find "$found" -type f -size "-$((largest / 512))b" -printf '%s %p\n' | sort -n |
		sed -n "1,$((kept - have))s/^[0-9]* //p" | xargs -r cp -t "$corpus"
}
export -f compile run

cut -d ' ' -f 1 <<<"$targets" | sort -u | xargs -P 2 -I {} bash -euo pipefail -c 'compile {}'
xargs -P "$(nproc)" -L 1 bash -euo pipefail -c 'run "$@"' fuzz <<<"$targets"
echo "fuzz: $(wc -l <<<"$targets") targets, $time each: nothing found"
