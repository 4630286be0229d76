#!/bin/bash
# Runs the commands of docs/install.md (/test/commands) in the plain Debian booted by test.sh, as a
# new user would. Writes their stdout to /test/transcript; of apt's output, only the lines about
# Holocast.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
cd /test

run() {
	printf '# %s\n' "$1" >>transcript
	bash -c "$1" >out 2>err || { cat out err; journalctl --no-pager -n 30; echo "FAIL: $1" >&2; exit 1; }
	case $1 in
	apt*) grep -E '^(Setting up|Created symlink).*holocast' out >>transcript ;;
	*) cat out >>transcript ;;
	esac
}

rm -f transcript
while read -r command; do run "$command"; done <commands
run "systemctl is-active holocast-relay holocast-capture"
[ -s performer.png ] || { echo "FAIL: no picture" >&2; exit 1; }
