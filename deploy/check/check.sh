#!/usr/bin/env bash
# What of deploy/ is tested within a minute: units, scripts, alerts, chart, compose file and
# Containerfile. "make test-deploy" calls it.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for unit in systemd/*.service; do
	# The programs need not be installed.
	sed 's#^ExecStart=/usr/bin/[a-z-]*#ExecStart=/bin/true#' "$unit" >"$work/$(basename "$unit")"
	systemd-analyze security --offline=true --threshold=29 --no-pager "$unit" | tail -1
done
systemd-analyze verify --man=no "$work"/*.service
# This package calls bpf(2) before main runs, which the relay's unit does not allow.
if (cd .. && go list -deps ./relay | grep -x github.com/cilium/ebpf/rlimit); then
	echo "check.sh: the relay must not import it" >&2
	exit 1
fi
for script in package.sh test.sh scripts/*.in scripts/make-signal-key */test.sh test/*.sh; do
	bash -n "$script"
done
cd check
GOWORK=off go test "$@" ./...
