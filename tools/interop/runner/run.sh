#!/usr/bin/env bash
# Runs the interop runner's test client as the runner does, without containers: against our relay,
# started by its entry point, and against moq-relay-ietf if interop.sh has built it. Prints TAP.
set -euo pipefail
cd "$(dirname "$0")/../../.."
. tools/interop/tap.sh

port=${INTEROP_PORT:-$((20000 + RANDOM % 10000))} # the next port is used too
mkdir -p bin
go build -o bin/relay ./relay
go build -o "$work/client" ./tools/interop/runner/client
# As the runner's generate-certs.sh makes it.
openssl req -x509 -newkey rsa:2048 -nodes -days 10 -subj /CN=localhost \
	-addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$work/priv.key" -out "$work/cert.pem" 2>/dev/null

# check NAME URL runs all tests with the runner's environment.
check() {
	local out=$work/$1.tap status=0 passed draft
	RELAY_URL=$2 TLS_DISABLE_VERIFY=1 timeout 60 "$work/client" >"$out" 2>&1 || status=$?
	passed=$(grep -c '^ok ' "$out" || true)
	if [ "$status" = 0 ] && [ "$passed" = "$("$work/client" --list | wc -l)" ]; then
		draft=$(sed -n 's/^  draft: //p' "$out" | sort -u)
		report ok "${2%%:*}: the interop runner's client passes $passed tests against $1: $draft"
	else
		report "not ok" "${2%%:*}: the interop runner's client passes $passed tests against $1, exit $status"
		diagnose "$out" 60
		diagnose "$work/$1.log"
	fi
}

MOQT_PORT=$port MOQT_CERT=$work/cert.pem MOQT_KEY=$work/priv.key PATH=$PWD/bin:$PATH \
	start relay tools/interop/runner/entrypoint-relay.sh --log-level info
await relay listening
check relay "moqt://127.0.0.1:$port"
check relay "https://127.0.0.1:$port"

theirs=build/peers/bin/moq-relay-ietf
if [ -x "$theirs" ]; then
	start moq-relay-ietf "$theirs" --bind "127.0.0.1:$((port + 1))" --tls-cert "$work/cert.pem" \
		--tls-key "$work/priv.key" --coordinator-file "$work/coordinator.json"
	await moq-relay-ietf listening
	check moq-relay-ietf "moqt://127.0.0.1:$((port + 1))"
fi

# One test by name, and the exit code for a name that the client does not have.
status=0
RELAY_URL=moqt://127.0.0.1:$port TLS_DISABLE_VERIFY=1 TESTCASE=setup-only \
	timeout 60 "$work/client" >"$work/one.tap" || status=$?
[ "$status" = 0 ] && grep -qx 1..1 "$work/one.tap" && verdict=ok || verdict="not ok"
report "$verdict" "TESTCASE selects one test"
status=0
TESTCASE=none timeout 60 "$work/client" >/dev/null 2>&1 || status=$?
[ "$status" = 127 ] && verdict=ok || verdict="not ok"
report "$verdict" "an unknown test exits with 127"

echo "1..$tests"
[ "$failed" = 0 ] || {
	echo "# $failed of $tests failed"
	exit 1
}
echo "# all of $tests passed"
