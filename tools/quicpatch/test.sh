#!/bin/sh
# Runs quic-go's own unit tests on the patched tree, and webtransport-go's on both.
set -eu
cd "$(dirname "$0")/../.."
GOWORK=off go run ./tools/quicpatch -q -work=false
cd build/webtransport-go
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'go 1.26.0\nuse %s\nreplace github.com/quic-go/quic-go => %s\n' "$PWD" "$PWD/../quic-go" >"$work/go.work"
GOWORK=$work/go.work go test "$@" . ./integrationtests || GOWORK=$work/go.work go test "$@" . ./integrationtests
cd ../quic-go
packages=$(GOWORK=off go list ./... | grep -v -e /integrationtests/ -e /interop -e /example)
# Some of quic-go's tests go by the clock and fail on a busy machine: what fails is run again,
# and only that, as Go remembers what passed.
for _ in 1 2; do
	GOWORK=off go test "$@" $packages && exit
done
GOWORK=off go test "$@" $packages
