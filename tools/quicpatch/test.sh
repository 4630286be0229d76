#!/bin/sh
# Runs quic-go's own unit tests on the patched tree.
set -eu
cd "$(dirname "$0")/../.."
GOWORK=off go run ./tools/quicpatch -q -work=false
cd build/quic-go
GOWORK=off exec go test "$@" $(GOWORK=off go list ./... | grep -v -e /integrationtests/ -e /interop -e /example)
