#!/usr/bin/env bash
# Prints the Go packages to test with the race detector: those that start goroutines, in code or
# tests. Exceptions: programs whose tests only start processes, and benchmarks. The edge's and
# controller's tests build their programs with the detector, so both are included.
set -euo pipefail
cd "$(dirname "$0")/.."

concurrent=$(git grep -lE '(^|[^.[:alnum:]])go (func\b|[[:alnum:]_.]+\()|\.Go\(|AfterFunc\(' -- '*.go' |
	xargs -n 1 dirname | sort -u | sed 's|^|./|')
listed=$(go list -f '{{if or (ne .Name "main") (eq .ImportPath "holocast/netfunc/edge" "holocast/netfunc/controller")}}{{.Dir}}{{end}}' ./... |
	grep . | sed "s|^$PWD|.|")
grep -xF "$listed" <<<"$concurrent" | grep -v '^\./tools/lab/bench/'
