#!/bin/bash
# Tests the OpenFlow controller: style, types and units; as root, also Open vSwitch in network
# namespaces. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")"

./install.sh --dev
bin=$(cd ../.. && pwd)/build/openflow/venv/bin

for tool in ovs-vswitchd ethtool ip; do
	command -v "$tool" >/dev/null || { echo "test.sh: $tool is missing: run make setup-test" >&2; exit 1; }
done

"$bin/ruff" check --quiet .
"$bin/ruff" format --quiet --check .
"$bin/mypy" .
"$bin/pytest" -q -rs "$@"
