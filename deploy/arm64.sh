#!/usr/bin/env bash
# Cross-compiles the programs for 64-bit ARM into bin/arm64 and runs each with --version under
# emulation. Libraries come from Debian 12's arm64 packages, unpacked but not installed. "make
# arm64" calls it.
#
#   --test [ARGS]   run tests under emulation instead; ARGS go to go test
#
# Emulation covers codecs, formats, geometry, decision logic and the C kernels. qemu-user lacks
# bpf() and the ethtool ioctl, and starts child programs only with binfmt_misc: tests of programs,
# eBPF and emulated networks need an ARM machine. .github/workflows/ci.yml has one.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD/build/.arm64
[ -e "$root/usr/include/opus/opus.h" ] || {
	rm -rf "$root"
	mmdebstrap --quiet --variant=extract --architectures=arm64 \
		--include=libc6-dev,libopus-dev,libturbojpeg0-dev,libx264-dev,libzstd-dev bookworm "$root"
}
export GOOS=linux GOARCH=arm64 CC="aarch64-linux-gnu-gcc --sysroot=$root"
export PKG_CONFIG_LIBDIR=$root/usr/lib/aarch64-linux-gnu/pkgconfig:$root/usr/share/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root

if [ "${1:-}" = --test ]; then
	# TestDiskFull starts its own binary, which needs binfmt_misc.
	CGO_ENABLED=1 go test -p 2 -skip '^TestDiskFull$' -exec "qemu-aarch64 -L $root" "${@:2}" \
		./internal/{camera,catalog,clock,cmaf,config,congestion,gazetrace,k4amkv,livescan,loc,mjpeg,opus,parts,plyfile} \
		./internal/{pointcloud,prepared,qoe,recording,render,spherical,tile360,tiles,x264} ./internal/moqt/wire \
		./relay/limits ./netfunc/{elimination,pathset,signal} ./netfunc/controller/policy
	exit
fi

mkdir -p bin/arm64
CGO_ENABLED=0 go build -o bin/arm64/ ./relay ./netfunc/edge ./netfunc/controller
CGO_ENABLED=1 go build -o bin/arm64/ ./capture-server ./tools/holocast
for program in bin/arm64/*; do
	qemu-aarch64 -L "$root" "$program" --version
done
