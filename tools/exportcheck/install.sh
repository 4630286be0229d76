#!/usr/bin/env bash
# Installs the readers of exportcheck from PyPI into build/exportcheck, if missing.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
dir=$root/build/exportcheck
[[ -e $dir ]] && exit
mkdir -p "$root/build"
tmp=$(mktemp -d "$root/build/exportcheck.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
# Skip dependencies: Open3D needs them only for its viewers.
python3 -m pip --disable-pip-version-check --quiet install --no-deps --no-compile --only-binary=:all: \
	--target "$tmp/files" --requirement "$(dirname "$0")/requirements.txt"
# Move the directory atomically; a concurrent run may have finished first.
mv -T "$tmp/files" "$dir" 2>/dev/null || [[ -e $dir ]]
