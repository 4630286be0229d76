#!/usr/bin/env bash
# Runs tests, and those that failed once more: many of them start processes and go by the
# clock, and a machine may stall. What passed only then is said, in build/again too; a data
# race or a crash stays a failure.
#
#   again.sh NAME COMMAND...     COMMAND itself skips what passed before, as go test does
set -uo pipefail
name=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$root/build/again"
rm -f "$root/build/again/$name"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

"$@" 2>&1 | tee "$log"
failed=${PIPESTATUS[0]}
((failed)) || exit 0
if grep -q -E 'WARNING: DATA RACE|^panic: |^fatal error: |SIGSEGV' "$log"; then
	exit "$failed"
fi
echo "$name: failed; once more:"
"$@" || exit
{
	echo "$name: passed only when run again:"
	grep -E '^\s*--- FAIL|^FAIL\s+\S|\.\.\. FAILED|^(FAILED|ERROR) |^not ok|^failed' "$log" | sort -u
} | tee "$root/build/again/$name"
