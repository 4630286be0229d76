#!/bin/bash
# Tests the OpenFlow controller: style, types, units, and as root on Open vSwitch in
# network namespaces, for which it installs what is missing. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")"

./install.sh --dev
bin=$(cd ../.. && pwd)/build/openflow/venv/bin

declare -A packages=([ovs-vswitchd]=openvswitch-switch [ethtool]=ethtool [ip]=iproute2)
missing=()
for tool in "${!packages[@]}"; do
	command -v "$tool" >/dev/null || missing+=("${packages[$tool]}")
done
if [ ${#missing[@]} -gt 0 ]; then
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "test.sh: not installed: ${missing[*]}; the tests on Open vSwitch are skipped"
	elif ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >/dev/null; then
		echo "test.sh: could not install ${missing[*]}; the tests on Open vSwitch are skipped"
	fi
fi

"$bin/ruff" check --quiet .
"$bin/ruff" format --quiet --check .
"$bin/mypy" .
"$bin/pytest" -q -rs "$@"
