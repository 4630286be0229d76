#!/usr/bin/env bash
# Installs the readers of exportcheck from PyPI into a folder in build, if missing, and prints the folder.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
requirements=$(dirname "$0")/requirements.txt
dir=$root/build/exportcheck-$(sha256sum "$requirements" | cut -c1-12)
echo "$dir"
[[ -e $dir ]] && exit
mkdir -p "$root/build"
tmp=$(mktemp -d "$root/build/exportcheck.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
# Skip dependencies: Open3D needs them only for its viewers.
python3 -m pip --disable-pip-version-check --quiet install --no-deps --no-compile --only-binary=:all: \
	--target "$tmp/files" --requirement "$requirements" >&2
# Move the directory atomically; a concurrent run may have finished first.
mv -T "$tmp/files" "$dir" 2>/dev/null || [[ -e $dir ]]
