#!/usr/bin/env bash
# Fuzzes every target of the repository, one after the other.
#   tools/fuzz.sh [TIME]           for TIME each (default 3s), from the committed corpora
#   tools/fuzz.sh --keep [TIME]    and adds the smallest of what it finds to the corpora
#                                  in testdata/fuzz, so that every `go test` replays it
set -euo pipefail
cd "$(dirname "$0")/.."

keep=
if [[ "${1:-}" == --keep ]]; then
	keep=1
	shift
fi
time=${1:-3s}
kept=32       # files of a target
largest=4096  # bytes of a file

cache=$(go env GOCACHE)/fuzz
targets=0
while IFS=: read -r file target; do
	package=./$(dirname "$file")
	log=$(mktemp)
	# Minimizing is for finds that people look at; without a bound it eats the time.
	if ! go test "$package" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x </dev/null >"$log" 2>&1; then
		echo "fuzz: $package $target failed" >&2
		cat "$log" >&2
		rm -f "$log"
		exit 1
	fi
	printf '%-32s %-22s %s\n' "$package" "$target" "$(grep -o 'execs: [0-9]*' "$log" | tail -n 1)"
	rm -f "$log"
	targets=$((targets + 1))
	if [[ -n "$keep" ]]; then
		corpus=$package/testdata/fuzz/$target
		mkdir -p "$corpus"
		have=$(find "$corpus" -type f | wc -l)
		found=$cache/$(go list "$package")/$target
		[[ -d "$found" ]] || continue
		find "$found" -type f -size "-$((largest / 512))b" -printf '%s %p\n' | sort -n |
			head -n $((kept > have ? kept - have : 0)) | cut -d ' ' -f 2- | xargs -r cp -t "$corpus"
	fi
done < <(git grep -o 'func Fuzz[A-Za-z0-9]*' -- '*_test.go' | sed 's/func //')
echo "fuzz: $targets targets, $time each: nothing found"
