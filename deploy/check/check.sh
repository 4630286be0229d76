#!/usr/bin/env bash
# Runs the fast tests of deploy/: units, scripts, alerts, chart, compose file and Containerfile.
# "make test-deploy" calls it.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for unit in systemd/*.service; do
	# systemd-analyze verify requires existing programs.
	sed 's#^ExecStart=/usr/bin/[a-z-]*#ExecStart=/bin/true#' "$unit" >"$work/$(basename "$unit")"
	# A service restarts after any unexpected end, and systemd never gives up.
	for line in Restart=always StartLimitIntervalSec=0 'RestartSec=[25]'; do
		grep -qx "$line" "$unit" || { echo "$unit lacks $line" >&2; exit 1; }
	done
	systemd-analyze security --offline=true --threshold=29 --no-pager "$unit" | tail -1
done
systemd-analyze verify --man=no "$work"/*.service
# ebpf/rlimit tries bpf() before main runs. The unit must make the call fail instead of killing
# the service.
grep -qx SystemCallErrorNumber=EPERM systemd/holocast-relay.service
for script in package.sh test.sh scripts/*.in scripts/make-signal-key */test.sh test/*.sh; do
	bash -n "$script"
done
cd check
# Go does not know that the tests depend on programs of another module.
GOWORK=off go test -count=1 "$@" ./...
