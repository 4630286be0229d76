#!/usr/bin/env bash
# Builds the programs for 64-bit ARM into bin/arm64 on a machine of another kind, and has each
# say its version under emulation. Libraries come from Debian 12's arm64 packages, which are
# unpacked, not installed. "make arm64" calls it.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD/build/.arm64
[ -e "$root/usr/include/x264.h" ] || {
	rm -rf "$root"
	mmdebstrap --quiet --variant=extract --architectures=arm64 \
		--include=libc6-dev,libturbojpeg0-dev,libx264-dev,libzstd-dev bookworm "$root"
}
export GOOS=linux GOARCH=arm64 CC="aarch64-linux-gnu-gcc --sysroot=$root"
export PKG_CONFIG_LIBDIR=$root/usr/lib/aarch64-linux-gnu/pkgconfig:$root/usr/share/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
mkdir -p bin/arm64
CGO_ENABLED=0 go build -o bin/arm64/ ./relay ./netfunc/edge ./netfunc/controller
CGO_ENABLED=1 go build -o bin/arm64/ ./capture-server ./tools/holocast
for program in bin/arm64/*; do
	qemu-aarch64 -L "$root" "$program" --version
done
