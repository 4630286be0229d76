#!/bin/bash
# Installs the OpenFlow controller's dependencies into build/openflow/venv; --dev adds the test
# dependencies. Does nothing if they are up to date.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
venv=$(cd "$here/../.." && pwd)/build/openflow/venv
requirements=$here/requirements.txt
if [ "${1:-}" = --dev ]; then
	requirements=$here/requirements-dev.txt
elif [ $# -gt 0 ]; then
	echo "usage: install.sh [--dev]" >&2
	exit 2
fi

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
	echo "install.sh: Python 3.11 or later is missing (Debian: python3); set PYTHON to use another one" >&2
	exit 1
fi
stamp=$venv/installed
wanted=$(cat "$here"/requirements*.txt; echo "$requirements $here")
if [ -x "$venv/bin/python" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
	exit 0
fi
if ! "$python" -m venv "$venv"; then
	echo "install.sh: $python cannot create virtual environments (Debian: python3-venv)" >&2
	exit 1
fi
"$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
site=$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')
echo "$here" >"$site/holocast_openflow.pth" # makes python -m holocast_openflow work anywhere
echo "$wanted" >"$stamp"
