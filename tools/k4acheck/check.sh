#!/usr/bin/env bash
# Compares our depth geometry and recordings with Microsoft's Azure Kinect SDK.
#
#   tools/k4acheck/check.sh           install the SDK's libraries if missing, run the checks
#   tools/k4acheck/check.sh install   only install them
#
# libk4a, libk4arecord and the closed depth engine come from the wheel pyk4a-bundle on PyPI. They go
# to build/k4a (ignored by git, removed by make clean) and must not be redistributed.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
dir=$root/build/k4a
version=1.5.0

install_sdk() {
	if [[ -e $dir/pyk4a_bundle.libs ]]; then return; fi
	if [[ $(uname -sm) != "Linux x86_64" ]]; then
		echo "k4acheck: the SDK's libraries exist for Linux x86_64 only, this is $(uname -sm)" >&2
		exit 1
	fi
	if ! python3 -m pip --version >/dev/null 2>&1; then
		echo "k4acheck: python3 with pip is needed to install the SDK (Debian: apt install python3-pip)" >&2
		exit 1
	fi
	mkdir -p "$root/build"
	tmp=$(mktemp -d "$root/build/k4a.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	python3 -m pip --disable-pip-version-check --quiet download --no-deps --only-binary=:all: \
		--python-version 3.11 --implementation cp --abi cp311 --platform manylinux_2_35_x86_64 \
		--dest "$tmp" "pyk4a-bundle==$version"
	python3 -m zipfile -e "$tmp"/pyk4a_bundle-*.whl "$tmp/files"
	mkdir -p "$dir"
	# Move the directory atomically; a concurrent run may have finished first.
	mv -T "$tmp/files/pyk4a_bundle.libs" "$dir/pyk4a_bundle.libs" 2>/dev/null || [[ -e $dir/pyk4a_bundle.libs ]]
}

install_sdk
if [[ ${1:-} != install ]]; then
	cd "$root"
	go test -count=1 -v ./tools/k4acheck
fi
