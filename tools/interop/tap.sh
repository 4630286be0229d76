# Sourced by the scripts in this folder. Starts servers, stops them when the script exits, and
# reports results in TAP.

work=$(mktemp -d)
pids=()
cleanup() {
	for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
	for p in "${pids[@]}"; do wait "$p" 2>/dev/null || true; done
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

tests=0 failed=0
report() { # ok|"not ok" description
	tests=$((tests + 1))
	echo "$1 $tests - $2"
	[ "$1" = ok ] || failed=$((failed + 1))
}
diagnose() { sed 's/^/# /' "$1" | tail -n "${2:-20}"; }

# start NAME COMMAND... runs a server and logs to $work/NAME.log.
start() {
	local name=$1
	shift
	"$@" >"$work/$name.log" 2>&1 &
	pids+=($!)
}
# await NAME PATTERN waits up to a minute for a line in a server's log.
await() {
	for _ in $(seq 600); do
		grep -q "$2" "$work/$1.log" && return
		sleep 0.1
	done
	echo "Bail out! $1 did not start"
	diagnose "$work/$1.log"
	exit 1
}
