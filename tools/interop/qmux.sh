#!/usr/bin/env bash
# Tests sessions over TCP with moq-dev's packages from npm: @moq/qmux views through our relay, with the
# web viewer's MOQT on top, and @moq/net publishes and views. Prints TAP; exits 1 on failure. Needs Node.
set -euo pipefail
cd "$(dirname "$0")/../.."

packages=(@moq/qmux@0.3.3 @moq/net@0.3.4)
port=${INTEROP_PORT:-$((20000 + RANDOM % 10000))}
peers=build/peers/npm

. tools/interop/tap.sh

command -v npm >/dev/null || {
	echo "1..0 # SKIP moq-dev's packages need Node"
	exit 0
}
# npm does nothing if they are installed.
mkdir -p "$peers"
npm install --prefix "$peers" --no-save --prefer-offline --no-audit --no-fund --loglevel=error "${packages[@]}" >&2
mkdir -p bin
go build -o bin/ ./relay ./capture-server
start relay bin/relay --listen "127.0.0.1:$port" --http "127.0.0.1:$port"
await relay "relay is listening"
for delivery in stream datagram; do
	start "$delivery" bin/capture-server "moqt://127.0.0.1:$port/$delivery" --source synthetic --fps 30 \
		--depth-mode NFOV_2X2BINNED --delivery "$delivery" --low=false --thin=false
	await "$delivery" publishing
done
timeout 600 node --experimental-websocket tools/interop/qmux.mjs "$peers/node_modules/@moq" "$port" stream datagram \
	>"$work/qmux.log" 2>&1 || true
while read -r line; do
	case $line in
	"not ok "*) report "not ok" "${line#not ok }" ;;
	"ok "*) report ok "${line#ok }" ;;
	esac
done <"$work/qmux.log"
[ "$tests" = 10 ] || report "not ok" "all checks ran"
[ "$failed" = 0 ] || {
	diagnose "$work/qmux.log" 60
	diagnose "$work/relay.log"
}

echo "1..$tests"
[ "$failed" = 0 ] || exit 1
