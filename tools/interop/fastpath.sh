#!/usr/bin/env bash
# Runs viewers with different QUIC stacks through the relay's kernel fast path, over a path that
# loses, duplicates and reorders packets and changes the viewers' addresses: quinn (the Unity
# client's library) and quic-go. Each must keep one session, show frames, and receive kernel-made
# packets under more than one key. Prints TAP. Chromium's test is
# client-web/test/e2e/fastpath.test.ts. Needs root and cargo.
#
#   fastpath.sh [SECONDS]   per viewer; default 20
set -euo pipefail
cd "$(dirname "$0")/../.."

seconds=${1:-${FASTPATH_SECONDS:-20}}
port=${INTEROP_PORT:-$((20000 + RANDOM % 10000))} # the next port is used too
[ "$EUID" = 0 ] || {
	echo "1..0 # SKIP the kernel fast path needs root"
	exit 0
}

. tools/interop/tap.sh
metric() { # NAME: sum over its labels
	curl -fs "http://127.0.0.1:$port/metrics" |
		awk -v name="holocast_relay_fastpath_$1" '$1 == name || index($1, name "{") == 1 { sum += $2 } END { printf "%d", sum }'
}

mkdir -p bin
go build -o bin/ ./relay ./capture-server ./tools/holocast
go build -o "$work/rough" ./tools/interop/rough
(cd client-unity/native && cargo build --quiet --locked --example watch -p capi)
start relay bin/relay --listen "127.0.0.1:$port" --http "127.0.0.1:$port" --fastpath chacha20 --qlog-dir "$work/qlog"
await relay "relay is listening"
start rough "$work/rough" --move 2s "127.0.0.1:$((port + 1))" "127.0.0.1:$port"
await rough listening
start capture-server bin/capture-server "moqt://127.0.0.1:$port/fastpath" --source synthetic --fps 10 \
	--delivery datagram
await capture-server publishing
url=moqt://127.0.0.1:$((port + 1))/fastpath
hash=$(curl -fs "http://127.0.0.1:$port/certificate.sha256")

# view NAME COMMAND... runs a viewer whose last line is JSON.
view() {
	local name=$1 forwarded lost moved lines keys problem=""
	shift
	forwarded=$(metric forwarded_packets_total) lost=$(metric lost_packets_total) moved=$(metric migrated_viewers_total)
	lines=$(wc -l <"$work/relay.log")
	rm -f "$work"/qlog/*
	timeout $((seconds + 90)) "$@" >"$work/viewer.log" 2>&1 || problem="it failed"
	forwarded=$(($(metric forwarded_packets_total) - forwarded)) lost=$(($(metric lost_packets_total) - lost))
	moved=$(($(metric migrated_viewers_total) - moved))
	tail -n +"$((lines + 1))" "$work/relay.log" >"$work/since.log"
	keys=$(cat "$work"/qlog/* 2>/dev/null | grep -c key_updated || true)
	tail -n 1 "$work/viewer.log" | grep -Eq '"frames": ?[1-9]' || problem="no frame was shown"
	[ "$(grep -c 'msg="session open"' "$work/since.log")" = 1 ] || problem="it connected again"
	if grep 'msg="session closed"' "$work/since.log" | grep -qv 'NO_ERROR'; then
		problem="its session ended with an error"
	fi
	[ "$forwarded" -gt 0 ] || problem="the kernel forwarded nothing"
	[ "$moved" -gt 0 ] || problem="it did not move"
	[ "$keys" -gt 0 ] || problem="keys were not updated"
	echo "# $name: the kernel sent $forwarded packets, $lost of them lost; $moved moves; $keys key_updated events"
	if [ -z "$problem" ]; then
		report ok "$name through the kernel: $(tail -n 1 "$work/viewer.log")"
	else
		report "not ok" "$name through the kernel: $problem"
		tail -n 5 "$work/viewer.log" "$work/since.log" | sed 's/^/# /'
	fi
}
view quinn client-unity/native/target/debug/examples/watch "$url" "$seconds" "$hash"
view quic-go bin/holocast play "$url" --certificate-hash "$hash" --wait --duration "${seconds}s" --json

echo "1..$tests"
[ "$failed" = 0 ] || exit 1
