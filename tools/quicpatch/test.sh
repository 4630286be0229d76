#!/bin/sh
# Runs quic-go's unit tests on the patched tree, and webtransport-go's tests on both patched trees.
set -eu
cd "$(dirname "$0")/../.."
GOWORK=off go run ./tools/quicpatch -q -work=false

# Both modules scale the time limits of their tests: quic-go by this factor, webtransport-go by 5 if
# CI is set.
export TIMESCALE_FACTOR=10 CI=true

# Tests of webtransport-go v0.13.0 that occasionally fail on the published modules too:
#   TestStreamResetError: writes to a stream that the server may already have stopped.
#   TestServerRejectsPooledSessionWithoutFlowControl: the second request may overtake the first session.
#   TestClientWaitForSettingsTimeout: the client may be cancelled before it notices the end of its handshake.
#   TestOpenStreamSyncShutdown: a call that should wait for the end of the session may open a stream.
skip='^(TestOpenStreamSyncShutdown|TestStreamResetError|TestServerRejectsPooledSessionWithoutFlowControl|TestClientWaitForSettingsTimeout)$'

# patient copies a tree to NAME-tests, where tests wait a minute instead of a second. The settings above do not change
# those limits.
patient() {
	rm -rf "$1-tests"
	cp -a "$1" "$1-tests"
	find "$1-tests" -name '*_test.go' -exec perl -0pi \
		-e 's/time\.After\(([0-9]|time\.|scaleDuration)[^\n]*\):(\n\s*t\.Fatal)/time.After(time.Minute):$2/g;' \
		-e 's/(WithTimeout\(context\.Background\(\), )time\.Second\)/$1time.Minute)/g;' \
		-e 's/(time\.Now\(\)\.Add\()time\.Second\)/$1time.Minute)/g;' \
		-e 's/\n(\t+|\t*\}, )time\.Second,/\n$1time.Minute,/g;' {} +
}

cd build
patient webtransport-go
patient quic-go
cd webtransport-go-tests
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'go 1.26.0\nuse %s\nreplace github.com/quic-go/quic-go => %s\n' "$PWD" "$PWD/../quic-go" >"$work/go.work"
GOWORK=$work/go.work go test -skip "$skip" "$@" . ./integrationtests
cd ../quic-go-tests
# Without the module's test utilities, which the patches do not concern.
packages=$(GOWORK=off go list ./... | grep -v -e /integrationtests/ -e /interop -e /example -e /testutils)
# shellcheck disable=SC2086 # one argument per package
GOWORK=off go test "$@" $packages
